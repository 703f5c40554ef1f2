package webhook

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
)

// A body that does not come holds nobody up, whatever the server's own limits are.
func TestReceiver_gives_up_on_a_slow_body(t *testing.T) {
	t.Parallel()
	r, err := NewReceiver(ReceiverConfig{Keys: []configgroup.Secret{configgroup.NewSecret(secretA)}})
	if err != nil {
		t.Fatal(err)
	}
	if r.bodyTime <= 0 || r.bodyTime > time.Minute {
		t.Errorf("a body may take %v", r.bodyTime)
	}
	r.bodyTime = 50 * time.Millisecond
	server := httptest.NewServer(r.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("handled") })))
	t.Cleanup(server.Close)
	body, feed := io.Pipe()
	t.Cleanup(func() { feed.Close() })
	go func() { _, _ = feed.Write([]byte("x")) }()
	res, err := http.Post(server.URL, "text/plain", body)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusRequestTimeout {
		t.Errorf("answered %d", res.StatusCode)
	}
}
