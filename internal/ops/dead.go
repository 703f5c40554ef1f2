package ops

import (
	"context"
	"errors"
	"strconv"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Dead counts the stream of dead letters.
type Dead struct {
	Letters  int64 `json:"letters"`  // waiting for an operator
	Replayed int64 `json:"replayed"` // marks of letters that were replayed
	Dropped  int64 `json:"dropped"`  // marks of letters that were dropped
	// AtLeast says that there was no time to look at all of them.
	AtLeast bool `json:"at_least"`
}

func (d Dead) text(n int64) string {
	if d.AtLeast {
		return "at least " + strconv.FormatInt(n, 10)
	}
	return strconv.FormatInt(n, 10)
}

func (d *Dead) add(l letter) {
	switch l.tombstone {
	case "":
		d.Letters++
	case "dropped":
		d.Dropped++
	default:
		d.Replayed++
	}
}

// countDead counts as far as the time allows.
func (s *Service) countDead(ctx context.Context) (Dead, error) {
	var d Dead
	err := s.scanDead(ctx, d.add)
	switch {
	case errors.Is(err, natsjs.ErrStreamNotFound):
		return d, nil // reported with the streams
	case errors.Is(err, context.DeadlineExceeded):
		d.AtLeast = true
		if d.Letters+d.Replayed+d.Dropped > 0 {
			return d, nil
		}
	}
	return d, err
}
