package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/millbridge/millbridge/internal/testkit"
)

// file writes a file of the test's own.
func file(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestConnect_signs_in_to_NATS uses each way to sign in, right and wrong.
func TestConnect_signs_in_to_NATS(t *testing.T) {
	t.Parallel()
	pool := testkit.Postgres(t)
	key, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := key.Seed()
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	pki := testkit.NewPKI(t)
	for name, c := range map[string]struct {
		edit        func(o *server.Options)
		right, lack []string // settings
		cause       string   // of what is wrong when one is lacking
	}{
		"token": {
			func(o *server.Options) { o.Authorization = "the-token" },
			[]string{"nats.token_file=" + file(t, "token", []byte("the-token\n"))},
			[]string{"nats.token=another"},
			"Authorization Violation",
		},
		"user": {
			func(o *server.Options) { o.Username, o.Password = "bridge", "the-password" },
			[]string{"nats.user=bridge", "nats.password_file=" + file(t, "password", []byte("the-password\n"))},
			[]string{"nats.user=bridge", "nats.password=x"},
			"Authorization Violation",
		},
		"nkey": {
			func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} },
			[]string{"nats.nkey_file=" + file(t, "seed", seed)},
			[]string{"nats.token=x"},
			"Authorization Violation",
		},
		"tls": {
			func(o *server.Options) { o.TLSConfig, o.TLSVerify = pki.Server, true },
			[]string{"nats.tls.ca_file=" + pki.CA, "nats.tls.cert_file=" + pki.Cert, "nats.tls.key_file=" + pki.Key},
			[]string{"nats.tls.ca_file=" + pki.CA},
			"", // the server's refusal, or that it hung up
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testkit.NATS(t, c.edit)
			status := func(settings []string) result {
				args := []string{"status", "--json", "--database-url", testkit.PostgresURL(pool), "--nats-url", s.URL()}
				for _, set := range settings {
					args = append(args, "--set", set)
				}
				return call(t, "", nil, args...)
			}
			reachable := func(r result) any { return r.objects(t)[0]["nats"].(map[string]any)["reachable"] }
			if r := status(c.right); reachable(r) != true {
				t.Errorf("signed in: %s", r)
			}
			for _, settings := range [][]string{c.lack, nil} {
				testkit.Eventually(t, testTimeout, func() error { // the second try has to come in time
					r := status(settings)
					if reachable(r) != false || r.code != 3 || !strings.Contains(r.stdout, "NATS cannot be reached: ") || !strings.Contains(r.stdout, c.cause) {
						return fmt.Errorf("%q: %s", settings, r)
					}
					return nil
				})
			}
		})
	}
}
