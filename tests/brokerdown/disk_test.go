//go:build linux && root

package brokerdown

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/natsproc"
	"github.com/millbridge/millbridge/internal/testkit/smalldisk"
)

// The disk of the server is full. It gives JetStream up, as it does until it is started again with room on its disk; the
// outbox keeps what comes meanwhile.
func TestServer_disk_is_full(t *testing.T) {
	dir := smalldisk.Mount(t, 96)
	server := natsproc.StartIn(t, dir)
	w := open(t, setting{servers: []string{server.URL()}})
	w.again(t, times(2, 10), func(int) {
		free := smalldisk.FillUp(t, dir)
		w.unwell(t)
		free()
		cmd := server.RestartCommand()
		if out, err := exec.CommandContext(t.Context(), cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("restart: %v: %s", err, out)
		}
	})
	w.finish(t)
}

// unwell waits until something is wrong in the eyes of a bridge.
func (w *world) unwell(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		if len(w.problems(t)) == 0 {
			return errors.New("all is well")
		}
		return nil
	})
}
