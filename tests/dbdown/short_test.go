//go:build !long

package dbdown

// long makes the faults come more often and last longer: go test -tags long.
const long = false
