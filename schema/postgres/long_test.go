//go:build long

package postgres_test

// poolerModes are the driver's settings that work behind a pooler.
var poolerModes = []string{"cache_describe", "exec", "simple_protocol"}
