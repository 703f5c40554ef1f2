package postgres

import (
	"bytes"
	"context"
	"slices"

	"github.com/millbridge/millbridge/schema"
)

// Group claims runs and notes others as done in one transaction, so that they share its commit. claimed and noted have
// an element for each run. A run that was not dealt with, because its key is in other hands or its lease is lost or
// because that could not be told without waiting, has nil or false there: [Store.Claim] and [Store.Done] give it its
// answer. No two runs may have the same key. With an error nothing is known of any of them.
func (s *Store) Group(ctx context.Context, claims, done []schema.Run) (claimed []*schema.InboxRecord, noted []bool, err error) {
	claimed, noted = make([]*schema.InboxRecord, len(claims)), make([]bool, len(done))
	index := make(map[[32]byte]int, len(claims)+len(done))
	for i, run := range claims {
		index[run.Key.Hash()] = i
	}
	for i, run := range done {
		index[run.Key.Hash()] = i
	}
	// Claims lock rows in the order of their hashes and wait for those who end or renew a run; those who end runs wait for
	// nobody. So groups of several processes cannot wait for each other in a circle.
	steps := []statement{byIndex}
	if len(claims) > 0 {
		steps = append(steps, claiming(sortedByHash(claims), schema.InboxRunning, func(r schema.InboxRecord) {
			claimed[index[r.Key.Hash()]] = &r
		}))
	}
	if len(done) > 0 {
		a := arraysOf(done)
		steps = append(steps, statement{sql: sqlDoneMany, args: []any{a.hashes, a.owners, a.replays}, each: func(rows rowSet) error {
			var hash []byte
			err := rows.Scan(&hash)
			if err == nil {
				noted[index[[32]byte(hash)]] = true
			}
			return err
		}})
	}
	if err := s.atOnce(ctx, steps...); err != nil {
		return nil, nil, s.failed("claim and end runs", err)
	}
	return claimed, noted, nil
}

const sqlDoneMany = `
	WITH mine AS MATERIALIZED (
		SELECT i.hash FROM unnest($1::bytea[], $2::text[], $3::integer[]) AS r(hash, owner, replay)
		  JOIN millbridge.inbox AS i ON i.hash = r.hash AND i.owner = r.owner AND i.replay = r.replay AND i.state = 'running'
		   FOR UPDATE OF i SKIP LOCKED)
	UPDATE millbridge.inbox AS i SET state = 'done', owner = NULL, lease_until = NULL, next_try = NULL, updated_at = clock_timestamp()
	  FROM mine WHERE i.hash = mine.hash RETURNING i.hash`

func sortedByHash(runs []schema.Run) []schema.Run {
	return slices.SortedFunc(slices.Values(runs), func(a, b schema.Run) int {
		x, y := a.Key.Hash(), b.Key.Hash()
		return bytes.Compare(x[:], y[:])
	})
}

// runArrays are the parts of runs as a statement takes them.
type runArrays struct {
	hashes, bodyHashes           [][]byte
	handlers, messageIDs, owners []string
	replays                      []int32
	leases, locks, sequences     []int64
}

func arraysOf(runs []schema.Run) runArrays {
	var a runArrays
	for _, run := range runs {
		hash := run.Key.Hash()
		a.hashes, a.bodyHashes = append(a.hashes, hash[:]), append(a.bodyHashes, bytes.Clone(run.BodyHash[:]))
		a.handlers, a.messageIDs, a.owners = append(a.handlers, run.Key.Handler), append(a.messageIDs, run.MessageID), append(a.owners, run.Owner)
		a.replays = append(a.replays, int32(run.Replay))
		a.leases, a.locks, a.sequences = append(a.leases, run.Lease.Microseconds()), append(a.locks, lockOf(hash)), append(a.sequences, int64(run.Sequence))
	}
	return a
}
