package cli

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/schema"
)

func TestSaga_rendering(t *testing.T) {
	t.Parallel()
	a, out := testApp()
	at := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	waits := ops.Saga{
		Saga: "loan", ID: "4711", Status: schema.SagaWaiting, Step: "approve", Waits: []string{"report of library.request, job j-1", "signal go"},
		State: json.RawMessage(`{"title":"Emma"}`), Events: 2, CreatedAt: at, UpdatedAt: at,
	}
	stuck := ops.Saga{Saga: "loan", ID: "4\x1b", Tenant: "acme", Status: schema.SagaStuck, Step: "approve", Reason: "lost", Events: 9, UpdatedAt: at.Add(time.Minute)}
	if err := a.printSagas([]ops.Saga{waits, stuck}, 2); err != nil {
		t.Fatal(err)
	}
	a.printSaga(ops.FoundSaga{
		Saga: waits,
		Ledger: []ops.SagaEvent{
			{N: 1, At: at, Kind: "started"},
			{N: 2, At: at, Step: "approve", Kind: "waiting", Rationale: "ask\x1b", Intents: json.RawMessage(
				`[{"id":"j-1","target":"library","idempotency_key":"approve_1","payload":{"action":"request","args":{}},"call":true},
				  {"id":"j-2","target":"desk","idempotency_key":"approve_2","payload":{"action":"letter","args":null},"delay":"1h0m0s"}]`)},
		},
		Letters: []ops.PoisonItem{{ID: "m-1", Name: "report", Cause: "exhausted", Error: "error: boom"}},
		Unknown: []string{"dead letters: only a part"},
	})
	golden(t, "saga", out.String())
}

func TestSagaID(t *testing.T) {
	t.Parallel()
	if name, id, err := sagaID("loan/a/b"); name != "loan" || id != "a/b" || err != nil {
		t.Errorf("%q, %q, %v", name, id, err)
	}
	for _, bad := range []string{"", "loan", "/x", "loan/"} {
		if _, _, err := sagaID(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
