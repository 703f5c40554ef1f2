package testkit_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
)

func TestNATS_restarts_with_its_streams_on_its_port(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	js := s.JetStream(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "A", Subjects: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "a", []byte("one")); err != nil {
		t.Fatal(err)
	}
	before := s.URL()
	s.Restart()
	if s.URL() != before {
		t.Errorf("URL is %s after the restart, was %s", s.URL(), before)
	}
	// The old connection finds its way back.
	testkit.Eventually(t, readyTimeout, func() error {
		_, err := js.Publish(t.Context(), "a", []byte("two"))
		return err
	})
	stream, err := js.Stream(t.Context(), "A")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetMsg(t.Context(), 1)
	if err != nil || string(msg.Data) != "one" {
		t.Errorf("first message %v, %v; want one", msg, err)
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := testkit.Cluster(t, 3)
	js := c.JetStream(t)
	cfg := jetstream.StreamConfig{Name: "A", Subjects: []string{"a"}, Replicas: 3}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	leader := c.Leader("A")
	if leader < 0 {
		t.Fatal("the new stream has no leader")
	}
	if err := c.StepDown("A"); err != nil {
		t.Fatal(err)
	}
	awaitLeader(t, c)

	killed := c.Leader("A")
	c.Kill(killed)
	testkit.Eventually(t, readyTimeout, func() error {
		_, err := js.Publish(t.Context(), "a", nil)
		return err
	})
	c.Restart(killed)
	c.AwaitReady()
	awaitLeader(t, c)
}
