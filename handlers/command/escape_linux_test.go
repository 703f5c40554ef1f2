package command_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/command"
)

// A process that has left the group cannot be ended, but neither can it hold the handler by keeping the pipes open.
func TestHandle_does_not_wait_for_who_has_left_the_group(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	start := time.Now()
	answer, err := run(t, command.Config{
		Command: script(`setsid sh -c 'echo $$ > pids; exec sleep 60' & while [ ! -s pids ]; do sleep 0.01; done; echo '{"done":true}'`), Dir: dir, Report: true,
	}, job)
	if err != nil || answer != `{"done":true}` || time.Since(start) > 20*time.Second {
		t.Errorf("answer %q, error %v after %v", answer, err, time.Since(start))
	}
	text, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("it was not there any more, so nothing was tried: %v", err)
	}
}
