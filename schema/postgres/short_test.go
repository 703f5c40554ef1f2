//go:build !long

package postgres_test

// poolerModes are the driver's settings that work behind a pooler; the other one is in the long form.
var poolerModes = []string{"cache_describe"}
