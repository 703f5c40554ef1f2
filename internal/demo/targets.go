package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/schema"
)

// quick are policies for people who watch; real targets take minutes between attempts.
func quick(attempts int) handlers.Policy {
	return handlers.Policy{Retry: schema.RetryPolicy{MaxAttempts: attempts, Base: 120 * time.Millisecond, Factor: 2, Jitter: 0.2}}
}

// billing charges the customer. It runs in the transaction that marks the job as done: the payment, the mark and the
// event that tells of it commit together, so that each happens exactly once.
func billing(tell teller) handlers.Target {
	var actions handlers.Actions
	handlers.On(&actions, "charge", func(ctx context.Context, o Order, _ string) error {
		tx, err := handlers.Tx[*sql.Tx](ctx)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO shop_payments VALUES (?, ?)", o.Number, o.Cents); err != nil {
			return err
		}
		call, _ := handlers.CallFrom(ctx)
		if _, err := call.Unit.Append(ctx, []schema.Envelope{schema.NewEvent("invoice.paid", o, schema.WithPublic())}); err != nil {
			return err
		}
		tell(Done, "billing", o.Number, "charged "+euros(o.Cents)+" EUR")
		return nil
	})
	policy := quick(5)
	policy.Mode = handlers.ModeTx
	return handlers.Target{Name: "billing", Handler: &actions, Policy: policy}
}

// mail is flaky: for some orders the first one or two attempts fail.
func mail(tell teller, failures func(order int) int) handlers.Target {
	var actions handlers.Actions
	handlers.On(&actions, "receipt.send", func(ctx context.Context, o Order, _ string) error {
		if attempt := handlers.Attempt(ctx); attempt <= failures(o.Number) {
			tell(Again, "mail", o.Number, fmt.Sprintf("attempt %d failed: the mail server is busy", attempt))
			return errors.New("the mail server is busy")
		} else if attempt > 1 {
			tell(Done, "mail", o.Number, fmt.Sprintf("receipt sent at attempt %d", attempt))
		} else {
			tell(Done, "mail", o.Number, "receipt sent")
		}
		return nil
	})
	return handlers.Target{Name: "mail", Handler: &actions, Policy: quick(5)}
}

// archive is broken until somebody repairs it: its jobs use up their attempts and end in the poison queue.
type archive struct {
	tell     teller
	repaired atomic.Bool
}

func (a *archive) target() handlers.Target {
	var actions handlers.Actions
	handlers.On(&actions, "store", func(ctx context.Context, o Order, _ string) error {
		call, _ := handlers.CallFrom(ctx)
		switch {
		case a.repaired.Load():
			a.tell(Done, "archive", o.Number, "stored")
			return nil
		case call.Attempt < call.MaxAttempts:
			a.tell(Again, "archive", o.Number, fmt.Sprintf("attempt %d failed: the disk is full", call.Attempt))
		default:
			a.tell(Dead, "archive", o.Number, fmt.Sprintf("attempt %d failed too: given up, into the poison queue", call.Attempt))
		}
		return errors.New("the disk is full")
	})
	return handlers.Target{Name: "archive", Handler: &actions, Policy: quick(3)}
}

// reports subscribes to events, from the first one on.
func reports(seen *atomic.Int64) handlers.Subscription {
	return handlers.Subscription{
		Name: "reports", Events: []string{"order.placed", "invoice.paid"}, From: handlers.FromAll, Policy: quick(5),
		Handler: handlers.HandlerFunc(func(context.Context, schema.Envelope) error {
			seen.Add(1)
			return nil
		}),
	}
}

// shippingSecret signs the requests to the shipping company.
const shippingSecret = "whsec_ZGVtbyBzZWNyZXQgb2YgdGhlIHNoaXBwaW5n"

// shippingCompany is a real HTTP server on this machine, somebody else's system: it accepts signed requests only and
// takes a repeated one for what it is.
type shippingCompany struct {
	tell   teller
	server *http.Server
	url    string

	mu      sync.Mutex
	parcels map[string]bool // by idempotency key
	forged  int
}

func openShippingCompany(ctx context.Context, tell teller) (*shippingCompany, error) {
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the shipping company: %w", err)
	}
	c := &shippingCompany{tell: tell, url: "http://" + listener.Addr().String() + "/parcels", parcels: map[string]bool{}}
	c.server = &http.Server{Handler: c, ReadHeaderTimeout: 5 * time.Second}
	go c.server.Serve(listener) //nolint:errcheck // it always returns an error, after Close
	return c, nil
}

// ServeHTTP books a parcel.
func (c *shippingCompany) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil || webhook.Verify(shippingSecret, r.Header, body, 0) != nil {
		c.mu.Lock()
		c.forged++
		c.mu.Unlock()
		http.Error(w, "not signed by the shop", http.StatusUnauthorized)
		return
	}
	c.mu.Lock()
	c.parcels[r.Header.Get("Idempotency-Key")] = true
	c.mu.Unlock()
	c.tell(Done, "shipping", orderIn(body), "parcel booked over HTTP, signature checked")
	w.WriteHeader(http.StatusNoContent)
}

func (c *shippingCompany) booked() (parcels, forged int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.parcels), c.forged
}

// shipping reaches the company as a webhook. Loopback addresses are refused unless they are allowed explicitly.
func shipping(url string) (handlers.Target, error) {
	post, err := webhook.New(webhook.Config{
		URL: configgroup.NewSecret(url), Secrets: []configgroup.Secret{configgroup.NewSecret(shippingSecret)}, Timeout: 5 * time.Second,
		Settings: outbound.Settings{AllowPrivate: true},
	})
	return handlers.Target{Name: "shipping", Handler: post, Policy: quick(5)}, err
}
