//go:build !long

package publishers_test

// long makes the tests of large numbers use those that were reported: go test -tags long.
const long = false
