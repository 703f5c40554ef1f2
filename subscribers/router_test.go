package subscribers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/subscribers"
)

// Watermill's router cancels its subscriptions when it closes; a handler that runs must not notice.
func TestC08_RouterCloseLetsHandlersFinish(t *testing.T) {
	b := setup(t)
	b.publish(t, 1)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	started, result := make(chan struct{}), make(chan error, 2)
	router.AddConsumerHandler("slow", topic, b.subscriber(t, func(c *subscribers.Config) { c.CloseTimeout = 10 * time.Second }), func(m *message.Message) error {
		close(started)
		select {
		case <-time.After(500 * time.Millisecond):
		case <-m.Context().Done():
		}
		result <- m.Context().Err()
		return m.Context().Err()
	})
	ran := make(chan error, 1)
	go func() { ran <- router.Run(context.Background()) }()
	<-started
	if err := router.Close(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(<-result, <-ran); err != nil {
		t.Errorf("the handler or the router ended with %v", err)
	}
	b.left(t, 0)
}
