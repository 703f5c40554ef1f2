# Every target is one line around a program or script that also runs without make.

.PHONY: build test cases-long lint bench mutants demo

# The millbridge binary, in bin/.
build:
	go build -o bin/millbridge ./cmd/millbridge

# All tests; brings up PostgreSQL and NATS by itself. For some of them: make test ARGS="./router -run X"
test:
	go run ./internal/testrun $(ARGS)

# The field cases about large numbers, with the numbers that were reported: millions of rows, for half an hour.
cases-long:
	go run ./internal/testrun ./tests/cases -v -timeout 120m -run 'C30|C31' -args -long $(ARGS)

# go vet, gofumpt and staticcheck.
lint:
	bash .ci/lint

bench:
	go run ./internal/testrun -run '^$$' -bench . -benchmem $(ARGS)

# Removes each registered guard in turn and shows that a test fails. For some of them: make mutants ARGS="-run cursor"
mutants:
	go run ./tests/mutants $(ARGS)

demo:
	go run ./cmd/millbridge demo $(ARGS)
