package ops

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/schema"
)

// Whoever may publish may also name our outbox as the source, with an id that no database takes.
func TestLook_asks_databases_for_ids_that_they_take(t *testing.T) {
	t.Parallel()
	l := &look{source: "us"}
	for id, want := range map[string]string{
		"order-17": "order-17", "": "", "\xff\xfe": schema.RowID("\xff\xfe").String(),
		strings.Repeat("x", 65): schema.RowID(strings.Repeat("x", 65)).String(),
	} {
		m := &stored{Header: nats.Header{schema.HeaderID: {id}, schema.HeaderSource: {"us"}}}
		got, ours := l.ours(m)
		if !ours || got != want || !utf8.ValidString(got) {
			t.Errorf("id %q: got %q, ours %v; want %q", id, got, ours, want)
		}
	}
}
