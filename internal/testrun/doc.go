// Command testrun brings up what Millbridge's tests need and runs them:
//
//	go run ./internal/testrun [--require-race] [--no-install] [arguments of go test]
//
// PostgreSQL is the server that MILLBRIDGE_TEST_POSTGRES_URL names, or a throwaway server from the binaries on this
// machine, one for the whole run. What is missing (PostgreSQL, or a C compiler for the race detector) is installed when
// that is possible without asking: as root on Debian or Ubuntu. Without packages among the arguments all are tested.
// Where memory allows, the tests' files are kept in it, unless TMPDIR names a place. Its last line says how the run went.
package main
