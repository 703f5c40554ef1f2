package router_test

import (
	"testing"

	"github.com/millbridge/millbridge/internal/testkit"
)

func sqliteStore(t testing.TB) testStore { return testkit.SQLiteStore(t) }

func helperProcess() bool { return false }
