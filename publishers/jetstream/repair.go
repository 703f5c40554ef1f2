package jetstream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// Errors of a repair.
var (
	// ErrUndecided reports a repair that needs a decision first; the plan says which.
	ErrUndecided = errors.New("the repair needs a decision")
	// ErrPlanChanged reports that the situation is not any more the one that the plan was made for.
	ErrPlanChanged = errors.New("the situation has changed since the plan was made; look at it again")
)

// RepairStore is what a repair needs of a database; [RepairStoreOf] makes one.
type RepairStore interface {
	Store
	repairOnly
}

type repairBackend interface {
	backend
	repairOnly
}

type repairOnly interface {
	ShardRows(ctx context.Context, ref schema.ShardRef, shards int, after schema.RowName, limit int) ([]schema.Row, error)
	RepairShard(ctx context.Context, p schema.RepairParams) error
	ListScheduled(ctx context.Context, f schema.RowFilter) ([]schema.ScheduledRow, error)
	ListParked(ctx context.Context, f schema.RowFilter) ([]schema.ParkedRow, error)
	Rebind(ctx context.Context) error
	NewOutbox(ctx context.Context) (id string, err error)
}

// RepairStoreOf adapts a store of schema/postgres or schema/sqlite for a repair.
func RepairStoreOf[R Reader](s interface {
	repairBackend
	NewReader(ref schema.ShardRef, shards int) R
},
) RepairStore {
	return struct {
		Store
		repairOnly
	}{StoreOf(s), s}
}

// Ambiguous says what to do with rows that may or may not have been sent.
type Ambiguous string

// The choices. There is no default: only a person knows which harm is smaller.
const (
	Resend Ambiguous = "resend" // send them, again perhaps, with the same id and key: right where handlers use the inbox
	Park   Ambiguous = "park"   // set them aside; release or drop them one by one
)

// RepairOptions are decisions that a plan may ask for.
type RepairOptions struct {
	Ambiguous       Ambiguous
	AsClone         bool   // this database lives on beside the original: it gets an outbox of its own
	StreamRecreated bool   // the streams were deleted or emptied, and that is accepted
	Forget          string // id of an outbox whose database is gone for good; nothing else is repaired
}

// A Repairer answers for the stops: it shows what it would do, and does it.
type Repairer struct {
	store RepairStore
	nc    *nats.Conn
	js    jetstream.JetStream
	cfg   ForwarderConfig
	new   StreamsConfig

	margin time.Duration // how far the clocks of database and broker may be apart
}

// NewRepairer returns a repairer. streams says how a lost stream is created anew.
func NewRepairer(store RepairStore, nc *nats.Conn, cfg ForwarderConfig, streams StreamsConfig) (*Repairer, error) {
	f, err := NewForwarder(store, nc, cfg)
	if err != nil {
		return nil, err
	}
	streams.Subjects = cfg.Subjects
	return &Repairer{store: store, nc: nc, js: f.js, cfg: f.cfg, new: streams, margin: time.Minute}, nil
}

// Plan looks at database and streams and changes nothing.
func (r *Repairer) Plan(ctx context.Context, opts RepairOptions) (*Plan, error) {
	return r.plan(ctx, &Plan{Options: opts})
}

func (r *Repairer) plan(ctx context.Context, p *Plan) (*Plan, error) {
	opts := p.Options
	p.seen, p.had = make(map[schema.RowName]bool), make(map[schema.UUID]bool)
	if opts.Ambiguous != "" && opts.Ambiguous != Resend && opts.Ambiguous != Park {
		return nil, fmt.Errorf("plan repair: %q is neither %s nor %s", schema.OneLine(string(opts.Ambiguous)), Resend, Park)
	}
	plan := r.planShards
	if opts.Forget != "" {
		plan = r.planForget
	}
	if err := plan(ctx, p); err != nil {
		return nil, fmt.Errorf("plan repair: %w", err)
	}
	return p, nil
}

// Apply does what the plan says, if what it follows from is still the same: the stops, the ledgers, the cursors and what
// becomes of the rows it knows. Rows that were published since do not matter and are not touched. What it has done before
// an error stays done; the next plan goes on from there.
func (r *Repairer) Apply(ctx context.Context, p *Plan) error {
	now, err := r.plan(ctx, &Plan{Options: p.Options, before: p})
	switch {
	case err != nil:
		return err
	case len(now.Undecided) > 0:
		return fmt.Errorf("repair: %w: %s", ErrUndecided, now.Undecided[0])
	case !slices.Equal(now.facts, p.facts):
		return fmt.Errorf("repair: %w", ErrPlanChanged)
	}
	for _, do := range now.steps {
		if err := do(ctx); err != nil {
			return fmt.Errorf("repair: %w", err)
		}
	}
	// Whoever waits for the repair looks again; without the message it does so in a while.
	if err := r.nc.Publish(NudgeSubject(r.cfg.Subjects), nil); err != nil {
		r.cfg.Logger.WarnContext(ctx, "nudge forwarders", "error", err)
	}
	return nil
}

// planShards compares each shard with its stream.
func (r *Repairer) planShards(ctx context.Context, p *Plan) error {
	info, err := r.store.Info(ctx)
	if err != nil {
		return err
	}
	if p.Options.AsClone {
		return r.planClone(ctx, p, info)
	}
	if !info.Bound {
		p.say("The outbox id %s was given to another database: this one becomes its owner. The original must not run any more.", info.ID)
		p.do(r.store.Rebind, "rebind", info.ID)
	}
	for _, stream := range schema.Streams {
		if err := r.planStream(ctx, p, info, stream); err != nil {
			return err
		}
	}
	if err := r.planMissing(ctx, p, r.cfg.Subjects.DeadStreamName()); err != nil {
		return err
	}
	if len(p.Rows) > 0 && p.Options.Ambiguous == "" {
		p.ask("%d rows may have been sent before: choose whether to %s or to %s them", len(p.Rows), Resend, Park)
	}
	return nil
}

// planStream plans for all shards of one stream.
func (r *Repairer) planStream(ctx context.Context, p *Plan, info schema.OutboxInfo, stream schema.Stream) error {
	ledgers, err := r.store.Shards(ctx, stream)
	if err != nil {
		return err
	}
	var stopped, lost []*patient
	for _, ledger := range ledgers {
		x := &patient{r: r, info: info, ledger: ledger}
		if err := x.examine(ctx); err != nil {
			return err
		}
		if x.stop != "" {
			stopped = append(stopped, x)
		}
		if x.anew() && x.stop != StopStreamBehind && ledger.Batch > 0 {
			lost = append(lost, x)
		}
	}
	if len(stopped) == 0 {
		return r.planMissing(ctx, p, r.cfg.Subjects.StreamName(stream))
	}
	if len(lost) > 0 {
		if err := r.planRecreated(ctx, p, stream, lost); err != nil {
			return err
		}
	}
	for _, x := range stopped {
		if err := x.plan(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// acquire takes a shard for a repair, so that nobody works on it meanwhile.
func (r *Repairer) acquire(ctx context.Context, ref schema.ShardRef) (schema.Shard, string, error) {
	token := r.cfg.Name + "/repair/" + rand.Text()
	ledger, ok, err := r.store.Acquire(ctx, ref, token, time.Minute)
	if err != nil {
		return ledger, "", err
	}
	if !ok {
		return ledger, "", fmt.Errorf("shard %s/%d is in use (owner %s): stop the forwarder or wait %v", ref.Stream, ref.Shard, ledger.Owner, ledger.LeaseLeft)
	}
	return ledger, token, nil
}

func (r *Repairer) release(ctx context.Context, token string) {
	if err := r.store.Release(context.WithoutCancel(ctx), token); err != nil {
		r.cfg.Logger.WarnContext(ctx, "release lease; it runs out by itself", "error", err)
	}
}

// writeCursor writes a cursor alone, in place of the one with sequence expect.
func (r *Repairer) writeCursor(ctx context.Context, stream, subject string, c schema.Cursor, expect uint64) (uint64, error) {
	w, err := newWriter(r.nc, r.cfg.AckTimeout, stream)
	if err != nil {
		return 0, err
	}
	defer w.close()
	b, err := w.begin(ctx, stream, subject, c.Owner)
	if err != nil {
		return 0, err
	}
	seq, err := b.commit(ctx, c.Encode(), expect)
	if err != nil {
		return 0, fmt.Errorf("write cursor %s to stream %s: %w", subject, stream, err)
	}
	return seq, nil
}
