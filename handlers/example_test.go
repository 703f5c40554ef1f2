package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

type charge struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

// Charge is what those who publish the job and its handler share.
var Charge = schema.JobType[charge]{
	Target: "billing", Action: "charge",
	Retry: schema.CappedBackoff(time.Second, 2, time.Minute, 5), Timeout: 10 * time.Second,
	Needs: schema.OnSQLite, // never on a path that loses it
}

// OrderPlaced is what those who publish the event and its subscribers share.
var OrderPlaced = schema.EventType[charge]{Name: "order.placed"}

func ExampleOnJob() {
	var billing handlers.Actions
	handlers.OnJob(&billing, Charge, func(_ context.Context, args charge, key string) error {
		fmt.Printf("charge %d cents for %s, key %s\n", args.Cents, args.Order, key)
		return nil
	})
	target := handlers.Target{Name: "billing", Handler: &billing}
	fmt.Println(target.Validate())

	ctx := context.Background() // a bridge does this for each message
	fmt.Println(target.Handler.Handle(ctx, Charge.New(charge{"o-7", 1250}, schema.WithKey("o-7/charge"))))
	fmt.Println(target.Handler.Handle(ctx, schema.NewJob("billing", "refund", nil)))
	// Output:
	// <nil>
	// charge 1250 cents for o-7, key o-7/charge
	// <nil>
	// target "billing" has no action "refund"; it has charge
}

func ExampleOnEvent() {
	var stats handlers.Actions
	handlers.OnEvent(&stats, OrderPlaced, func(_ context.Context, args charge, _ string) error {
		fmt.Println("one more order, of", args.Cents, "cents")
		return nil
	})
	sub := handlers.Subscription{Name: "stats", Events: []string{"order.*"}, Handler: &stats, From: handlers.FromAll}
	fmt.Println(sub.Validate())
	fmt.Println(sub.Handler.Handle(context.Background(), OrderPlaced.New(charge{"o-7", 1250})))
	// Output:
	// <nil>
	// one more order, of 1250 cents
	// <nil>
}

// On is for actions that no type is declared for.
func ExampleOn() {
	var billing handlers.Actions
	handlers.On(&billing, "refund", func(_ context.Context, args charge, key string) error {
		fmt.Println("refund", args.Order)
		return nil
	})
	fmt.Println(billing.Handle(context.Background(), schema.NewJob("billing", "refund", map[string]string{"order": "o-7"})))
	// Output:
	// refund o-7
	// <nil>
}

// A handler without Actions gets the whole envelope.
func ExampleHandlerFunc() {
	archive := handlers.HandlerFunc(func(_ context.Context, env schema.Envelope) error {
		fmt.Println("store", env.Type(), string(env.Payload))
		return nil
	})
	fmt.Println(archive.Handle(context.Background(), Charge.New(charge{"o-7", 1250})))
	// Output:
	// store job.billing.charge {"order":"o-7","cents":1250}
	// <nil>
}

func ExampleArgsError() {
	type line struct{ Cents int }
	var billing handlers.Actions
	handlers.On(&billing, "invoice", func(context.Context, struct{ Lines []line }, string) error { return nil })
	err := billing.Handle(context.Background(), schema.NewJob("billing", "invoice", []byte(`{"lines": [{"cents": 1}, {"cents": "two"}]}`)))
	var bad *handlers.ArgsError
	fmt.Println(errors.As(err, &bad), schema.KindOf(err), bad.Path)
	fmt.Println(err)
	// Output:
	// true permanent lines[1].cents
	// args of billing/invoice: field "lines[1].cents": want int, found string
}

func ExampleTarget_Validate() {
	var mail handlers.Actions
	handlers.OnJob(&mail, Charge, func(context.Context, charge, string) error { return nil })
	fmt.Println(handlers.Target{Name: "mail", Handler: &mail, Policy: handlers.Policy{Timeout: -1}}.Validate())
	// Output:
	// target "mail": policy: timeout is -1ns, must not be negative
	// target "mail": action "charge": its job type is for target "billing"
}

// fate shows what becomes of a message whose second run ended with err.
func fate(err error) {
	policy := schema.CappedBackoff(time.Second, 2, time.Minute, 5)
	d := handlers.Decide(policy, 2, "id", err)
	fmt.Printf("%v, wait %v, cause %q\n", d.Verdict, d.Wait, d.Cause)
}

func ExamplePermanent() {
	err := errors.New("the member does not exist")
	fate(err) // by the policy
	fate(fmt.Errorf("charge: %w", handlers.Permanent(err)))
	// Output:
	// retry, wait 2s, cause ""
	// dead, wait 0s, cause "permanent"
}

func ExampleRetryAfter() {
	fate(handlers.RetryAfter(errors.New("answered 429"), 90*time.Second))
	// Output: retry, wait 1m30s, cause ""
}

func ExampleSnooze() {
	fate(handlers.Snooze(errors.New("the report is still being made"), 10*time.Minute))
	// Output: snooze, wait 10m0s, cause ""
}

func ExampleCancel() {
	fate(handlers.Cancel(errors.New("the order was withdrawn")))
	// Output: cancel, wait 0s, cause "cancelled"
}

func ExampleGone() {
	fate(handlers.Gone(errors.New("answered 410 Gone"))) // unless the target is disabled for it
	// Output: dead, wait 0s, cause "permanent"
}

func ExampleCallFrom() {
	remind := func(ctx context.Context) error {
		call, _ := handlers.CallFrom(ctx)
		fmt.Printf("attempt %d of %d, key %s, for %s\n", call.Attempt, call.MaxAttempts, call.Key, call.Tenant)
		return nil
	}
	// The router makes such a context; in tests of handlers you do.
	ctx := handlers.WithCall(context.Background(), handlers.Call{Handler: "mail", Key: "o-7/reminder", Attempt: 2, MaxAttempts: 12, Tenant: "shop-1"})
	fmt.Println(remind(ctx), handlers.Attempt(ctx), handlers.Key(ctx))
	// Output:
	// attempt 2 of 12, key o-7/reminder, for shop-1
	// <nil> 2 o-7/reminder
}

// What a handler publishes with an outbox of its own inherits where it comes from.
func ExampleInherit() {
	ctx := handlers.WithCall(context.Background(), handlers.Call{Tenant: "shop-1", RequestID: "r-9", Actor: "ada"})
	env := Charge.New(charge{"o-7", 1250}, handlers.Inherit(ctx))
	fmt.Println(env.Tenant, env.RequestID, env.Actor)
	// Output: shop-1 r-9 ada
}

// A job that was published with schema.WithReplyTo reports what the other side answered.
func ExampleReport() {
	type booked struct {
		Parcel string `json:"parcel"`
	}
	var parcels handlers.Actions
	handlers.On(&parcels, "book", func(ctx context.Context, args struct{ Order string }, key string) error {
		number := "P-1138" // from the carrier, which was given the key
		return handlers.Report(ctx, booked{number})
	})
	ctx := handlers.WithCall(context.Background(), handlers.Call{Handler: "parcels"})
	job := schema.NewJob("parcels", "book", map[string]string{"order": "o-7"}, schema.WithReplyTo("orders", "parcel-booked", "o-7"))
	fmt.Println(parcels.Handle(ctx, job))
	fmt.Printf("%s\n", handlers.ReportOf(ctx)) // goes into the schema.Outcome that orders/parcel-booked gets
	// Output:
	// <nil>
	// {"parcel":"P-1138"}
}

func ExampleHooks() {
	type spanKey struct{}
	hooks := handlers.HookList{{
		Start: func(ctx context.Context, env schema.Envelope) context.Context {
			return context.WithValue(ctx, spanKey{}, "span of "+env.Type())
		},
		End: func(ctx context.Context, _ schema.Envelope, err error, _ time.Duration) {
			fmt.Println(ctx.Value(spanKey{}), "ends with", err)
		},
		Settled: func(_ context.Context, env schema.Envelope, d handlers.Decision) {
			fmt.Println(env.IdempotencyKey(), d.Verdict, d.Wait)
		},
	}}
	// What router.Config.Hooks or inprocess.Config.Hooks do with them:
	env := Charge.New(charge{"o-7", 1250}, schema.WithKey("o-7/charge"))
	run := hooks.Start(context.Background(), slog.Default(), env)
	err := errors.New("the bank is closed")
	run.End(err, time.Second)
	run.Settled(handlers.Decide(Charge.Retry, 1, env.ID, err))
	// Output:
	// span of job.billing.charge ends with the bank is closed
	// o-7/charge retry 1s
}

func ExamplePolicy() {
	policy := handlers.Policy{
		Retry:       schema.CappedBackoff(time.Second, 2, 10*time.Minute, 8),
		Timeout:     20 * time.Second,
		Concurrency: 4,
		Rate:        5, // a second, over all processes
		Ordered:     true,
		Breaker:     handlers.Breaker{Failures: 10, Cooldown: time.Minute, DisableAfter: 5 * 24 * time.Hour},
	}
	fmt.Println(policy.Validate())
	fmt.Println(handlers.Policy{Rate: -1, Breaker: handlers.Breaker{Failures: -1}}.Validate())
	// Output:
	// <nil>
	// rate is -1, must not be negative
	// breaker.failures is -1, must not be negative
}
