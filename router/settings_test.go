package router_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// Settings that are changed while a bridge runs are problems of its health.
func TestHealth_names_settings_that_were_changed(t *testing.T) {
	t.Parallel()
	b := onPostgres(t)
	bridge, err := router.Open(t.Context(), router.Config{Store: b.store, Conn: b.conn})
	if err != nil {
		t.Fatal(err)
	}
	if h := bridge.Health(t.Context()); len(h.Problems) > 0 {
		t.Errorf("before: %q", h.Problems)
	}
	b.exec(`ALTER SEQUENCE millbridge.outbox_seq CACHE 9`)
	dead, err := b.js.Stream(t.Context(), "MB_DEAD")
	if err != nil {
		t.Fatal(err)
	}
	cfg := dead.CachedInfo().Config
	cfg.MaxAge = time.Hour
	if _, err := b.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(bridge.Health(t.Context()).Problems, "\n")
	for _, want := range []string{"database: ", "outbox_seq has CACHE 9", "streams: ", "stream MB_DEAD: max_age is 1h0m0s"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	_, err = router.Open(t.Context(), router.Config{Store: b.store, Conn: b.conn})
	if err == nil || schema.KindOf(err) != schema.Permanent || !strings.Contains(err.Error(), "CACHE 9") {
		t.Errorf("open: %v", err)
	}
}

func TestOpen_refuses_a_database_that_cannot_be_written(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.exec("PRAGMA query_only = 1")
	if _, err := router.Open(t.Context(), router.Config{Store: b.store, Conn: b.conn}); err == nil || !strings.Contains(err.Error(), "check rights") {
		t.Errorf("open: %v", err)
	}
}
