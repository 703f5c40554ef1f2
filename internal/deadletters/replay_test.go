package deadletters

import (
	"testing"

	"github.com/millbridge/millbridge/schema"
)

// Whoever waits for a report of the job still gets it when the job was given up and put back.
func TestReplayOf_keeps_where_the_outcome_goes(t *testing.T) {
	t.Parallel()
	subjects := schema.Subjects{}
	env := schema.NewJob("crm", "create", []byte("x"), schema.WithReplyTo("loan", "asked.reply", "loan 7"), schema.WithKey("k"))
	want := *env.ReplyTo
	for replay := range 3 {
		header, err := schema.ParseHeader(schema.EncodeHeader(env))
		if err != nil {
			t.Fatal(err)
		}
		died := schema.DeadLetter{
			Handler: "crm", ID: "died", Replay: replay, Cause: schema.CauseExhausted, Stream: schema.Jobs, Subject: subjects.Full(env.Subject()),
			Header: header, Payload: env.Payload,
		}
		kept, body := died.Encode()
		letter, err := schema.DecodeDeadLetter("dead.jobs.crm.died."+string(rune('0'+replay)), kept, body)
		if err != nil {
			t.Fatal(err)
		}
		again, err := (&Operator{Subjects: subjects}).ReplayOf(Letter{DeadLetter: letter})
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Validate(0); err != nil {
			t.Fatal(err)
		}
		if env, err = schema.NewRow(again).Envelope(); err != nil {
			t.Fatal(err)
		}
		if env.ReplyTo == nil || *env.ReplyTo != want || env.Replay.Number != replay+1 || env.IdempotencyKey() != "k" {
			t.Fatalf("replay %d is %+v with a reply to %+v", replay+1, env, env.ReplyTo)
		}
	}
}
