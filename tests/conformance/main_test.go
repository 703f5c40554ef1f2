//go:build unix

package conformance

import (
	"os"
	"testing"

	"github.com/millbridge/millbridge/internal/testkit/pubsubtest"
)

func TestMain(m *testing.M) {
	pubsubtest.Main()
	os.Exit(m.Run())
}
