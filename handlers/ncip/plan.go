package ncip

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// plan is what an action does: it looks whether it was done already, and sends if not.
type plan struct {
	looks []look
	send  message
	read  func(*node) any
	// done are the types of problems that say that what was asked for is so already; then answer is reported.
	done   []string
	answer any
}

// look is a question whose answer may show that an action was done.
type look struct {
	message
	// find returns what to report if the answer shows it.
	find func(*node) (answer any, found bool)
	// absent are the types of problems that only mean that nothing was found.
	absent []string
}

// run carries out a plan. After a problem it looks once more: another run of the same message may have been faster, and
// a responder may have its own words for that.
func (t *target) run(ctx context.Context, p plan) error {
	answer, found, err := t.look(ctx, p.looks)
	if err != nil || found {
		return report(ctx, answer, err)
	}
	data, err := t.exchange(ctx, p.send)
	if err == nil {
		return report(ctx, p.read(data), nil)
	}
	var problems *ProblemError
	if !errors.As(err, &problems) || schema.KindOf(err) != schema.Permanent {
		return err
	}
	if problems.Has(p.done...) {
		return report(ctx, p.answer, nil)
	}
	answer, found, lookErr := t.look(ctx, p.looks)
	switch {
	case found:
		return report(ctx, answer, nil)
	case lookErr != nil && schema.KindOf(lookErr) != schema.Permanent:
		return fmt.Errorf("after %s: %w", problems, lookErr) // a problem that may mean success is not final
	}
	return err
}

func report(ctx context.Context, answer any, err error) error {
	if err != nil {
		return err
	}
	return handlers.Report(ctx, answer)
}

// look asks one question after the other until one shows that the action was done.
func (t *target) look(ctx context.Context, looks []look) (answer any, found bool, err error) {
	for _, l := range looks {
		data, err := t.exchange(ctx, l.message)
		var problems *ProblemError
		switch {
		case errors.As(err, &problems) && problems.Has(l.absent...):
			continue
		case problems != nil && problems.Has("Unsupported Service", "Unknown Service"):
			return nil, false, fmt.Errorf("look before sending: %w; if the responder does not have it, leave it out of look_ups", err)
		case err != nil:
			return nil, false, fmt.Errorf("look before sending: %w", err)
		}
		if answer, found = l.find(data); found {
			return answer, true, nil
		}
	}
	return nil, false, nil
}

// show previews a plan.
func (t *target) show(p plan, into *[]handlers.Preview) error {
	when := ""
	for i, l := range p.looks {
		if i > 0 {
			when = "what was asked before does not show that it was done"
		}
		if err := t.showOne(l.message, when, into); err != nil {
			return err
		}
	}
	if len(p.looks) > 0 {
		when = "no look-up shows that it was done"
	}
	return t.showOne(p.send, when, into)
}

func (t *target) showOne(m message, when string, into *[]handlers.Preview) error {
	req, body, err := t.request(context.Background(), m, true)
	if err != nil {
		return err
	}
	v := handlers.Preview{Do: "POST " + t.cfg.host(), When: when, Header: map[string]string{}, Body: string(body)}
	for name := range req.Header {
		v.Header[name] = req.Header.Get(name)
	}
	*into = append(*into, v)
	return nil
}

// RequestID returns the value of the RequestId that a job for request-item or accept-item is sent with, unless its
// args have one. It is the same for every attempt and every replay, and of no other tenant's job.
func RequestID(env schema.Envelope) string {
	sum := sha256.Sum256([]byte(env.Tenant + "\x00" + env.IdempotencyKey()))
	return "mb-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:15]))
}
