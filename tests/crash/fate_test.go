//go:build linux

package crash

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millbridge/millbridge/internal/killpoint"
)

// A kind is how a life goes.
type kind string

const (
	killedAt  kind = "killed at a place"
	killed    kind = "killed at a random time"
	zombieAt  kind = "stopped at a place for longer than every lease"
	zombie    kind = "stopped at a random time for longer than every lease"
	slowAt    kind = "held up at a place for longer than every lease"
	asked     kind = "asked to stop"
	untilDone kind = "asked to stop when the others are done"
)

// A fate is what will become of a process. Its point is passed that many times.
type fate struct {
	kind  kind
	point killpoint.Name
	pass  int
	after time.Duration // for what has no point

	// successor, if not nil, starts who takes the place of a process that sleeps, which goes on when that has happened. It
	// is called again at the end of the life, so that nobody waits for ever if the process does not come to its place.
	successor func()
}

func (f fate) env(zombieTime time.Duration) []string {
	switch f.kind {
	case killedAt:
		return []string{fmt.Sprintf("MILLBRIDGE_KILL=%s:%d", f.point, f.pass)}
	case zombieAt:
		return []string{fmt.Sprintf("MILLBRIDGE_STOP=%s:%d", f.point, f.pass)}
	case slowAt:
		return []string{fmt.Sprintf("MILLBRIDGE_PAUSE=%s:%d:%v", f.point, f.pass, zombieTime)}
	}
	return nil
}

// passes says which places a role comes by, and how often at most it may do so before it is killed there.
var passes = map[role]map[killpoint.Name]int{
	producer: {killpoint.ProducerBeforeCommit: 30, killpoint.ProducerAfterCommit: 30},
	forwarder: {
		killpoint.BeforeRead: 20, killpoint.AfterRead: 15, killpoint.BeforeAdd: 1000, killpoint.AfterAdd: 15,
		killpoint.BeforeBatchCommit: 15, killpoint.AfterBatchCommit: 15, killpoint.BeforeRemoval: 15, killpoint.AfterRemoval: 15,
		killpoint.BeforeRenewal: 3, killpoint.AfterRenewal: 3, killpoint.BeforeTakeOver: 2, killpoint.AfterTakeOver: 2,
		killpoint.BeforeHandler: 20, killpoint.AfterHandler: 20, killpoint.BeforeInbox: 20, killpoint.AfterInbox: 20,
		killpoint.BeforeAck: 20, killpoint.AfterAck: 20, killpoint.BeforeRunRenewal: 2, killpoint.AfterRunRenewal: 2,
	},
	worker: {
		killpoint.BeforeHandler: 40, killpoint.AfterHandler: 40, killpoint.BeforeEffect: 40, killpoint.AfterEffect: 40,
		killpoint.BeforeInbox: 40, killpoint.AfterInbox: 40, killpoint.BeforeFailure: 3, killpoint.AfterFailure: 3,
		killpoint.BeforeVerdict: 2, killpoint.AfterVerdict: 2, killpoint.BeforeLetter: 2, killpoint.AfterLetter: 2,
		killpoint.BeforeAck: 40, killpoint.AfterAck: 40, killpoint.BeforeRunRenewal: 2, killpoint.AfterRunRenewal: 2,
	},
	operator: {killpoint.BeforeReplay: 3, killpoint.AfterReplay: 3, killpoint.AfterTombstone: 3},
}

// chance draws fates.
func chance(r *rand.Rand, of role) fate {
	var f fate
	switch p := r.IntN(100); {
	case of == operator, p < 55:
		f.kind = killedAt
	case p < 75:
		f.kind = killed
	case p < 80:
		f.kind = zombieAt
	case p < 85:
		f.kind = zombie
	case p < 88:
		f.kind = slowAt
	default:
		f.kind = asked
	}
	f.after = time.Duration(r.Int64N(int64(4 * time.Second)))
	n := r.IntN(len(passes[of]))
	for _, name := range killpoint.Names { // in an order that does not change
		most, ok := passes[of][name]
		if !ok {
			continue
		}
		if n--; n < 0 {
			f.point, f.pass = name, 1+r.IntN(most)
			break
		}
	}
	return f
}

// chances returns a source of chance for one slot.
func (w *world) chances() *rand.Rand { return rand.New(rand.NewPCG(w.rand.Uint64(), 2)) }
