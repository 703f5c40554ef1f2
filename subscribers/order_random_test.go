package subscribers_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/netproxy"
	"github.com/millbridge/millbridge/subscribers"
)

// ledger is what an inbox does for those who handle: one of them has a message at a time, for a while, and only that one
// can note what it did.
type ledger struct {
	mu      sync.Mutex
	claims  map[uint64]claim
	done    map[uint64]bool
	effects map[string][]uint64 // sequences by key, as they were noted
}

type claim struct {
	by    *process
	until time.Time
}

// claim answers "run", "done" or "busy".
func (l *ledger) claim(seq uint64, p *process) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.claims[seq]
	switch {
	case l.done[seq]:
		return "done"
	case c.by != nil && c.by != p && c.until.After(time.Now()):
		return "busy"
	}
	l.claims[seq] = claim{p, time.Now().Add(600 * time.Millisecond)}
	return "run"
}

func (l *ledger) note(seq uint64, key string, p *process) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.claims[seq].by != p || l.done[seq] || p.dead.Err() != nil {
		return false
	}
	l.done[seq] = true
	l.effects[key] = append(l.effects[key], seq)
	return true
}

// process is one that consumes: it can die, or be as if it were stopped for a while.
type process struct {
	*testkit.Leases
	proxy *netproxy.Proxy
	sub   *subscribers.Subscriber
	dead  context.Context
	kill  context.CancelFunc

	mu   sync.Mutex
	thaw chan struct{} // closed when it goes on
}

// wait returns when the process is not stopped; an error if it is dead or ctx ends.
func (p *process) wait(ctx context.Context) error {
	p.mu.Lock()
	thaw := p.thaw
	p.mu.Unlock()
	select {
	case <-thaw:
		return p.dead.Err()
	case <-p.dead.Done():
		return p.dead.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *process) Hold(ctx context.Context, name, owner string, ttl time.Duration) (bool, time.Duration, error) {
	if err := p.wait(ctx); err != nil {
		return false, 0, err
	}
	return p.Leases.Hold(ctx, name, owner, ttl)
}

func (p *process) LetGo(ctx context.Context, name, owner string) error {
	if err := p.wait(ctx); err != nil {
		return err
	}
	return p.Leases.LetGo(ctx, name, owner)
}

// stopFor is a process that gets no time, while others do.
func (p *process) stopFor(d time.Duration) {
	thaw := make(chan struct{})
	p.mu.Lock()
	p.thaw = thaw
	p.mu.Unlock()
	p.proxy.Freeze(netproxy.Up | netproxy.Down)
	time.AfterFunc(d, func() {
		p.proxy.Heal()
		close(thaw)
	})
}

func (p *process) die() {
	p.kill()
	p.proxy.Refuse()
	p.proxy.Cut()
	go p.sub.Close()
}

func (p *process) handle(m *message.Message, l *ledger, r *rand.Rand) {
	d, _ := subscribers.DeliveryFrom(m.Context())
	retry := func(wait time.Duration) {
		d.RetryIn(wait)
		m.Nack()
	}
	switch l.claim(d.Sequence, p) {
	case "done":
		m.Ack()
		return
	case "busy":
		retry(50 * time.Millisecond)
		return
	}
	select {
	case <-time.After(time.Duration(r.IntN(15)) * time.Millisecond):
	case <-m.Context().Done():
	}
	switch {
	case r.IntN(4) == 0:
		retry(time.Duration(r.IntN(100)) * time.Millisecond)
	case p.wait(context.Background()) == nil && l.note(d.Sequence, d.Header.Get("key"), p):
		m.Ack()
	default:
		m.Nack()
	}
}

// Whatever happens to processes and connections, messages with one key take effect in their order, each once.
func TestOrder_random_failures_and_crashes(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			b := setup(t)
			r := rand.New(rand.NewPCG(seed, 4))
			const messages = 100
			keys := map[string]int{}
			for range messages {
				key := []string{"a", "b", "c", "d", ""}[r.IntN(5)]
				keys[key]++
				b.publishKeyed(t, fmt.Sprint(key, keys[key]))
			}
			l := &ledger{claims: map[uint64]claim{}, done: map[uint64]bool{}, effects: map[string][]uint64{}}
			leases := new(testkit.Leases)
			start := func() *process {
				p := &process{Leases: leases, proxy: netproxy.Start(t, b.server.URL()[len("nats://"):]), thaw: make(chan struct{})}
				close(p.thaw)
				p.dead, p.kill = context.WithCancel(context.Background())
				var err error
				p.sub, err = subscribers.New(testkit.JetStream(t, through(t, p.proxy)), config(t, byKey(p), func(c *subscribers.Config) {
					c.AckWait, c.MaxInFlight, c.CloseTimeout, c.Logger = 2*time.Second, 4, time.Second, nil
				}))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { p.kill(); p.sub.Close() })
				msgs := subscribe(t, p.sub)
				random := rand.New(rand.NewPCG(seed, r.Uint64()))
				var mu sync.Mutex
				go func() {
					for m := range msgs {
						mu.Lock()
						mine := rand.New(rand.NewPCG(random.Uint64(), 0))
						mu.Unlock()
						go p.handle(m, l, mine)
					}
				}()
				return p
			}
			procs := make([]*process, 2+seed%2)
			for i := range procs {
				procs[i] = start()
			}
			trouble := time.NewTicker(400 * time.Millisecond)
			defer trouble.Stop()
			for range 6 {
				<-trouble.C
				i := r.IntN(len(procs))
				switch p := procs[i]; r.IntN(4) {
				case 0:
					p.die()
					procs[i] = start()
				case 1:
					p.stopFor(time.Duration(500+r.IntN(1500)) * time.Millisecond)
				case 2:
					p.proxy.Cut()
				case 3:
					go p.sub.Close()
					procs[i] = start()
				}
			}
			testkit.Eventually(t, 5*patience, func() error {
				l.mu.Lock()
				defer l.mu.Unlock()
				if len(l.done) < messages {
					return fmt.Errorf("%d of %d messages are done", len(l.done), messages)
				}
				return nil
			})
			b.left(t, 0)
			l.mu.Lock()
			defer l.mu.Unlock()
			for key, seqs := range l.effects {
				if key != "" && !slices.IsSorted(seqs) || len(seqs) != keys[key] {
					t.Errorf("key %q took effect as %v", key, seqs)
				}
			}
		})
	}
}
