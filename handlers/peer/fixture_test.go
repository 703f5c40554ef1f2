package peer_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/peer"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

const (
	secretA = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	secretB = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

func secrets(texts ...string) []configgroup.Secret {
	var list []configgroup.Secret
	for _, text := range texts {
		list = append(list, configgroup.NewSecret(text))
	}
	return list
}

// store is what the tests need of a database.
type store interface {
	Unit(ctx context.Context, f func(schema.Unit) error) error
	RowReader(ref schema.ShardRef, shards int) schema.RowReader
}

// onBoth runs a test on each database.
func onBoth(t *testing.T, test func(t *testing.T, db store)) {
	t.Parallel()
	for kind, open := range map[string]func(*testing.T) store{
		"sqlite":   func(t *testing.T) store { t.Helper(); return testkit.SQLiteStore(t) },
		"postgres": func(t *testing.T) store { t.Helper(); return testkit.PostgresStore(t) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// published returns what is in the outbox of a database.
func published(t *testing.T, db store) (envs []schema.Envelope) {
	t.Helper()
	for _, stream := range schema.Streams {
		rows, err := db.RowReader(schema.ShardRef{Stream: stream}, 1).Read(context.WithoutCancel(t.Context()), schema.ReadParams{MaxRows: 1000, MaxBytes: 1 << 24})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			header, err := schema.ParseHeader(row.Block())
			if err != nil {
				t.Fatal(err)
			}
			env, err := schema.Decode(row.Subject, header, row.Payload)
			if err != nil {
				t.Fatal(err)
			}
			envs = append(envs, env)
		}
	}
	return envs
}

func ids(envs []schema.Envelope) []string {
	list := make([]string, len(envs))
	for i, env := range envs {
		list[i] = env.ID
	}
	slices.Sort(list)
	return list
}

// receiver returns a receiver called "there" that takes everything from "here".
func receiver(t *testing.T, store peer.Store, edits ...func(*peer.ReceiverConfig)) http.Handler {
	t.Helper()
	cfg := peer.ReceiverConfig{
		Origin: "there", Store: store, Logger: testkit.Logger(t),
		Senders: map[string]peer.Sender{"here": {Secrets: secrets(secretA), Allow: []string{"jobs.>", "events.>"}}},
	}
	for _, edit := range edits {
		edit(&cfg)
	}
	r, err := peer.NewReceiver(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

// config is that of a sender called "here".
func config(t *testing.T, address string) peer.Config {
	t.Helper()
	u, err := url.Parse(address + "/messages?path=hush")
	if err != nil {
		t.Fatal(err)
	}
	return peer.Config{URL: u, Origin: "here", Secrets: secrets(secretA), Settings: outbound.Settings{AllowPrivate: true}}
}

func sender(t *testing.T, address string, edits ...func(*peer.Config)) handlers.Handler {
	t.Helper()
	cfg := config(t, address)
	for _, edit := range edits {
		edit(&cfg)
	}
	h, err := peer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// full has a value in each field that travels.
func full(env schema.Envelope) schema.Envelope {
	env.Key, env.OrderingKey, env.Tenant, env.Actor, env.RequestID = "k/ü 7", "o", "t", "a", "r"
	env.TraceParent, env.TraceState = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x=y"
	env.Metadata = map[string]string{"Colour": "rot\r\n\r\n", "plain": "100%", "empty": ""}
	env.Time, env.Source = time.Date(2026, 11, 30, 12, 0, 0, 5000, time.UTC), "/millbridge/first"
	return env
}

// keep is a store that keeps messages in memory, each id once.
type keep struct{ got map[string]schema.Envelope }

func (k *keep) store(_ context.Context, _ string, env schema.Envelope) (bool, error) {
	_, had := k.got[env.ID]
	if k.got == nil {
		k.got = map[string]schema.Envelope{}
	}
	k.got[env.ID] = env
	return had, nil
}

// readTo copies what is read.
func readTo(body io.ReadCloser, to io.Writer) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.TeeReader(body, to), body}
}
