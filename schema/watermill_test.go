package schema_test

import (
	"maps"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

func TestWatermillHeader(t *testing.T) {
	t.Parallel()
	t.Run("reads what EncodeHeader wrote", func(t *testing.T) {
		t.Parallel()
		e := schema.NewJob("mail", "send", nil, schema.WithMetadata(map[string]string{"a": " l1\nl2 ", "b": "%20", "c": ""}))
		header, err := schema.ParseHeader(schema.EncodeHeader(e))
		if err != nil {
			t.Fatal(err)
		}
		id, got := schema.WatermillHeader(header)
		if id != e.ID {
			t.Errorf("id %q, want %q", id, e.ID)
		}
		for k, v := range e.Metadata {
			if got[k] != v {
				t.Errorf("metadata %q is %q, want %q", k, got[k], v)
			}
		}
	})
	t.Run("takes what others wrote", func(t *testing.T) {
		t.Parallel()
		id, got := schema.WatermillHeader(map[string][]string{
			"_Watermill_Message_UUID": {"x"}, "two": {"1", "2"}, "none": {}, "Nats-Msg-Id": {"m"}, "Status": {"409"}, "bad": {"\xff"},
		})
		if id != "x" {
			t.Errorf("id %q, want x", id)
		}
		if want := map[string]string{"two": "1", "bad": "\xff"}; !maps.Equal(got, want) {
			t.Errorf("metadata %q, want %q", got, want)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		if id, got := schema.WatermillHeader(nil); id != "" || got == nil || len(got) != 0 {
			t.Errorf("got %q %q, want an empty id and an empty map", id, got)
		}
	})
}
