package webhook_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/schema"
)

// signingKey and verifyingKey are a key pair.
var (
	signingKey   = "whsk_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	verifyingKey = must(webhook.PublicKey(signingKey))
)

func newServer(t *testing.T, cfg webhook.ReceiverConfig, next http.HandlerFunc) *httptest.Server {
	t.Helper()
	if cfg.Keys == nil {
		cfg.Keys = texts(newSecret)
	}
	r, err := webhook.NewReceiver(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(r.Handler(next))
	server.Config.ErrorLog = quiet()
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// signed returns a request as a sender makes it.
func signed(t *testing.T, url, id, body string, secrets ...string) *http.Request {
	t.Helper()
	if secrets == nil {
		secrets = []string{newSecret}
	}
	now := time.Now()
	var entries []string
	for _, s := range secrets {
		entries = append(entries, must(webhook.Sign(s, id, now, []byte(body))))
	}
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body)))
	req.Header.Set(webhook.HeaderID, id)
	req.Header.Set(webhook.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(webhook.HeaderSignature, strings.Join(entries, " "))
	return req
}

// wantAnswer sends a request, checks the status and returns what else was answered.
func wantAnswer(t *testing.T, req *http.Request, status int) (http.Header, string) {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		t.Errorf("answered %d %.200q, error %v; want %d", res.StatusCode, body, err, status)
	}
	return res.Header, string(body)
}

func TestReceiver_lets_through_what_is_genuine(t *testing.T) {
	t.Parallel()
	var got []string
	var logs bytes.Buffer
	server := newServer(t, webhook.ReceiverConfig{
		Keys: texts(newSecret, verifyingKey), MaxBody: 100, Logger: slog.New(slog.NewTextHandler(&logs, nil)),
	}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(body)) {
			t.Errorf("length %d, body %q, error %v", r.ContentLength, body, err)
		}
		got = append(got, r.Header.Get("webhook-id")+string(body))
		w.Header().Set("X-Own", "yes")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "taken")
	})
	header, body := wantAnswer(t, signed(t, server.URL, "a", "1"), http.StatusAccepted)
	if header.Get("X-Own") != "yes" || body != "taken" {
		t.Errorf("answer %v %q", header, body)
	}
	wantAnswer(t, signed(t, server.URL, "b", "2", signingKey), http.StatusAccepted)
	wantAnswer(t, signed(t, server.URL, "c", "3", oldSecret, signingKey), http.StatusAccepted)
	wantAnswer(t, signed(t, server.URL, "c", "3"), http.StatusAccepted) // without a ledger, as often as it comes
	wantAnswer(t, signed(t, server.URL, "d", strings.Repeat("x", 100)), http.StatusAccepted)

	other := "whsk_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{8}, 32))
	_, text := wantAnswer(t, signed(t, server.URL, "e", "x", oldSecret, other), http.StatusUnauthorized)
	if text != "Unauthorized\n" {
		t.Errorf("the answer says %q", text)
	}
	forged := signed(t, server.URL, "f", "x")
	forged.Body, forged.ContentLength = io.NopCloser(strings.NewReader("y")), 1
	wantAnswer(t, forged, http.StatusUnauthorized)
	old := signed(t, server.URL, "g", "x")
	at := time.Now().Add(-6 * time.Minute)
	old.Header.Set(webhook.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	old.Header.Set(webhook.HeaderSignature, must(webhook.Sign(newSecret, "g", at, []byte("x"))))
	wantAnswer(t, old, http.StatusUnauthorized)
	wantAnswer(t, must(http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil)), http.StatusUnauthorized)
	wantAnswer(t, signed(t, server.URL, "h", strings.Repeat("x", 101)), http.StatusRequestEntityTooLarge)
	get := signed(t, server.URL, "i", "x")
	get.Method = http.MethodGet
	wantAnswer(t, get, http.StatusMethodNotAllowed)

	if len(got) != 5 || got[0] != "a1" || got[1] != "b2" || got[2] != "c3" {
		t.Errorf("handled %q", got)
	}
	if text := logs.String(); strings.Count(text, "webhook refused") != 6 || !strings.Contains(text, "signed 6m") {
		t.Errorf("logged %s", text)
	}
}

func TestReceiver_refuses_bad_settings(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]webhook.ReceiverConfig{
		"there is no key":           {},
		"key 2 must begin with":     {Keys: texts(newSecret, "SECRET123")},
		"key 1 must be whpk_":       {Keys: texts("whpk_SECRET123")},
		"limits must not be":        {Keys: texts(newSecret), MaxBody: -1},
		"limits must not be negati": {Keys: texts(newSecret), Tolerance: -1},
	} {
		if _, err := webhook.NewReceiver(cfg); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET123") {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// notes is a receiver's own database.
type notes struct {
	*sql.DB
	fail atomic.Bool // the next commit fails
}

func openNotes(t *testing.T) *notes {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "notes.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(30000)&_pragma=foreign_keys(1)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for _, stmt := range []string{
		"CREATE TABLE taken (id text PRIMARY KEY)", "CREATE TABLE orders (body text)",
		"CREATE TABLE never (x text REFERENCES taken (id) DEFERRABLE INITIALLY DEFERRED)",
	} {
		if _, err := db.ExecContext(t.Context(), stmt); err != nil {
			t.Fatal(err)
		}
	}
	return &notes{DB: db}
}

func (n *notes) ledger() webhook.Ledger {
	return webhook.InTx(n.DB, func(ctx context.Context, tx *sql.Tx, id string) (bool, error) {
		res, err := tx.ExecContext(ctx, "INSERT INTO taken VALUES (?) ON CONFLICT DO NOTHING", id)
		if err != nil {
			return false, err
		}
		rows, err := res.RowsAffected()
		return rows == 1, err
	})
}

// order writes the body, in the request's transaction.
func (n *notes) order(r *http.Request) error {
	tx, ok := webhook.Tx(r.Context())
	if !ok {
		return errors.New("no transaction")
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		_, err = tx.ExecContext(r.Context(), "INSERT INTO orders VALUES (?)", string(body))
	}
	if err == nil && n.fail.Load() { // a reference to nothing is found out at the commit
		_, err = tx.ExecContext(r.Context(), "INSERT INTO never (x) VALUES ('nothing')")
	}
	return err
}

func (n *notes) count(t *testing.T, table string) (rows int) {
	t.Helper()
	if err := n.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// Each ledger takes each message once, and forgets what was not taken.
func TestReceiver_takes_each_message_once(t *testing.T) {
	t.Parallel()
	for name, ledger := range map[string]func(*notes) webhook.Ledger{
		"memory":      func(*notes) webhook.Ledger { return webhook.NewMemory(10) },
		"transaction": func(n *notes) webhook.Ledger { return n.ledger() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openNotes(t)
			var what atomic.Value
			var calls atomic.Int64
			what.Store("")
			server := newServer(t, webhook.ReceiverConfig{Ledger: ledger(db)}, func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				if _, ok := webhook.Tx(r.Context()); ok {
					if err := db.order(r); err != nil {
						t.Error(err)
					}
				}
				switch what.Load() {
				case "refuse":
					http.Error(w, "not now", http.StatusTeapot)
				case "panic":
					panic(http.ErrAbortHandler)
				case "flood":
					for range 3 {
						_, _ = w.Write(make([]byte, 1<<19))
					}
				}
			})
			what.Store("refuse")
			if _, text := wantAnswer(t, signed(t, server.URL, "a", "1"), http.StatusTeapot); text != "not now\n" {
				t.Errorf("answered %q", text)
			}
			what.Store("panic")
			if res, err := http.DefaultClient.Do(signed(t, server.URL, "a", "1")); err == nil {
				res.Body.Close()
				t.Errorf("a panic is answered with %d", res.StatusCode)
			}
			what.Store("flood")
			wantAnswer(t, signed(t, server.URL, "a", "1"), http.StatusInternalServerError)
			what.Store("")
			if rows := db.count(t, "orders") + db.count(t, "taken"); rows != 0 {
				t.Errorf("%d rows of what was not taken", rows)
			}
			for range 3 {
				status := http.StatusOK
				if calls.Load() > 3 {
					status = http.StatusNoContent
				}
				wantAnswer(t, signed(t, server.URL, "a", "1"), status)
			}
			wantAnswer(t, signed(t, server.URL, "b", "1"), http.StatusOK)
			if n := calls.Load(); n != 5 {
				t.Errorf("%d calls, want 3 that fail and one for each message", n)
			}
			if name == "transaction" && (db.count(t, "orders") != 2 || db.count(t, "taken") != 2) {
				t.Errorf("%d orders, %d ids", db.count(t, "orders"), db.count(t, "taken"))
			}
		})
	}
}

func TestReceiver_at_the_same_time(t *testing.T) {
	t.Parallel()
	db := openNotes(t)
	server := newServer(t, webhook.ReceiverConfig{Ledger: db.ledger()}, func(w http.ResponseWriter, r *http.Request) {
		if err := db.order(r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	var wg sync.WaitGroup
	for range 4 {
		for _, id := range []string{"a", "b", "c"} {
			wg.Go(func() {
				req := signed(t, server.URL, id, id)
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				res.Body.Close()
				if res.StatusCode/100 != 2 {
					t.Errorf("%s: %d", id, res.StatusCode)
				}
			})
		}
	}
	wg.Wait()
	if n := db.count(t, "orders"); n != 3 {
		t.Errorf("%d orders of 3 messages", n)
	}
}

// What was not committed was not taken, whatever the handler has answered.
func TestReceiver_answers_after_the_commit(t *testing.T) {
	t.Parallel()
	db := openNotes(t)
	server := newServer(t, webhook.ReceiverConfig{Ledger: db.ledger()}, func(w http.ResponseWriter, r *http.Request) {
		if err := db.order(r); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, "fine")
	})
	db.fail.Store(true)
	if _, text := wantAnswer(t, signed(t, server.URL, "a", "1"), http.StatusInternalServerError); strings.Contains(text, "fine") {
		t.Errorf("answered %q", text)
	}
	if n := db.count(t, "orders") + db.count(t, "taken"); n != 0 {
		t.Errorf("%d rows", n)
	}
	db.fail.Store(false)
	wantAnswer(t, signed(t, server.URL, "a", "1"), http.StatusOK)
}

func TestMemory_message_in_progress(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	server := newServer(t, webhook.ReceiverConfig{Ledger: webhook.NewMemory(1)}, func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-release
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		wantAnswer(t, signed(t, server.URL, "a", "1"), http.StatusOK)
	}()
	<-entered
	if header, _ := wantAnswer(t, signed(t, server.URL, "a", "1"), http.StatusServiceUnavailable); header.Get("Retry-After") != "" {
		t.Errorf("headers %v", header)
	}
	close(release)
	<-done
	wantAnswer(t, signed(t, server.URL, "a", "1"), http.StatusNoContent)
}

func TestMemory_forgets_the_oldest(t *testing.T) {
	t.Parallel()
	m := webhook.NewMemory(3)
	take := func(id string) bool {
		first, err := m.Once(t.Context(), id, func(context.Context) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return first
	}
	for i := range 10 {
		if !take(strconv.Itoa(i)) {
			t.Errorf("%d is no new one", i)
		}
	}
	for _, id := range []string{"9", "8", "7"} {
		if take(id) {
			t.Errorf("%s is forgotten", id)
		}
	}
	if !take("6") || take("9") || !take("7") {
		t.Error("not the oldest is forgotten")
	}
}

// Target and receiver together: however often a message is sent, it is taken once.
func TestTarget_and_receiver_take_a_message_once(t *testing.T) {
	t.Parallel()
	handlertest.CheckIdempotent(t, func() handlertest.World {
		db := openNotes(t)
		server := newServer(t, webhook.ReceiverConfig{Keys: []configgroup.Secret{text(verifyingKey)}, Ledger: db.ledger()}, func(w http.ResponseWriter, r *http.Request) {
			if err := db.order(r); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
		return handlertest.World{
			Handler: func() handlers.Handler {
				return newHook(t, webhook.Config{URL: text(server.URL), Secrets: texts(signingKey)})
			},
			State: func() any { return db.count(t, "orders") },
		}
	}, schema.NewJob("t", "a", []byte("1")), schema.NewJob("t", "a", []byte("2")))
}
