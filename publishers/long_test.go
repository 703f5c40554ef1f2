//go:build long

package publishers_test

const long = true
