package schema_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/schema"
	"pgregory.net/rapid"
)

var genCursor = rapid.Custom(func(t *rapid.T) schema.Cursor {
	c := schema.Cursor{Owner: genID.Draw(t, "owner"), Removed: rapid.Int64Range(0, 1<<50).Draw(t, "removed")}
	c.Batch, c.Total = c.Removed, rapid.Int64Range(0, 1<<50).Draw(t, "total")
	for range rapid.IntRange(0, schema.MaxCursorBatches).Draw(t, "batches") {
		names := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) schema.RowName {
			return schema.RowName{Seq: genSeq.Draw(t, "seq"), ID: genUUID.Draw(t, "id")}
		}), 0, 12).Draw(t, "rows")
		if len(names) == 0 {
			names = nil
		}
		c.Batch++
		c.Total += int64(len(names))
		c.Batches = append(c.Batches, schema.CursorBatch{Batch: c.Batch, Total: c.Total, Rows: names})
	}
	return c
})

func TestCursor_round_trip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := genCursor.Draw(t, "cursor")
		got, err := schema.DecodeCursor(c.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, c) {
			t.Fatalf("got  %+v\nwant %+v", got, c)
		}
		var names []schema.RowName
		for _, b := range c.Batches {
			names = append(names, b.Rows...)
		}
		if !slices.Equal(got.Names(), names) {
			t.Fatalf("names %v, want %v", got.Names(), names)
		}
	})
}

func TestCursor_body_is_pinned(t *testing.T) {
	t.Parallel()
	c := schema.Cursor{Owner: "o1", Batch: 8, Total: 102, Removed: 7, Batches: []schema.CursorBatch{
		{Batch: 8, Total: 102, Rows: []schema.RowName{{Seq: 300, ID: schema.UUID{15: 1}}, {Seq: 299, ID: schema.UUID{0: 255}}}},
	}}
	want := `{"v":1,"owner":"o1","batch":8,"total":102,"removed":7,"batches":[{"batch":8,"total":102,"rows":"2AQAAAAAAAAAAAAAAAAAAAABAf8AAAAAAAAAAAAAAAAAAAA="}]}`
	if got := string(c.Encode()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCursor_at_its_limits_fits_a_message(t *testing.T) {
	t.Parallel()
	c := schema.Cursor{Owner: strings.Repeat("o", 64)}
	for i := range int64(schema.MaxCursorBatches) {
		b := schema.CursorBatch{Batch: i + 1}
		for n := range int64(schema.MaxCursorRows / schema.MaxCursorBatches) {
			b.Rows = append(b.Rows, schema.RowName{Seq: (n % 2) << 62, ID: schema.NewUUID(genTimeFixed)})
		}
		c.Batch++
		c.Total += int64(len(b.Rows))
		b.Total = c.Total
		c.Batches = append(c.Batches, b)
	}
	body := c.Encode()
	if len(body) > schema.DefaultPayload {
		t.Errorf("%d bytes", len(body))
	}
	if got, err := schema.DecodeCursor(body); err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("round trip: %v", err)
	}
}

func TestDecodeCursor_refuses_what_nobody_wrote(t *testing.T) {
	t.Parallel()
	many := schema.Cursor{Owner: "o", Batch: 9}
	for i := range int64(9) {
		many.Batches = append(many.Batches, schema.CursorBatch{Batch: i + 1})
	}
	wide := schema.Cursor{Owner: "o", Batch: 1, Batches: []schema.CursorBatch{{Batch: 1, Rows: make([]schema.RowName, schema.MaxCursorRows+1)}}}
	for name, body := range map[string]string{
		"nothing":           ``,
		"other JSON":        `[]`,
		"two values":        `{"v":1,"owner":"o"}{}`,
		"no version":        `{"owner":"o"}`,
		"version 2":         `{"v":2,"owner":"o"}`,
		"no owner":          `{"v":1}`,
		"negative removed":  `{"v":1,"owner":"o","removed":-1,"batch":-1}`,
		"negative total":    `{"v":1,"owner":"o","total":-1}`,
		"batch < removed":   `{"v":1,"owner":"o","batch":1,"removed":2}`,
		"batch is missing":  `{"v":1,"owner":"o","batch":1}`,
		"wrong number":      `{"v":1,"owner":"o","batch":1,"batches":[{"batch":2}]}`,
		"wrong total":       `{"v":1,"owner":"o","batch":1,"total":5,"batches":[{"batch":1,"total":4}]}`,
		"negative in batch": `{"v":1,"owner":"o","batch":2,"total":5,"batches":[{"batch":1,"total":-4},{"batch":2,"total":5}]}`,
		"falling totals":    `{"v":1,"owner":"o","batch":2,"total":5,"batches":[{"batch":1,"total":6},{"batch":2,"total":5}]}`,
		"bad base64":        `{"v":1,"owner":"o","batch":1,"batches":[{"batch":1,"rows":"?"}]}`,
		"cut name":          `{"v":1,"owner":"o","batch":1,"batches":[{"batch":1,"rows":"AgAA"}]}`,
		"endless number":    `{"v":1,"owner":"o","batch":1,"batches":[{"batch":1,"rows":"/////////////////////////////w=="}]}`,
		"too many batches":  string(many.Encode()),
		"too many rows":     string(wide.Encode()),
	} {
		if c, err := schema.DecodeCursor([]byte(body)); err == nil {
			t.Errorf("%s: read as %+v", name, c)
		}
	}
}
