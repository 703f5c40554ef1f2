package jetstream

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	const server = "github.com/nats-io/nats-server/v2/server"
	// A server that is stopped leaves the files of batches that were open then to goroutines of its own.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction(server+".(*msgBlock).flushLoop"),
		goleak.IgnoreTopFunction(server+".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction(server+"/ats.Register.func1"),
	)
}
