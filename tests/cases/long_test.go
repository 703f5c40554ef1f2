//go:build long

package cases

const long = true
