package main

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/schema"
)

// work is what a message carries: a payload of some bytes and some metadata entries.
type work struct{ payload, metadata int }

// usual is the work of all scenarios but one.
var usual = work{payload: 256, metadata: 6}

const (
	// keys is how many ordering keys the messages are spread over.
	keys = 1000

	target, action = "bench", "place"
	// jobSubject and jobStream are where Millbridge puts the jobs.
	jobSubject = "mb.jobs." + target + "." + action
	jobStream  = "MB_JOBS"
)

const firstNumber = 1_000_000_000 // so that all numbers have the same length

func payload(seq int) []byte { return usual.payloadOf(seq) }

// payloadOf is a JSON document with the message's number in front.
func (w work) payloadOf(seq int) []byte {
	b := make([]byte, 0, w.payload)
	b = fmt.Appendf(b, `{"seq":%d,"order_id":"ord-%08d","customer":%q,"currency":"EUR","amount":12999,"status":"placed","note":"`,
		firstNumber+seq, seq, keyOf(seq))
	b = append(b, bytes.Repeat([]byte("x"), w.payload-len(b)-2)...)
	return append(b, `"}`...)
}

// seqOf reads the number of a message back, also from JSON that a database has formatted anew; -1 if there is none.
func seqOf(payload []byte) int {
	_, rest, ok := bytes.Cut(payload, []byte(`"seq":`))
	rest = bytes.TrimLeft(rest, " ")
	const digits = 10
	if !ok || len(rest) < digits {
		return -1
	}
	v, err := strconv.Atoi(string(rest[:digits]))
	if err != nil {
		return -1
	}
	return v - firstNumber
}

// keyOf is the key that a message shares its order with.
func keyOf(seq int) string { return fmt.Sprintf("cust-%06d", seq%keys) }

func metadata(seq int) map[string]string { return usual.metadataOf(seq) }

func (w work) metadataOf(seq int) map[string]string {
	all := map[string]string{}
	for i, entry := range [][2]string{
		{"event_type", "OrderPlaced"},
		{"aggregate_id", "ord-" + strconv.Itoa(seq)},
		{"correlation_id", "3f0e7c1a-5b52-4f0e-9a55-1f6f7a3e2b10"},
		{"tenant", "acme"},
		{"schema", "v1"},
		{"source", "checkout"},
	} {
		if i < w.metadata {
			all[entry[0]] = entry[1]
		}
	}
	for len(all) < w.metadata {
		all[fmt.Sprintf("label_%02d", len(all))] = fmt.Sprintf("value-%d", seq)
	}
	return all
}

func envelope(seq int, opts ...schema.Option) schema.Envelope { return usual.envelope(seq, opts...) }

func (w work) envelope(seq int, opts ...schema.Option) schema.Envelope {
	return schema.NewJob(target, action, w.payloadOf(seq), append(opts, schema.WithMetadata(w.metadataOf(seq)))...)
}

// ordered gives a message its ordering key.
func ordered(seq int) schema.Option { return schema.WithOrderingKey(keyOf(seq)) }

// wire is the message that a forwarder sends for an envelope.
func wire(e schema.Envelope) (*nats.Msg, error) {
	header, err := schema.ParseHeader(schema.EncodeHeader(e))
	if err != nil {
		return nil, err
	}
	header[schema.HeaderSource] = []string{schema.SourceOf("bench")}
	return &nats.Msg{Subject: jobSubject, Header: header, Data: e.Payload}, nil
}

func wires(n int) ([]*nats.Msg, error) {
	all := make([]*nats.Msg, n)
	for i := range all {
		m, err := wire(envelope(i, ordered(i)))
		if err != nil {
			return nil, err
		}
		all[i] = m
	}
	return all, nil
}
