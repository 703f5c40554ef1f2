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
	// Claims lock rows in the order of their hashes and wait for those who end or renew a run; those who end runs wait for
	// nobody. So groups of several processes cannot wait for each other in a circle.
	steps := []statement{durablyByIndex}
	if len(claims) > 0 {
		steps = append(steps, claiming(arraysByHash(claims), schema.InboxRunning, func(i int, r schema.InboxRecord) { claimed[i] = &r }))
	}
	if len(done) > 0 {
		a := arraysOf(done)
		index := a.index()
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

// runArrays are the parts of runs as a statement takes them, each at the same place.
type runArrays struct {
	runs                         []schema.Run
	places                       []int // of each run among those that were given
	hashes, bodyHashes           [][]byte
	handlers, messageIDs, owners []string
	replays                      []int32
	leases, locks, sequences     []int64
}

// arraysOf returns the parts of runs in their order.
func arraysOf(runs []schema.Run) runArrays { return arrays(runs, func([]int, [][32]byte) {}) }

// arraysByHash returns the parts of runs in the order of their hashes.
func arraysByHash(runs []schema.Run) runArrays {
	return arrays(runs, func(places []int, hashes [][32]byte) {
		slices.SortFunc(places, func(i, j int) int { return bytes.Compare(hashes[i][:], hashes[j][:]) })
	})
}

func arrays(runs []schema.Run, sort func(places []int, hashes [][32]byte)) runArrays {
	n := len(runs)
	places, hashes := make([]int, n), make([][32]byte, n)
	for i := range runs {
		places[i], hashes[i] = i, runs[i].Key.Hash()
	}
	sort(places, hashes)
	a := runArrays{
		runs: runs, places: places, hashes: make([][]byte, n), bodyHashes: make([][]byte, n), handlers: make([]string, n), messageIDs: make([]string, n),
		owners: make([]string, n), replays: make([]int32, n), leases: make([]int64, n), locks: make([]int64, n), sequences: make([]int64, n),
	}
	for to, from := range places {
		run, hash := &runs[from], &hashes[from]
		a.hashes[to], a.bodyHashes[to], a.locks[to] = hash[:], run.BodyHash[:], lockOf(*hash)
		a.handlers[to], a.messageIDs[to], a.owners[to] = run.Key.Handler, run.MessageID, run.Owner
		a.replays[to], a.leases[to], a.sequences[to] = int32(run.Replay), run.Lease.Microseconds(), int64(run.Sequence)
	}
	return a
}

// index returns the place of each hash among the runs that were given.
func (a runArrays) index() map[[32]byte]int {
	index := make(map[[32]byte]int, len(a.hashes))
	for i, hash := range a.hashes {
		index[[32]byte(hash)] = a.places[i]
	}
	return index
}
