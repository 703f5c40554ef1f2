package foreign

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/schema"
)

// Options say what to take and how to name it.
type Options struct {
	States     []ops.State // rows in other states are counted and left
	Target     string      // of jobs whose rows name none; empty: the first part of the job's name
	MaxPayload int         // the database's limit
	Now        time.Time
}

// Rows is what was read.
type Rows struct {
	Take []schema.Envelope
	Left map[ops.State]int
}

// maxFaults bounds what one error lists.
const maxFaults = 20

// maxLine is more than any row that can be imported.
const maxLine = 65 << 20

// Read reads rows, one JSON object a line, and checks all of them. The error lists what is wrong by line; what it
// returns is worth nothing then.
func Read(in io.Reader, o Options) (Rows, error) {
	rd := reader{Options: o, rows: Rows{Left: map[ops.State]int{}}, lines: map[[32]byte]int{}}
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, maxLine)
	n := 0
	for scan.Scan() {
		n++
		if line := bytes.TrimSpace(scan.Bytes()); len(line) > 0 {
			rd.add(n, line)
		}
	}
	if err := scan.Err(); err != nil {
		return rd.rows, fmt.Errorf("read rows after line %d: %w", n, err)
	}
	if more := rd.faulty - len(rd.faults); more > 0 {
		rd.faults = append(rd.faults, fmt.Errorf("and %d more", more))
	}
	return rd.rows, errors.Join(rd.faults...)
}

type reader struct {
	Options
	rows   Rows
	lines  map[[32]byte]int // key -> index in rows.Take
	faults []error
	faulty int
}

func (rd *reader) add(n int, line []byte) {
	if err := rd.take(line); err != nil {
		if rd.faulty++; len(rd.faults) < maxFaults {
			rd.faults = append(rd.faults, fmt.Errorf("line %d: %w", n, err))
		}
	}
}

func (rd *reader) take(line []byte) error {
	var r row
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("is not a row: %w", err)
	}
	state, err := r.state()
	if err != nil {
		return err
	}
	if !slices.Contains(rd.States, state) {
		rd.rows.Left[state]++
		return nil
	}
	env, err := r.envelope(rd.Options)
	if err != nil {
		return err
	}
	// Two rows with one key and other content would be noticed only when some batches are written.
	key := env.KeyHash()
	if i, twice := rd.lines[key]; twice && rd.rows.Take[i].BodyHash() != env.BodyHash() {
		return fmt.Errorf("%w, in an earlier line: %q", schema.ErrKeyReused, schema.OneLine(env.Key))
	}
	rd.lines[key] = len(rd.rows.Take)
	rd.rows.Take = append(rd.rows.Take, env)
	return nil
}
