# Every target is one line around a program or script that also runs without make.

.PHONY: build test cases-long pooler crash faults fuzz lint bench benchmarks mutants sabotage demo

# The millbridge binary, in bin/.
build:
	go build -o bin/millbridge ./cmd/millbridge

# All tests; brings up PostgreSQL and NATS by itself. For some of them: make test ARGS="./router -run X"
test:
	go run ./internal/testrun $(ARGS)

# Field cases with the numbers that were reported: millions of rows, minutes of standing still. Takes half an hour.
cases-long:
	go run ./internal/testrun -tags long ./tests/cases ./schema/postgres ./schema/sqlite ./publishers/... -v -timeout 120m -run 'C01|C27_behind|C28|C30|C31|C32|C36' $(ARGS)

# All tests that use PostgreSQL, with PgBouncer in transaction mode before it. For some: make pooler ARGS="./router -run X"
pooler:
	go run ./internal/testrun --pooled $(or $(ARGS),./schema/postgres ./publishers/... ./router ./internal/cli ./cmd/millbridge ./tests/cases ./examples/...)

# Kills, stops and holds up real processes for up to an hour, on both stores, and checks every message and effect from
# the outside. It prints its progress. For less: make crash ARGS="-duration 3m -cycles 100 -messages 50000"
crash:
	go test -tags long ./tests/crash -v -timeout 0 -run 'TestLong|C37' -args $(ARGS)

# PostgreSQL, NATS and the network to them fail in every way, often and for long, and their disks are full: needs root.
faults:
	go run ./internal/testrun -tags long,root ./tests/...down -v -timeout 120m $(ARGS)

# Every decoder of bytes from outside, 30 seconds each. For longer: make fuzz ARGS=10m
fuzz:
	bash .ci/fuzz $(ARGS)

# go vet, gofumpt and staticcheck.
lint:
	bash .ci/lint

# Measures Millbridge beside the stock Watermill assembly, River and the raw limits, on servers that it starts itself. It
# takes about three quarters of an hour. For less: make bench ARGS="-scenario drain -rounds 1"
bench:
	go -C tests/bench build -o ../../bin/bench . && bin/bench $(ARGS)

# The Go benchmarks beside the code, for benchstat.
benchmarks:
	go run ./internal/testrun -run '^$$' -bench . -benchmem $(ARGS)

# Removes each registered guard in turn and shows that a test fails. For some of them: make mutants ARGS="-run cursor"
mutants:
	go run ./tests/mutants $(ARGS)

# Puts faults into the code that break a promise (ack before the effect, no fence, ...), and shows that a test fails.
sabotage:
	go run ./tests/mutants -run '^deliberate' $(ARGS)

demo:
	go run ./cmd/millbridge demo $(ARGS)
