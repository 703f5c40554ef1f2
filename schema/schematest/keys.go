package schematest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

func testKeys[Tx any](t *testing.T, open Opener[Tx]) {
	t.Run("the same key and content", func(t *testing.T) {
		s := start(t, open)
		first := schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"))
		second := schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"))
		wantReceipts(t, s.publish(first), schema.Receipt{ID: first.ID})
		wantReceipts(t, s.publish(second), schema.Receipt{ID: first.ID, Existing: true})
		wantReceipts(t, s.publish(first), schema.Receipt{ID: first.ID, Existing: true})
		s.wantWaiting(schema.Jobs, first.ID)
	})

	t.Run("within one call and one transaction", func(t *testing.T) {
		s := start(t, open)
		first := schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"))
		second := schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"))
		none := schema.NewJob("crm", "create", []byte("x"))
		third := schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"))
		s.must(s.Store.InTx(s.ctx, func(tx Tx) error {
			receipts, err := s.Store.Append(s.ctx, tx, []schema.Envelope{first, none, second})
			s.must(err)
			wantReceipts(t, receipts, schema.Receipt{ID: first.ID}, schema.Receipt{ID: none.ID}, schema.Receipt{ID: first.ID, Existing: true})
			receipts, err = s.Store.Append(s.ctx, tx, []schema.Envelope{third})
			s.must(err)
			wantReceipts(t, receipts, schema.Receipt{ID: first.ID, Existing: true})
			return nil
		}))
		s.wantWaiting(schema.Jobs, first.ID, none.ID)
	})

	t.Run("other content", func(t *testing.T) {
		s := start(t, open)
		first := schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"))
		s.publish(first)
		for name, other := range map[string]schema.Envelope{
			"payload":      schema.NewJob("crm", "create", []byte("y"), schema.WithKey("k")),
			"action":       schema.NewJob("crm", "update", []byte("x"), schema.WithKey("k")),
			"content type": schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"), schema.WithContentType("text/plain")),
		} {
			free := schema.NewJob("crm", "create", nil, schema.WithKey("free"))
			_, err := s.tryPublish(schema.NewEvent("paid", nil), free, other, schema.NewJob("crm", "z", nil, schema.WithDueAt(time.Now().Add(time.Hour))))
			s.wants(err, schema.ErrKeyReused)
			if schema.KindOf(err) != schema.Permanent || !strings.Contains(err.Error(), other.ID) || !strings.Contains(err.Error(), first.ID) {
				t.Errorf("%s: error %v, want a permanent one that names both messages", name, err)
			}
		}
		// Nothing of the refused calls was written, although they were committed: not even a key.
		s.wantWaiting(schema.Jobs, first.ID)
		s.wantWaiting(schema.Events)
		later, err := s.Store.ListScheduled(s.ctx, schema.RowFilter{})
		s.must(err)
		if len(later) != 0 {
			t.Errorf("%d scheduled rows", len(later))
		}
		free := schema.NewJob("crm", "create", []byte("new"), schema.WithKey("free"))
		wantReceipts(t, s.publish(free), schema.Receipt{ID: free.ID})
	})

	t.Run("other content at the end of a large call", func(t *testing.T) {
		s := start(t, open)
		first := schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"))
		s.publish(first)
		var envs []schema.Envelope
		for range 20 { // more than one statement takes
			envs = append(envs, schema.NewJob("crm", "create", make([]byte, 900<<10)))
		}
		_, err := s.tryPublish(append(envs, schema.NewJob("crm", "create", []byte("y"), schema.WithKey("k")))...)
		s.wants(err, schema.ErrKeyReused)
		s.wantWaiting(schema.Jobs, first.ID)
	})

	t.Run("other content within one call", func(t *testing.T) {
		s := start(t, open)
		_, err := s.tryPublish(
			schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k")),
			schema.NewJob("crm", "create", []byte("y"), schema.WithKey("k")))
		s.wants(err, schema.ErrKeyReused)
		s.wantWaiting(schema.Jobs)
		e := schema.NewJob("crm", "create", []byte("z"), schema.WithKey("k"))
		wantReceipts(t, s.publish(e), schema.Receipt{ID: e.ID})
	})

	t.Run("a rolled back key is free", func(t *testing.T) {
		s := start(t, open)
		err := s.Store.InTx(s.ctx, func(tx Tx) error {
			_, err := s.Store.Append(s.ctx, tx, []schema.Envelope{schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"))})
			s.must(err)
			return errRollback
		})
		s.wants(err, errRollback)
		e := schema.NewJob("crm", "create", []byte("y"), schema.WithKey("k"))
		wantReceipts(t, s.publish(e), schema.Receipt{ID: e.ID})
	})

	t.Run("kept for a time", func(t *testing.T) {
		s := start(t, open)
		first := schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"))
		s.publish(first)
		s.age(29 * 24 * time.Hour)
		s.tend()
		wantReceipts(t, s.publish(schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"))), schema.Receipt{ID: first.ID, Existing: true})
		s.age(2 * 24 * time.Hour)
		s.tend()
		e := schema.NewJob("crm", "create", []byte("y"), schema.WithKey("k"))
		wantReceipts(t, s.publish(e), schema.Receipt{ID: e.ID})
	})

	t.Run("a replay takes no key", func(t *testing.T) {
		s := start(t, open)
		first := schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"))
		s.publish(first)
		replay := schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"))
		replay.Replay = &schema.Replay{Handler: "crm", Of: first.ID, Number: 1}
		wantReceipts(t, s.publish(replay), schema.Receipt{ID: replay.ID})
		s.wantWaiting(schema.Jobs, first.ID, replay.ID)
	})

	t.Run("many keys in one call", func(t *testing.T) {
		s := start(t, open)
		make500 := func() []schema.Envelope {
			envs := make([]schema.Envelope, 500)
			for i := range envs {
				envs[i] = schema.NewJob("crm", "create", []byte{byte(i)}, schema.WithKey(string(rune('a'+i))))
			}
			return envs
		}
		first := make500()
		s.publish(first[:250]...)
		again := make500()
		for i, r := range s.publish(again...) {
			want := schema.Receipt{ID: again[i].ID}
			if i < 250 {
				want = schema.Receipt{ID: first[i].ID, Existing: true}
			}
			if r != want {
				t.Fatalf("receipt %d: %+v, want %+v", i, r, want)
			}
		}
		s.wantWaiting(schema.Jobs, append(idsOf(first[:250]), idsOf(again[250:])...)...)
	})
}

func wantReceipts(t *testing.T, got []schema.Receipt, want ...schema.Receipt) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d receipts, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("receipt %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

// C05 shows how wide an idempotency key reaches, and what happens when many use one at once.
func C05[Tx any](t *testing.T, open Opener[Tx]) {
	s := start(t, open)
	a := schema.NewJob("a", "create", []byte("x"), schema.WithKey("42"))
	b := schema.NewJob("b", "create", []byte("x"), schema.WithKey("42"))
	tenant := schema.NewJob("a", "create", []byte("x"), schema.WithKey("42"), schema.WithTenant("t"))
	event := schema.NewEvent("a", []byte("x"), schema.WithKey("42"))
	for _, e := range []schema.Envelope{a, b, tenant, event} {
		wantReceipts(t, s.publish(e), schema.Receipt{ID: e.ID})
	}
	_, err := s.tryPublish(schema.NewJob("a", "create", []byte("y"), schema.WithKey("42")))
	s.wants(err, schema.ErrKeyReused)
	s.wantWaiting(schema.Jobs, a.ID, b.ID, tenant.ID)
	s.wantWaiting(schema.Events, event.ID)

	// 20 at once: one job, 19 answers with its id.
	type answer struct {
		receipt schema.Receipt
		id      string
		err     error
	}
	answers := make(chan answer)
	for range 20 {
		go func() {
			e := schema.NewJob("c", "create", []byte("x"), schema.WithKey("42"))
			got, err := s.tryPublishAnyway(e)
			for errors.Is(err, schema.ErrRetryTransaction) {
				got, err = s.tryPublishAnyway(e)
			}
			if err != nil {
				answers <- answer{err: err}
				return
			}
			answers <- answer{got[0], e.ID, nil}
		}()
	}
	given := make(map[string]int)
	winners := 0
	for range 20 {
		got := <-answers
		if got.err != nil {
			t.Errorf("publish: %v", got.err)
			continue
		}
		given[got.receipt.ID]++
		if !got.receipt.Existing {
			winners++
			if got.receipt.ID != got.id {
				t.Errorf("the winner %s got the id %s", got.id, got.receipt.ID)
			}
		}
	}
	if winners != 1 || len(given) != 1 {
		t.Errorf("%d winners and the ids %v, want one of each", winners, given)
	}

	// Without a key, the same content twice is two messages.
	d1, d2 := schema.NewJob("d", "create", []byte("x")), schema.NewJob("d", "create", []byte("x"))
	s.publish(d1)
	s.publish(d2)
	rows, err := s.Store.ListOutbox(s.ctx, schema.RowFilter{Group: "d"})
	s.must(err)
	if len(rows) != 2 {
		t.Errorf("%d jobs without a key, want 2", len(rows))
	}
	rows, err = s.Store.ListOutbox(s.ctx, schema.RowFilter{Group: "c"})
	s.must(err)
	if len(rows) != 1 {
		t.Errorf("%d jobs of 20 with one key, want 1", len(rows))
	}
}

// C06 shows the limit of a key and that every byte of it counts.
func C06[Tx any](t *testing.T, open Opener[Tx]) {
	s := start(t, open)
	random := strings.Repeat("0123456789abcdef", 6250)
	for name, key := range map[string]string{
		"201": random[:201], "255": random[:255], "256": random[:256], "2705": random[:2705], "100000": random[:100000],
		"NUL": "a\x00b", "invalid": "a\xffb",
	} {
		for option, with := range map[string]schema.Option{"key": schema.WithKey(key), "ordering_key": schema.WithOrderingKey(key)} {
			_, err := s.tryPublish(schema.NewJob("crm", "create", nil, with))
			var invalid *schema.ValidationError
			if !errors.As(err, &invalid) || invalid.Faults[0].Field != option {
				t.Errorf("%s %s: error %v, want a fault of the field", option, name, err)
				continue
			}
			if fault := invalid.Faults[0]; len(key) > 200 && (fault.Length != len(key) || fault.Limit != schema.MaxKeyChars) {
				t.Errorf("%s %s: fault %+v, want its length and the limit of %d", option, name, fault, schema.MaxKeyChars)
			}
		}
	}
	s.wantWaiting(schema.Jobs)

	// All of these are different keys. An empty one is none.
	base := strings.Repeat("k", 199)
	keys := []string{"", "a", "A", " a", "a ", "a\n", "ä", "a\u0308", base + "1", base + "2", strings.Repeat("𝄞", 200)}
	var want []string
	for _, k := range keys {
		e := schema.NewJob("crm", "create", []byte(k), schema.WithKey(k))
		wantReceipts(t, s.publish(e), schema.Receipt{ID: e.ID})
		want = append(want, e.ID)
	}
	s.wantWaiting(schema.Jobs, want...)
	for i, k := range keys[1:] {
		wantReceipts(t, s.publish(schema.NewJob("crm", "create", []byte(k), schema.WithKey(k))), schema.Receipt{ID: want[i+1], Existing: true})
	}
	for i, r := range s.waiting(schema.Jobs) {
		e, err := r.Envelope()
		s.must(err)
		if e.Key != keys[i] {
			t.Errorf("key %q came back as %q", keys[i], e.Key)
		}
	}
}
