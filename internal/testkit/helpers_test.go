package testkit_test

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millbridge/millbridge/internal/testkit"
)

const readyTimeout = 60 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func awaitLeader(t *testing.T, c *testkit.NATSCluster) {
	t.Helper()
	testkit.Eventually(t, readyTimeout, func() error {
		if c.Leader("A") < 0 {
			return errors.New("the stream has no leader")
		}
		return nil
	})
}
