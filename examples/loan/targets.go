package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// client calls a server of the town.
type client struct {
	http *http.Client
	base string
}

func newClient(base string) *client {
	// The servers of the example are on this machine; the zero Network reaches public addresses only.
	return &client{outbound.Client(outbound.Network{AllowPrivate: true}, 10*time.Second), base}
}

// put asks for an action and returns the answer. The key makes a repeat harmless: the server gives the same answer
// again and does nothing.
func (c *client) put(ctx context.Context, path, key string, args any) (json.RawMessage, error) {
	body, err := json.Marshal(args)
	if err != nil {
		return nil, handlers.Permanent(fmt.Errorf("encode %s: %w", path, err))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, handlers.Permanent(fmt.Errorf("request %s: %w", path, err))
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", path, err)
	}
	return outbound.Read(res)
}

// reported is an action whose answer goes back to the saga that asked for it.
func reported[T any](a *handlers.Actions, t schema.JobType[T], call func(ctx context.Context, args T, key string) (json.RawMessage, error)) {
	handlers.OnJob(a, t, func(ctx context.Context, args T, key string) error {
		answer, err := call(ctx, args, key)
		if err != nil {
			return err
		}
		return handlers.Report(ctx, answer)
	})
}

// targets returns the systems that a loan talks to.
func (c *client) targets(p handlers.Policy) []handlers.Target {
	var catalogue, library, desk handlers.Actions
	reported(&catalogue, find, func(ctx context.Context, args Title, key string) (json.RawMessage, error) {
		return c.put(ctx, "/catalogue/find", key, args)
	})
	for _, t := range []schema.JobType[AtLibrary]{request, cancel, ship, sendBack} {
		reported(&library, t, func(ctx context.Context, args AtLibrary, key string) (json.RawMessage, error) {
			return c.put(ctx, "/library/"+args.Library+"/"+t.Action, key, args)
		})
	}
	for _, t := range []schema.JobType[AtDesk]{checkOut, checkIn} {
		reported(&desk, t, func(ctx context.Context, args AtDesk, key string) (json.RawMessage, error) {
			return c.put(ctx, "/desk/"+t.Action, key, args)
		})
	}
	reported(&desk, tellPatron, func(ctx context.Context, args Letter, key string) (json.RawMessage, error) {
		return c.put(ctx, "/desk/letter", key, args)
	})
	return []handlers.Target{
		{Name: "catalogue", Handler: &catalogue, Policy: p}, {Name: "library", Handler: &library, Policy: p}, {Name: "desk", Handler: &desk, Policy: p},
	}
}
