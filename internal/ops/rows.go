package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Row is one line of a listing of waiting messages.
type Row struct {
	Where    string        `json:"where"` // outbox, scheduled or parked
	Sequence int64         `json:"sequence"`
	ID       string        `json:"id"`
	Stream   schema.Stream `json:"stream"`
	Subject  string        `json:"subject"`
	Bytes    int           `json:"bytes"` // of headers and payload
	Since    time.Time     `json:"since"`
	DueAt    time.Time     `json:"due_at,omitzero"`
	Reason   string        `json:"reason,omitempty"` // of parked rows
	Behind   bool          `json:"behind,omitempty"` // parked only because of its ordering key
}

// Where a row can wait.
const (
	InOutbox    = "outbox"
	InScheduled = "scheduled"
	InParked    = "parked"
)

// Rows lists waiting messages, oldest first.
func (s *Service) Rows(ctx context.Context, where string, filter schema.RowFilter) ([]Row, error) {
	list := []Row{}
	switch where {
	case InOutbox:
		rows, err := s.store.ListOutbox(ctx, filter)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			list = append(list, newRow(where, r))
		}
	case InScheduled:
		rows, err := s.store.ListScheduled(ctx, filter)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			row := newRow(where, r.Row)
			row.DueAt = r.DueAt
			list = append(list, row)
		}
	case InParked:
		rows, err := s.store.ListParked(ctx, filter)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			row := newRow(where, r.Row)
			row.Since, row.Reason, row.Behind = r.ParkedAt, r.Reason, r.Behind
			list = append(list, row)
		}
	default:
		return nil, fmt.Errorf("list rows: %q is none of outbox, scheduled and parked", schema.OneLine(where))
	}
	return list, nil
}

func newRow(where string, r schema.Row) Row {
	block := r.Block()
	row := Row{
		Where: where, Sequence: r.Seq, ID: r.ID.String(), Stream: r.Stream, Subject: r.Subject,
		Bytes: len(block) + len(r.Payload), Since: r.CreatedAt,
	}
	// The row is named by a UUID; the message's own id is in its header, if that can be read.
	if header, err := schema.ParseHeader(block); err == nil {
		if id, _ := schema.WatermillHeader(header); id != "" {
			row.ID = id
		}
	}
	return row
}
