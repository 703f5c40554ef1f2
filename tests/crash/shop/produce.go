package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// produce publishes until ctx ends.
func produce(ctx context.Context, o options) error {
	j, err := openJournal(o.journal)
	if err != nil {
		return err
	}
	db, err := openDatabase(ctx, o)
	if err != nil {
		return err
	}
	defer db.close()
	chance := rand.New(rand.NewPCG(o.seed, 0))
	for ctx.Err() == nil {
		began := time.Now()
		n := 1 + chance.IntN(o.most)
		order, envs := basket(chance, n, o.jobs)
		commit := chance.IntN(10) > 0
		fresh, err := db.sell(ctx, order, envs, commit)
		switch {
		case err != nil && ctx.Err() == nil:
			slog.Warn("not sold", "error", err)
			<-time.After(20 * time.Millisecond)
		case commit && err == nil:
			j.note("committed %d", fresh)
		case err == nil:
			j.note("rolledback %d", n)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(n)*time.Second/time.Duration(max(o.rate, 1)) - time.Since(began)):
		}
	}
	return nil
}

// basket makes the messages of one transaction. The first is an event with the order's number, which a subscription
// notes.
func basket(chance *rand.Rand, n, jobs int) (order string, envs []schema.Envelope) {
	first := schema.NewEvent("order.placed", nil)
	envs = append(envs, first)
	for range n - 1 {
		switch p := chance.IntN(100); {
		case p < jobs:
			envs = append(envs, job(chance))
		case p < jobs+10:
			envs = append(envs, schema.NewEvent("stock.changed", p, schema.WithOrderingKey(fmt.Sprint("item ", chance.IntN(40)))))
		default:
			envs = append(envs, schema.NewEvent("page.viewed", p))
		}
	}
	return first.ID, envs
}

// job makes a job. What will become of it, its action says.
func job(chance *rand.Rand) schema.Envelope {
	target := "till"
	switch p := chance.IntN(100); {
	case p < 4:
		return schema.NewJob("line", "do", p, schema.WithOrderingKey(fmt.Sprint("car ", chance.IntN(5))))
	case p < 30:
		return schema.NewJob("hook", "do", p)
	case p < 50:
		target = "mail"
	}
	switch p := chance.IntN(1000); {
	case p < 15:
		return schema.NewJob(target, "once", p)
	case p < 20:
		return schema.NewJob(target, "panics", p)
	case p < 35:
		return schema.NewJob(target, "always", p)
	case p < 50:
		return schema.NewJob(target, "never", p)
	case p < 55:
		return schema.NewJob(target, "slow", p)
	case p < 105: // the same again and again
		return schema.NewJob(target, "do", "again", schema.WithKey(fmt.Sprint("key ", chance.IntN(500))))
	case p < 205:
		return schema.NewJob(target, "more", p)
	}
	return schema.NewJob(target, "do", nil)
}
