//go:build long

package jetstream

const long = true
