package brokerdown

import (
	"os/exec"
	"testing"

	"github.com/millbridge/millbridge/internal/testkit/natsproc"
)

// times is how often something is done to the broker.
func times(short, most int) int {
	if long {
		return most
	}
	return short
}

// The server's process is killed and started again, again and again.
func TestServer_killed(t *testing.T) {
	t.Parallel()
	server := natsproc.Start(t)
	w := open(t, setting{servers: []string{server.URL()}})
	w.again(t, times(3, 30), func(i int) {
		cmd := server.RestartCommand()
		if out, err := exec.CommandContext(t.Context(), cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("restart: %v: %s", err, out)
		}
	})
	w.finish(t)
}
