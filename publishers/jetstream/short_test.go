//go:build !long

package jetstream

// long makes the tests of large numbers use those that were reported: go test -tags long.
const long = false
