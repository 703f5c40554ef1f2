//go:build !long

package brokerdown

// long has production's waits and more faults: go test -tags long.
const long = false
