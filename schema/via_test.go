package schema_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

func TestPassOn_notices_loops(t *testing.T) {
	t.Parallel()
	env := schema.NewEvent("order.placed", nil)
	for _, origin := range []string{"a", "b", "c"} {
		var err error
		if env, err = env.PassOn(origin); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(env.Via, []string{"a", "b", "c"}) || !env.HasPassed("b") || env.HasPassed("d") {
		t.Errorf("via %q", env.Via)
	}
	for _, origin := range env.Via {
		if _, err := env.PassOn(origin); !errors.Is(err, schema.ErrLoop) || schema.KindOf(err) != schema.Permanent {
			t.Errorf("passed on by %s again: %v", origin, err)
		}
	}
	for len(env.Via) < schema.MaxVia {
		env, _ = env.PassOn("hop-" + strings.Repeat("x", len(env.Via)))
	}
	if err := env.Validate(0); err != nil {
		t.Error(err)
	}
	if _, err := env.PassOn("one-more"); !errors.Is(err, schema.ErrLoop) || schema.KindOf(err) != schema.Permanent {
		t.Errorf("passed on without end: %v", err)
	}
}

func TestPassOn_leaves_the_message_alone(t *testing.T) {
	t.Parallel()
	replay := schema.NewJob("crm", "book", nil, schema.WithID("new"), schema.WithReplyTo("shop", "done", "7"))
	replay.Via = append(make([]string, 0, 8), "a")
	replay.Replay = &schema.Replay{Handler: "crm", Of: "old", Number: 2}
	one, err := replay.PassOn("b")
	other, err2 := replay.PassOn("c")
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if one.ID != "old" || one.Replay != nil || one.IdempotencyKey() != "old" || one.ReplyTo != nil || replay.ReplyTo == nil {
		t.Errorf("passed on %+v of %+v", one, replay)
	}
	if !slices.Equal(one.Via, []string{"a", "b"}) || !slices.Equal(other.Via, []string{"a", "c"}) {
		t.Errorf("two that are passed on share a list: %q and %q", one.Via, other.Via)
	}
}

func TestDecode_refuses_a_list_of_bridges_that_it_cannot_read(t *testing.T) {
	t.Parallel()
	for _, via := range []string{"A", "a  b", "a,b", " a", strings.TrimSpace(strings.Repeat("a ", schema.MaxVia+1))} {
		_, err := schema.Decode("events.internal.x", map[string][]string{schema.HeaderID: {"1"}, schema.HeaderVia: {via}}, nil)
		if !errors.Is(err, schema.ErrUndecodable) {
			t.Errorf("%q: %v", via, err)
		}
	}
}
