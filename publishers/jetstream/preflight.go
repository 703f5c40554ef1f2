package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/internal/natswords"
	"github.com/millbridge/millbridge/schema"
)

// preflightEvery is how long a stream that was found fit is not looked at again.
const preflightEvery = 10 * time.Second

// preflight refuses a stream that would lose messages, and one whose limits are below what may be published.
func (r *running) preflight(ctx context.Context, stream schema.Stream, info schema.OutboxInfo) error {
	r.mu.Lock()
	fresh := time.Since(r.checked[stream]) < preflightEvery
	r.mu.Unlock()
	if fresh {
		return nil
	}
	if err := r.f.preflight(ctx, stream, info); err != nil {
		return natswords.Explain(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checked[stream] = time.Now()
	return nil
}

func (f *Forwarder) preflight(ctx context.Context, stream schema.Stream, info schema.OutboxInfo) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.AckTimeout)
	defer cancel()
	if err := checkServer(ctx, f.js); err != nil {
		return err
	}
	subjects := f.cfg.Subjects
	name := subjects.StreamName(stream)
	found, err := f.js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("look for stream %s, which takes %s: %w", name, subjects.Full(string(stream)+".>"), err)
	}
	have := found.CachedInfo().Config
	if err := CheckStream(have, subjects, f.nc.MaxPayload()); err != nil {
		return err
	}
	if stream == schema.Jobs {
		if err := ensureGuard(ctx, f.js, subjects); err != nil {
			return err
		}
	}
	most := f.nc.MaxPayload()
	if have.MaxMsgSize > 0 {
		most = min(most, int64(have.MaxMsgSize))
	}
	if need := int64(info.MaxPayload + schema.MaxHeaderBytes); need > most {
		return fmt.Errorf("%w: payloads of %d bytes may be published, with headers %d, but stream %s takes messages of %d: "+
			"raise max_payload (and max_msg_size) of the server, or lower the payload limit of the outbox", ErrStreams, info.MaxPayload, need, name, most)
	}
	return nil
}

// keepGuard makes the guard of the cursors again when somebody deletes it under us, until ctx ends.
func (f *Forwarder) keepGuard(ctx context.Context) {
	tick := time.NewTicker(preflightEvery)
	defer tick.Stop()
	for said := ""; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		call, cancel := context.WithTimeout(ctx, f.cfg.AckTimeout)
		err := ensureGuard(call, f.js, f.cfg.Subjects)
		cancel()
		switch {
		case err == nil:
			said = ""
		case !errors.Is(err, ErrStreams): // the server or the stream is away; the shards say so
		case err.Error() != said:
			said = err.Error()
			f.log.ErrorContext(ctx, "nothing keeps other consumers away from cursors", "error", said)
		}
	}
}
