package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/millbridge/millbridge/schema"
)

// Group claims runs and notes others as done in one transaction, so that they share its commit. claimed and noted have
// an element for each run, which is nil or false if the run may not go ahead or has lost its lease: [Store.Claim] and
// [Store.Done] give such a run its answer. With an error nothing is known of any of them.
func (s *Store) Group(ctx context.Context, claims, done []schema.Run) (claimed []*schema.InboxRecord, noted []bool, err error) {
	err = s.update(ctx, "claim and end runs", func(tx *sql.Tx) error {
		claimed, noted = make([]*schema.InboxRecord, len(claims)), make([]bool, len(done))
		for i, run := range done {
			err := s.done(ctx, tx, run)
			if noted[i] = err == nil; err != nil && !errors.Is(err, schema.ErrLeaseLost) {
				return err
			}
		}
		for i, run := range claims {
			res, err := s.claim(ctx, tx, run, schema.InboxRunning)
			if err != nil {
				return err
			}
			if res.Claim == schema.ClaimRun {
				claimed[i] = &res.Record
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return claimed, noted, nil
}
