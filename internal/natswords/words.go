// Package natswords says in plain words what a fault of NATS means.
package natswords

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Unreachable is what there is to say while there is no connection.
const Unreachable = "NATS cannot be reached"

// Codes of the server (nats-server, server/errors.json).
const (
	codeAccountFull     = 10002
	codeNotAvailable    = 10008
	codeNotLeader       = 10009
	codeNoConsumer      = 10014
	codeNoResources     = 10023
	codeStorageFull     = 10047
	codeNoStream        = 10059
	codeStoreFailed     = 10077
	codeStreamOffline   = 10118
	codeConsumerOffline = 10119
)

// An explained error says what it means before what it is.
type explained struct {
	words string
	err   error
}

func (e *explained) Unwrap() error { return e.err }

func (e *explained) Error() string {
	// What the client says of a connection without a buffer that is down would mislead.
	return e.words + ": " + strings.ReplaceAll(e.err.Error(), nats.ErrReconnectBufExceeded.Error(), "not connected")
}

// Explain puts before an error of the NATS client or server what it means. It returns all other errors as they are; a
// timeout is taken for one of a question to NATS.
func Explain(err error) error {
	var done *explained
	if err == nil || errors.As(err, &done) {
		return err
	}
	if w := words(err); w != "" {
		return &explained{w, err}
	}
	return err
}

func words(err error) string {
	switch codeOf(err) {
	case codeNoStream:
		return "the stream is missing"
	case codeNoConsumer:
		return "the consumer is missing"
	case codeStoreFailed:
		if strings.Contains(err.Error(), "maximum") {
			return "the stream is full"
		}
		return "the server cannot store" // its disk is full, or broken
	case codeAccountFull, codeNoResources, codeStorageFull:
		return "the server has no room"
	case codeNotAvailable, codeNotLeader, codeStreamOffline, codeConsumerOffline:
		return "JetStream has no leader"
	}
	for _, target := range []error{
		nats.ErrReconnectBufExceeded, nats.ErrDisconnected, nats.ErrConnectionReconnecting, nats.ErrNoServers,
		nats.ErrStaleConnection, nats.ErrConnectionClosed,
	} {
		if errors.Is(err, target) {
			return Unreachable
		}
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return "nobody answers: JetStream has no leader, or is not there"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return "no answer from NATS: the network or the server is slow or dead, or JetStream has no leader"
	}
	return ""
}

// codeOf returns the server's code in err, or 0. Errors that are not the client library's have the method ServerCode.
func codeOf(err error) int {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return int(api.ErrorCode)
	}
	var own interface{ ServerCode() int }
	if errors.As(err, &own) {
		return own.ServerCode()
	}
	return 0
}
