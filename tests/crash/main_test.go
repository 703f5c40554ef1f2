//go:build linux

package crash

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "github.com/millbridge/millbridge/internal/cli" // or go test takes a result from before a change for one after it
	"github.com/millbridge/millbridge/internal/testkit/natsproc"
)

var (
	seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of all chance")
	keep = flag.String("keep", "", "keep the logs of what went wrong in this directory")
)

var built string // directory of the programs

func TestMain(m *testing.M) {
	natsproc.Main()
	flag.Parse()
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// programs builds the programs with kill points and returns their paths.
var programs = sync.OnceValues(func() (map[role]string, error) {
	dir, err := os.MkdirTemp("", "millbridge-crash-")
	if err != nil {
		return nil, err
	}
	built = dir
	bridge, shop := filepath.Join(dir, "millbridge"), filepath.Join(dir, "shop")
	return map[role]string{forwarder: bridge, operator: bridge, producer: shop, worker: shop},
		goCommand("build", "-tags", "killpoints", "-o", dir+"/", "./cmd/millbridge", "./tests/crash/shop")
})

func goCommand(args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", args, err, out)
	}
	return nil
}
