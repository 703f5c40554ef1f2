package main

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/schema"
)

const (
	payloadBytes = 256
	// keys is how many ordering keys the messages are spread over.
	keys = 1000

	target, action = "bench", "place"
	// jobSubject and jobStream are where Millbridge puts the jobs.
	jobSubject = "mb.jobs." + target + "." + action
	jobStream  = "MB_JOBS"
)

const firstNumber = 1_000_000_000 // so that all numbers have the same length

// payload is a JSON document of 256 bytes with the message's number in front.
func payload(seq int) []byte {
	b := make([]byte, 0, payloadBytes)
	b = fmt.Appendf(b, `{"seq":%d,"order_id":"ord-%08d","customer":%q,"currency":"EUR","amount":12999,"status":"placed","note":"`,
		firstNumber+seq, seq, keyOf(seq))
	b = append(b, bytes.Repeat([]byte("x"), payloadBytes-len(b)-2)...)
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

// metadata has six entries.
func metadata(seq int) map[string]string {
	return map[string]string{
		"event_type":     "OrderPlaced",
		"aggregate_id":   "ord-" + strconv.Itoa(seq),
		"correlation_id": "3f0e7c1a-5b52-4f0e-9a55-1f6f7a3e2b10",
		"tenant":         "acme",
		"schema":         "v1",
		"source":         "checkout",
	}
}

func envelope(seq int, opts ...schema.Option) schema.Envelope {
	return schema.NewJob(target, action, payload(seq), append(opts, schema.WithMetadata(metadata(seq)))...)
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
