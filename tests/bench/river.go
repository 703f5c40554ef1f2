package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverArgs carry the same as the messages of the others.
type riverArgs struct {
	Payload  string            `json:"payload"`
	Metadata map[string]string `json:"metadata"`
}

// Kind is River's name for the job type.
func (riverArgs) Kind() string { return "bench" }

func riverJob(seq int) riverArgs {
	return riverArgs{Payload: string(payload(seq)), Metadata: metadata(seq)}
}

func riverJobs(from, to int) []river.InsertManyParams {
	params := make([]river.InsertManyParams, 0, to-from)
	for seq := from; seq < to; seq++ {
		params = append(params, river.InsertManyParams{Args: riverJob(seq)})
	}
	return params
}

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	handle func(payload []byte)
}

// Work is called by River for each job.
func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	w.handle([]byte(job.Args.Payload))
	return nil
}

// riverTuning is how River fetches: its defaults, or as fast as it goes. Zero values are its defaults.
type riverTuning struct {
	workers        int
	cooldown, poll time.Duration
}

var (
	riverDefault = riverTuning{workers: 100}
	riverTuned   = riverTuning{workers: 1000, cooldown: time.Millisecond, poll: 5 * time.Millisecond}
)

func (st *stage) riverTables(ctx context.Context) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(st.pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("make River's tables: %w", err)
	}
	return nil
}

// riverInserter is a client that only inserts.
func riverInserter(pool *pgxpool.Pool) (*river.Client[pgx.Tx], error) {
	return river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
}

func riverWorkers(pool *pgxpool.Pool, t riverTuning, handle func(payload []byte)) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{handle: handle})
	return river.NewClient(riverpgxv5.New(pool), &river.Config{
		Logger: slog.New(slog.DiscardHandler), Workers: workers,
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: t.workers}},
		FetchCooldown: t.cooldown, FetchPollInterval: t.poll,
	})
}

// riverCompleted proves that all jobs are done, each once.
func (st *stage) riverCompleted(ctx context.Context, want int) error {
	got := 0
	for range 100 { // River writes completions in groups
		var err error
		if got, err = st.count(ctx, `SELECT count(*) FROM river_job WHERE state = 'completed' AND attempt = 1`); err != nil {
			return err
		}
		if got == want {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("River has completed %d of %d jobs at their first attempt", got, want)
}

func stopRiver(client *river.Client[pgx.Tx]) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return client.Stop(ctx)
}
