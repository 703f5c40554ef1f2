//go:build long

package schematest

const long = true
