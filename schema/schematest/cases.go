package schematest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// C21 shows that names are never cut: two that are equal in their first bytes stay two, and what is not a name is
// refused.
func C21[Tx any](t *testing.T, open Opener[Tx]) {
	s := start(t, open)
	same := strings.Repeat("t", schema.MaxTarget-1)
	long := strings.Repeat("n", schema.MaxName-1)
	pairs := [][2]schema.Envelope{
		{schema.NewJob(same+"1", "a", nil), schema.NewJob(same+"2", "a", nil)},
		{schema.NewJob("x", "a", nil), schema.NewJob("offsets_x", "a", nil)},
		{schema.NewEvent(long[:180]+"1", nil), schema.NewEvent(long[:180]+"2", nil)},
	}
	for _, p := range pairs {
		s.publish(p[0], p[1])
		for _, e := range p {
			group := e.Target
			if group == "" {
				group = e.Name
			}
			rows, err := s.Store.ListOutbox(s.ctx, schema.RowFilter{Group: group})
			s.must(err)
			if len(rows) != 1 || rows[0].ID != schema.RowID(e.ID) || rows[0].Subject != e.Subject() {
				t.Errorf("%s has the rows %+v, want its own message only", group, rows)
			}
		}
	}
	for _, name := range []string{"", same + "22", `a"b`, "a;b", "A", "a b", "a'", "ä", "a..b", ".", "a*", ">"} {
		for field, e := range map[string]schema.Envelope{"target": schema.NewJob(name, "a", nil), "name": schema.NewEvent(name, nil)} {
			if name == same+"22" && field == "name" {
				continue // not too long for a name
			}
			_, err := s.tryPublish(e)
			var invalid *schema.ValidationError
			if !errors.As(err, &invalid) || invalid.Faults[0].Field != field {
				t.Errorf("%s %q: error %v, want a fault of the field", field, name, err)
			}
		}
	}
}

// C22 shows that every byte string comes back as it was given.
func C22[Tx any](t *testing.T, open Opener[Tx]) {
	s := start(t, open)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	payloads := map[string][]byte{
		"nil": nil, "empty": {}, "text": []byte("hello"), "protobuf": {0x08, 0x96, 0x01, 0x12, 0x00}, "zero": {0}, "ff": {0xff}, "all": all,
		"escaped NUL": []byte(`{"a":"\u0000"}`), "lone surrogate": []byte(`{"a":"\ud800"}`), "twice": []byte(`{"a":1,"a":2}`),
		"2^53": []byte(`{"a":9007199254740993}`), "blanks": []byte(" { \"a\" : 1 }\n"), "large": bytes.Repeat(all, 2000),
	}
	want := make(map[string][]byte)
	var envs []schema.Envelope
	for name, p := range payloads {
		e := schema.NewJob("crm", "a", p, schema.WithMetadata(map[string]string{"name": name}))
		envs = append(envs, e)
		want[e.ID] = p
	}
	s.publish(envs...)
	for _, row := range s.waiting(schema.Jobs) {
		e, err := row.Envelope()
		s.must(err)
		if p, ok := want[e.ID]; !ok || !bytes.Equal(e.Payload, p) {
			t.Errorf("%s came back as %.60q", e.Metadata["name"], e.Payload)
		}
		delete(want, e.ID)
	}
	if len(want) > 0 {
		t.Errorf("%d payloads are missing", len(want))
	}

	// Ids up to the limit are taken, one more character is refused. The same id twice is two messages: only keys join.
	id := strings.Repeat("i", schema.MaxID)
	_, err := s.tryPublish(schema.NewEvent("a", nil, schema.WithID(id+"i")))
	s.wants(err, schema.ErrInvalid)
	s.publish(schema.NewEvent("a", nil, schema.WithID(id[:37])), schema.NewEvent("a", nil, schema.WithID(id)))
	s.publish(schema.NewEvent("a", nil, schema.WithID(id)))
	s.wantWaiting(schema.Events, id[:37], id, id)
}

// C33 shows that due times are points in time, judged by the database's clock, in whatever zone they were given.
func C33[Tx any](t *testing.T, open Opener[Tx]) {
	s := start(t, open)
	zones := []*time.Location{time.UTC, time.FixedZone("Asia/Kolkata", 5*3600+1800), time.FixedZone("America/New_York", -5*3600)}
	now := time.Now()
	for _, z := range zones {
		s.publish(schema.NewJob("crm", "a", nil, schema.WithDueAt(now.Add(time.Minute).In(z)), schema.WithTime(now.In(z))))
	}
	list, err := s.Store.ListScheduled(s.ctx, schema.RowFilter{})
	s.must(err)
	for _, row := range list {
		e, err := row.Envelope()
		s.must(err)
		if off := row.DueAt.Sub(now.Add(time.Minute)); off.Abs() > time.Millisecond || !e.Time.Equal(now) {
			t.Errorf("due at %v and made at %v, want %v and %v", row.DueAt, e.Time, now.Add(time.Minute), now)
		}
		if _, zone := row.DueAt.Zone(); zone != 0 && row.DueAt.Location() == nil {
			t.Errorf("due at %v, without a zone", row.DueAt)
		}
	}
	if res := s.tend(); res.Moved != 0 || (res.NextDue-time.Minute).Abs() > 2*time.Second {
		t.Fatalf("%+v, want the next in a minute", res)
	}
	s.age(58 * time.Second)
	if res := s.tend(); res.Moved != 0 {
		t.Fatalf("%d moved 2 s early", res.Moved)
	}
	s.age(2 * time.Second)
	if res := s.tend(); res.Moved != len(zones) {
		t.Fatalf("%d moved, want %d", res.Moved, len(zones))
	}
}

// C36 shows batches of any size, and that one bad message refuses its batch whole.
func C36[Tx any](t *testing.T, open Opener[Tx]) {
	s := start(t, open)
	sizes, total := []int{0, 1, 10, 21_846}, 0
	if long {
		sizes = append(sizes, 100_000)
	}
	for _, n := range sizes {
		envs := make([]schema.Envelope, n)
		for i := range envs {
			envs[i] = schema.NewJob("crm", "a", nil, schema.WithMetadata(map[string]string{"n": fmt.Sprint(total + i)}))
		}
		if n > 1 {
			bad := append([]schema.Envelope{}, envs...)
			bad[7] = schema.NewJob("crm", "A", nil)
			_, err := s.tryPublish(bad...)
			s.wants(err, schema.ErrInvalid)
		}
		receipts := s.publish(envs...)
		if len(receipts) != n {
			t.Fatalf("%d receipts, want %d", len(receipts), n)
		}
		for i, r := range receipts {
			if r != (schema.Receipt{ID: envs[i].ID}) {
				t.Fatalf("receipt %d of %d: %+v", i, n, r)
			}
		}
		total += n
	}
	rows := s.waiting(schema.Jobs)
	if len(rows) != total {
		t.Fatalf("%d rows, want %d", len(rows), total)
	}
	for i, r := range rows {
		e, err := r.Envelope()
		s.must(err)
		if e.Metadata["n"] != fmt.Sprint(i) {
			t.Fatalf("row %d is message %s", i, e.Metadata["n"])
		}
	}

	// Cut off in the middle, nothing is there.
	ctx, cancel := context.WithCancel(s.ctx)
	err := s.Store.InTx(ctx, func(tx Tx) error {
		_, err := s.Store.Append(ctx, tx, []schema.Envelope{schema.NewEvent("a", nil)})
		s.must(err)
		cancel()
		_, err = s.Store.Append(ctx, tx, []schema.Envelope{schema.NewEvent("a", nil)})
		return err
	})
	s.wants(err, context.Canceled)
	s.wantWaiting(schema.Events)
}
