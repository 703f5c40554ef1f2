package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// millbridge migrates the database and makes the streams.
func (st *stage) millbridge(ctx context.Context) (*postgres.Store, error) {
	store := postgres.New(st.pool, postgres.Options{})
	if _, _, err := store.MigrateUp(ctx); err != nil {
		return nil, err
	}
	return store, jetstream.EnsureStreams(ctx, st.js, jetstream.StreamsConfig{Replicas: st.replicas})
}

// load fills the outbox with n messages, a thousand in each transaction, or fewer of large ones.
func (st *stage) load(ctx context.Context, store *postgres.Store, n int, opts func(seq int) []schema.Option) error {
	perTx := min(1000, max(1, 4<<20/st.work.payload))
	for from := 0; from < n; from += perTx {
		envs := make([]schema.Envelope, 0, perTx)
		for seq := from; seq < min(from+perTx, n); seq++ {
			envs = append(envs, st.work.envelope(seq, opts(seq)...))
		}
		err := store.InTx(ctx, func(tx pgx.Tx) error {
			_, err := store.Append(ctx, tx, envs)
			return err
		})
		if err != nil {
			return fmt.Errorf("fill the outbox: %w", err)
		}
	}
	return st.tidy(ctx, "millbridge.outbox")
}

// tidy leaves nothing for others to do behind a table that was filled.
func (st *stage) tidy(ctx context.Context, table string) error {
	steps := []string{"VACUUM (ANALYZE) " + table, "CHECKPOINT"}
	if st.opts.quick {
		steps = []string{"ANALYZE " + table}
	}
	for _, q := range steps {
		if _, err := st.pool.Exec(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// outboxEmpty proves that every row has left.
func (st *stage) outboxEmpty(ctx context.Context) error {
	n, err := st.count(ctx, `SELECT (SELECT count(*) FROM millbridge.outbox) + (SELECT count(*) FROM millbridge.parked)`)
	if err == nil && n != 0 {
		err = fmt.Errorf("%d rows are still in the outbox", n)
	}
	return err
}

// A running bridge.
type running struct {
	*router.Bridge
	cancel context.CancelFunc
	ended  chan error
}

func (st *stage) startBridge(ctx context.Context, cfg router.Config, policy handlers.Policy, h handlers.HandlerFunc) (*running, error) {
	if cfg.Conn == nil {
		cfg.Conn = st.conn
	}
	bridge, err := router.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := bridge.Target(handlers.Target{Name: target, Handler: h, Policy: policy}); err != nil {
		return nil, err
	}
	b := &running{Bridge: bridge, ended: make(chan error, 1)}
	ctx, b.cancel = context.WithCancel(ctx)
	go func() { b.ended <- bridge.Run(ctx) }()
	return b, nil
}

// close stops the bridge; it must not have ended by itself before.
func (b *running) close() error {
	select {
	case err := <-b.ended:
		b.cancel()
		return errors.Join(errors.New("the bridge has ended by itself"), err)
	default:
	}
	b.cancel()
	return <-b.ended
}

// handle is a handler that only looks.
func handle(saw func(payload []byte)) handlers.HandlerFunc {
	return func(_ context.Context, e schema.Envelope) error {
		saw(e.Payload)
		return nil
	}
}
