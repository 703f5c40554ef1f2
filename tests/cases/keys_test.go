package cases

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

func TestC05_keys_through_to_the_handlers(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		a, b, c, d := &recorder{}, &recorder{}, &recorder{}, &recorder{}
		bridge := w.open(t, handlers.Target{Name: "a", Handler: a}, handlers.Target{Name: "b", Handler: b}, handlers.Target{Name: "c", Handler: c}, handlers.Target{Name: "d", Handler: d})
		key := schema.WithKey("42")

		toA, toB := schema.NewJob("a", "do", "x", key), schema.NewJob("b", "do", "x", key)
		otherTenant := schema.NewJob("a", "do", "x", key, schema.WithTenant("t"))
		w.publish(t, toA)
		w.publish(t, toB)
		w.publish(t, otherTenant)

		err := w.inTx(func(u unit) error {
			_, err := u.publish(schema.NewJob("a", "do", "another body", key))
			return err
		})
		if !errors.Is(err, schema.ErrKeyReused) || !strings.Contains(err.Error(), "different content") {
			t.Errorf("another body for the key: %v", err)
		}

		// 20 at once.
		var mu sync.Mutex
		var wg sync.WaitGroup
		answers, fresh := make(map[string]int), 0
		for range 20 {
			wg.Go(func() {
				env := schema.NewJob("c", "do", "x", key)
				var receipts []schema.Receipt
				once := func() error {
					return w.inTx(func(u unit) (err error) {
						receipts, err = u.publish(env)
						return err
					})
				}
				err := once()
				for errors.Is(err, schema.ErrRetryTransaction) { // the documented answer to a busy database
					err = once()
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil || len(receipts) != 1 {
					t.Errorf("publish: %v, %v", receipts, err)
					return
				}
				answers[receipts[0].ID]++
				if !receipts[0].Existing {
					fresh++
				}
			})
		}
		wg.Wait()
		if fresh != 1 || len(answers) != 1 {
			t.Errorf("%d first uses, answers %v", fresh, answers)
		}

		twins := []schema.Envelope{schema.NewJob("d", "do", "same"), schema.NewJob("d", "do", "same")}
		w.publish(t, twins[0])
		w.publish(t, twins[1])

		w.drain(t, bridge)
		for name, tt := range map[string]struct {
			got  []string
			want []string
		}{
			"a": {a.ids(), []string{toA.ID, otherTenant.ID}},
			"b": {b.ids(), []string{toB.ID}},
			"c": {c.ids(), sorted(answers)},
			"d": {d.ids(), []string{twins[0].ID, twins[1].ID}},
		} {
			slices.Sort(tt.want)
			if !slices.Equal(tt.got, tt.want) {
				t.Errorf("target %s got %v, want %v", name, tt.got, tt.want)
			}
		}
		if letters := w.dead(t); len(letters) != 0 {
			t.Errorf("dead letters %v", letters)
		}
	})
}

func TestC06_keys_through_to_the_handlers(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		got := make(map[string]int)
		var mu sync.Mutex
		bridge := w.open(t, handlers.Target{Name: "a", Handler: handlers.HandlerFunc(func(ctx context.Context, env schema.Envelope) error {
			mu.Lock()
			defer mu.Unlock()
			got[handlers.Key(ctx)]++
			return nil
		})})
		random := strings.Repeat("7f3a9c", 20_000) // the limit does not depend on how well a key compresses
		for key, wanted := range map[string]string{
			random[:201]:                "length 201, limit 200",
			random[:255]:                "length 255, limit 200",
			random[:256]:                "length 256, limit 200",
			random[:2705]:               "length 2705, limit 200",
			random[:100_000]:            "length 100000, limit 200",
			random[:255] + "x":          "length 256, limit 200",
			strings.Repeat("é", 201):    "length 201, limit 200",
			"a\x00b":                    "key: has a NUL byte",
			"a\xff":                     "key: is not valid UTF-8",
			strings.Repeat("\xff", 300): "key: is not valid UTF-8",
		} {
			err := w.refused(t, schema.NewJob("a", "do", nil, schema.WithKey(key)))
			if !errors.Is(err, schema.ErrInvalid) || !strings.Contains(err.Error(), wanted) {
				t.Errorf("key %s: %v, want %q", short(key), err, wanted)
			}
		}
		keys := []string{
			"1", " 1", "1 ", "1\n", "a", "A", "é", "e\u0301", random[:199] + "x", random[:199] + "y", strings.Repeat("😀", 200), "\t", "a/b:c.>", "%31",
		}
		want := make(map[string]int)
		for _, key := range keys {
			w.publish(t, schema.NewJob("a", "do", nil, schema.WithKey(key)))
			if r := w.publish(t, schema.NewJob("a", "do", nil, schema.WithKey(key))); !r[0].Existing {
				t.Errorf("key %s twice is two messages", short(key))
			}
			want[key] = 1
		}
		none := schema.NewJob("a", "do", nil, schema.WithKey("")) // an empty key is none: the id stands for it
		w.publish(t, none)
		want[none.ID] = 1
		w.drain(t, bridge)
		mu.Lock()
		defer mu.Unlock()
		for _, key := range sorted(want) {
			if got[key] != 1 {
				t.Errorf("key %s was handled %d times", short(key), got[key])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d keys arrived, want %d", len(got), len(want))
		}
	})
}
