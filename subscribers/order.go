package subscribers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// An Order keeps messages with the same key in the stream's order, over all processes that share a consumer and through
// retries. Key and Lease are required.
type Order struct {
	// Key returns which messages a message keeps the order with: those of the same key. An empty key means none.
	Key func(*Delivery) string
	// Lease lets one process at a time consume. It saves work and is not what the order rests on.
	Lease Lease
	// TTL is how long a process that dies keeps the others out. The default is two thirds of the ack wait.
	TTL time.Duration
	// Window is how many messages the process that consumes has in hand at most, those that wait for their next try
	// included. When all of them wait, nothing is handed out until one is due. The default is 256.
	Window int
	// WindowBytes bounds the size of what is in hand: beyond it nothing more is asked for. The default is 64 MiB.
	WindowBytes int
}

// A Lease gives a name to one owner at a time. The stores have one.
type Lease interface {
	// Hold takes the name for ttl, or renews that. If another owner has it, left is how long that can last.
	Hold(ctx context.Context, name, owner string, ttl time.Duration) (held bool, left time.Duration, err error)
	// LetGo gives the name back. It is no error if the owner does not have it.
	LetGo(ctx context.Context, name, owner string) error
}

// errTakenOver is the cause of a message context that ended because another process may consume by now. What was
// running is given back.
var errTakenOver = schema.WithKind(schema.NotMine, errors.New("the order's lease is lost: another process may have taken over"))

// Why a process begins again to gather what is handed out.
var (
	errElsewhere = errors.New("the server handed messages to another process")
	errGathered  = errors.New("another process settled what this one waits for")
)

func (o *Order) validate() error {
	if o == nil {
		return nil
	}
	var errs []error
	if o.Key == nil {
		errs = append(errs, errors.New("order: there is no key"))
	}
	if o.Lease == nil {
		errs = append(errs, errors.New("order: there is no lease"))
	}
	if o.TTL != 0 && o.TTL < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("order: ttl is %v, must be at least %v", o.TTL, 100*time.Millisecond))
	}
	if o.Window < 0 || o.WindowBytes < 0 {
		errs = append(errs, fmt.Errorf("order: the window is %d messages and %d bytes, must not be negative", o.Window, o.WindowBytes))
	}
	return errors.Join(errs...)
}

// withDefaults returns a copy with all fields filled in.
func (o *Order) withDefaults(ackWait time.Duration) *Order {
	if o == nil {
		return nil
	}
	c := *o
	if c.TTL == 0 {
		c.TTL = ackWait * 2 / 3
	}
	if c.Window == 0 {
		c.Window = 256
	}
	if c.WindowBytes == 0 {
		c.WindowBytes = 64 << 20
	}
	return &c
}

// A Standing tells where an ordered subscriber is, for those who wait until nothing is due.
type Standing struct {
	Elsewhere bool // another process consumes
	Held      int  // messages in hand
	Due       bool // some of them are handed out or could be now, or this cannot be said yet
	Full      bool // nothing more fits in
}

// Standing returns where the ordered subscriptions of s are. It says nothing about others.
func (s *Subscriber) Standing() Standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := Standing{Elsewhere: len(s.subs) > 0}
	for sub := range s.subs {
		if sub.line != nil {
			one := sub.line.standing()
			all.Elsewhere, all.Due, all.Full = all.Elsewhere && one.Elsewhere, all.Due || one.Due, all.Full || one.Full
			all.Held += one.Held
		}
	}
	return all
}
