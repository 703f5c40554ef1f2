//go:build !long

package schematest

// long makes the cases of large numbers use those that were reported: go test -tags long.
const long = false
