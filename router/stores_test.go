package router

import (
	"testing"

	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/internal/testkit"
)

// modelStore is what the model needs of a store.
type modelStore interface {
	Inbox
	deadletters.Store
}

// modelStores opens an empty store of each kind.
var modelStores = map[string]func(testing.TB) modelStore{
	"sqlite":   func(t testing.TB) modelStore { return testkit.SQLiteStore(t) },
	"postgres": func(t testing.TB) modelStore { return testkit.PostgresStore(t) },
}
