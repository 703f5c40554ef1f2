package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

// exampleServer runs a NATS server on the example configuration, with only its address and directory changed.
func exampleServer(t *testing.T) *server.Server {
	t.Helper()
	text, err := os.ReadFile("../deploy/nats-server.conf")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	conf := string(text)
	for old, changed := range map[string]string{`"0.0.0.0:4222"`: `"127.0.0.1:-1"`, `"/var/lib/nats"`: `"` + dir + `"`} {
		if strings.Count(conf, old) != 1 {
			t.Fatalf("nats-server.conf does not have %s once", old)
		}
		conf = strings.Replace(conf, old, changed, 1)
	}
	file := filepath.Join(dir, "nats-server.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatalf("nats-server.conf: %v", err)
	}
	opts.NoSigs, opts.NoLog = true, true
	srv, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return srv
}

func TestDeploy_nats_permissions_are_enough_and_no_more(t *testing.T) {
	t.Parallel()
	srv := exampleServer(t)
	if !srv.JetStreamConfig().SyncAlways {
		t.Error("the example server acknowledges before it syncs")
	}
	user := func(name string) *nats.Conn {
		quiet := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}) // refusals are expected
		nc, err := nats.Connect(srv.ClientURL(), nats.UserInfo(name, "change-me-"+name), quiet)
		if err != nil {
			t.Fatalf("connect as %s: %v", name, err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	bridge, partner, nudge := user("bridge"), user("partner"), user("nudge")
	ctx := t.Context()

	js := testkit.JetStream(t, bridge)
	if err := jetstream.EnsureStreams(ctx, js, jetstream.StreamsConfig{}); err != nil {
		t.Fatalf("create the streams as bridge: %v", err)
	}
	nudged, err := bridge.SubscribeSync(jetstream.NudgeSubject(schema.Subjects{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := bridge.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := nudge.Publish(jetstream.NudgeSubject(schema.Subjects{}), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := nudged.NextMsg(10 * time.Second); err != nil {
		t.Errorf("the nudge did not arrive: %v", err)
	}

	events := schema.Subjects{}.StreamName(schema.Events)
	consumer := natsjs.ConsumerConfig{Durable: "partner", FilterSubject: "mb.events.public.>", AckPolicy: natsjs.AckExplicitPolicy}
	if _, err := js.CreateConsumer(ctx, events, consumer); err != nil {
		t.Fatal(err)
	}
	for _, v := range []schema.Visibility{schema.Internal, schema.Public} {
		if _, err := js.Publish(ctx, schema.Subjects{}.Full(schema.EventSubject(v, "order.placed")), []byte(v)); err != nil {
			t.Fatalf("publish as bridge: %v", err)
		}
	}
	reply, err := partner.Request("$JS.API.CONSUMER.MSG.NEXT."+events+".partner", []byte(`{"batch":1,"expires":5000000000}`), 10*time.Second)
	if err != nil || string(reply.Data) != string(schema.Public) {
		t.Errorf("the partner reads %v, %v; want the public event", reply, err)
	}
	// What a user may not do gets no answer.
	for name, nc := range map[string]*nats.Conn{"partner": partner, "nudge": nudge} {
		for _, subject := range []string{"$JS.API.STREAM.MSG.GET." + events, "$JS.API.STREAM.PURGE." + events, "mb.jobs.crm.sync"} {
			if reply, err := nc.Request(subject, []byte(`{"seq":1}`), 300*time.Millisecond); err == nil {
				t.Errorf("%s gets an answer from %s: %s", name, subject, reply.Data)
			}
		}
	}
	if info, err := js.Stream(ctx, events); err != nil || info.CachedInfo().State.Msgs != 2 {
		t.Errorf("stream %v, %v; want the two events", info, err)
	}
}
