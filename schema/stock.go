package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A StockRow is a row of a stock Watermill outbox: what watermill-sql's publisher has written for components/forwarder.
type StockRow struct {
	Offset    int64
	Tx        uint64 // the transaction that wrote it
	UUID      string // of the message around the forwarder's envelope
	Payload   []byte // the forwarder's envelope, as JSON
	CreatedAt time.Time
}

// StockRules say what becomes of the messages of a stock outbox. The zero value takes destination topics as they are.
type StockRules struct {
	// Topics maps destination topics to topics that [FromTopic] knows. One that is not in it is taken as it is, unless "*"
	// stands for all others; a "*" in its topic is replaced by the destination topic.
	Topics map[string]string
	// OrderingKey is the metadata entry whose value is the message's ordering key; empty means no order. A message without
	// the entry has none.
	OrderingKey string
}

// anyTopic stands for all destination topics that have no entry.
const anyTopic = "*"

// Validate reports all entries that no message can be sent with.
func (r StockRules) Validate() error {
	var errs []error
	for _, from := range slices.Sorted(maps.Keys(r.Topics)) {
		to := r.Topics[from]
		switch {
		case from == "":
			errs = append(errs, errors.New("a destination topic is empty"))
			continue
		case from == anyTopic:
			to = strings.ReplaceAll(to, anyTopic, "x")
		}
		e, err := FromTopic(to, NewID(), nil, nil)
		if err == nil {
			err = e.Validate(0)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("topic %q for %q: %w", OneLine(r.Topics[from]), OneLine(from), bare(err)))
		}
	}
	return errors.Join(errs...)
}

// bare is a [*ValidationError] without the id, which says nothing when there is no message.
func bare(err error) error {
	var invalid *ValidationError
	if errors.As(err, &invalid) {
		return &ValidationError{Faults: invalid.Faults}
	}
	return err
}

// topic returns what the rules make of a destination topic.
func (r StockRules) topic(destination string) string {
	if to, ok := r.Topics[destination]; ok && destination != anyTopic {
		return to
	}
	if to, ok := r.Topics[anyTopic]; ok {
		return strings.ReplaceAll(to, anyTopic, destination)
	}
	return destination
}

// Envelope returns the message that a row holds. Its id stays if it can be one here, else one is derived from it, or from
// the row if it has none. The W3C trace context moves from the metadata to where it belongs. The error wraps
// [ErrUndecodable] if the row holds no message of a forwarder, else it is a [*ValidationError] with the destination topic.
func (r StockRules) Envelope(row StockRow) (Envelope, error) {
	var w struct {
		Topic    string            `json:"destination_topic"`
		UUID     string            `json:"uuid"`
		Payload  []byte            `json:"payload"`
		Metadata map[string]string `json:"metadata"`
	}
	switch err := json.Unmarshal(row.Payload, &w); {
	case err != nil:
		return Envelope{}, WithKind(Permanent, fmt.Errorf("%w: not the envelope of a Watermill forwarder: %w", ErrUndecodable, err))
	case w.Topic == "":
		return Envelope{}, WithKind(Permanent, fmt.Errorf("%w: not the envelope of a Watermill forwarder: destination_topic is empty", ErrUndecodable))
	}
	id := w.UUID
	if id == "" {
		id = row.UUID
	}
	if id == "" {
		id = fmt.Sprintf("stock/%d/%d", row.Tx, row.Offset)
	}
	if !isID(id) {
		id = RowID(id).String()
	}
	e, err := FromTopic(r.topic(w.Topic), id, w.Metadata, w.Payload, WithTime(row.CreatedAt))
	if err != nil {
		return e, fmt.Errorf("destination topic %q: %w", OneLine(w.Topic), err)
	}
	if r.OrderingKey != "" {
		e.OrderingKey = e.Metadata[r.OrderingKey]
	}
	e.TraceParent, e.TraceState = e.Metadata[HeaderTraceParent], e.Metadata[HeaderTraceState]
	delete(e.Metadata, HeaderTraceParent)
	delete(e.Metadata, HeaderTraceState)
	return e, nil
}

// A FeedResult tells what one step of a feed did; see the forwarder's feeds.
type FeedResult struct {
	Moved int    // messages put into the outbox
	Left  int    // rows that hold no message that can be sent; they stay where they are, with the reason noted
	More  bool   // there is more to do at once
	Waits string // who works on it at the moment, so that nothing could be done; empty if nobody
}

// StockState is what there is in a stock outbox.
type StockState struct {
	Topic  string
	Rows   int64         // that wait to be moved
	Oldest time.Duration // age of the oldest, by the database's clock
	Left   int64         // that cannot be moved
	Sample []StockLeft   // some of these, the first ones
}

// A StockLeft is a row of a stock outbox that cannot be moved.
type StockLeft struct {
	Offset int64
	Tx     uint64
	Reason string
}
