//go:build linux && !long

package crash

// long adds the run that goes on for an hour: go test -tags long.
const long = false
