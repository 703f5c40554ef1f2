// Command mutants removes guards from the code, one at a time, and shows that a test fails without each:
//
//	go run ./tests/mutants [-run regexp] [-list] [-v]
//
// The guards are listed in registry/*.yaml, beside the test that must notice. A guard is removed in an overlay of the
// build, so the work tree is not touched. An outcome other than killed fails the run: survived (the tests pass without
// the guard), or broken (the text is not there, the code does not compile, or the test fails with the guard too).
package main
