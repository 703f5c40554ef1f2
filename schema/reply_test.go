package schema_test

import (
	"encoding/json"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

func TestEnvelope_reports_to_whoever_asked(t *testing.T) {
	t.Parallel()
	job := schema.NewJob("bank", "charge", nil, schema.WithID("m-2"), schema.WithKey("o-7"), schema.WithTenant("t"), schema.WithActor("a"),
		schema.WithRequestID("r"), schema.WithTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x=y"))
	if _, asked := job.Report(schema.Outcome{OK: true}); asked {
		t.Error("nobody has asked")
	}
	schema.WithReplyTo("shop", "paid", "ref")(&job)
	job.Replay = &schema.Replay{Handler: "bank", Of: "m-1", Number: 2}
	report, asked := job.Report(schema.Outcome{Cause: schema.CausePermanent, Reason: "no"})
	if !asked || report.Target != "shop" || report.Name != "paid" || report.Key != "m-1/2/report" || report.Tenant != "t" ||
		report.Actor != "a" || report.RequestID != "r" || report.TraceParent != job.TraceParent || report.TraceState != "x=y" || report.ReplyTo != nil {
		t.Errorf("report is %+v", report)
	}
	if err := report.Validate(0); err != nil {
		t.Error(err)
	}
	var got schema.Outcome
	want := schema.Outcome{
		Ref: "ref", ID: "m-1", Key: "o-7", Target: "bank", Action: "charge", Replay: 2, Cause: schema.CausePermanent, Reason: "no",
	}
	if err := json.Unmarshal(report.Payload, &got); err != nil || string(mustJSON(t, got)) != string(mustJSON(t, want)) {
		t.Errorf("outcome is %+v, want %+v; %v", got, want, err)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
