package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millbridge/millbridge/internal/testkit"
)

const marker = "SECRET123"

// TestC37_secrets_are_never_printed checks the part of the case that the command line can break: addresses and keys that
// contain the marker, right and wrong, reachable or not, through every command, in logs at debug level too.
func TestC37_secrets_are_never_printed(t *testing.T) {
	t.Parallel()
	pool := testkit.Postgres(t)
	pg := pool.Config().ConnConfig
	open := testkit.NATS(t)
	closed := testkit.NATS(t, func(o *server.Options) { o.Authorization = "right" })
	at := func(url string) string { return strings.TrimPrefix(url, "nats://") }
	host := strings.TrimPrefix(testkit.PostgresURL(pool), "postgres://")
	_, host, _ = strings.Cut(host, "@")

	for name, c := range map[string]struct{ database, nats string }{
		"right":               {testkit.PostgresURL(pool) + "&application_name=" + "x", "nats://" + marker + "@" + at(open.URL())},
		"wrong user":          {"postgres://nobody:" + marker + "@" + host, open.URL()},
		"unreachable":         {"postgres://u:" + marker + "@127.0.0.1:1/d", "nats://u:" + marker + "@127.0.0.1:1"},
		"unknown host":        {"postgres://u:" + marker + "@no-such-host.invalid/d", "nats://" + marker + "@no-such-host.invalid:4222"},
		"bad database url":    {"postgres://u:" + marker + "@[::1/d", open.URL()},
		"bad database escape": {"postgres://u:" + marker + "%zz@127.0.0.1/d", open.URL()},
		"keyword form":        {"host=127.0.0.1 port=1 user=u password=" + marker + " dbname=d", open.URL()},
		"bad keyword form":    {"host=127.0.0.1 port=nope password=" + marker, open.URL()},
		"bad NATS url":        {testkit.PostgresURL(pool), "nats://u:" + marker + "@[::1"},
		"wrong NATS token":    {testkit.PostgresURL(pool), "nats://" + marker + "@" + at(closed.URL())},
		"wrong scheme":        {"mysql://u:" + marker + "@h/d", "http://" + marker + "@h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "millbridge.yaml")
			text := "database: {url: \"" + c.database + "\"}\nnats: {url: \"" + c.nats + "\"}\nlog: {level: debug}\n" +
				"targets: {crm: {type: webhook, url: \"https://hooks.example.com/" + marker + "/x?token=" + marker + "\", secrets: [whsec_SECRET123SECRET123SECRET123SECRE]}}\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			commands := [][]string{
				{"config", "check"}, {"config", "print"}, {"config", "print", "--json"}, {"status"}, {"publish", "job", "crm", "x"}, {"show", "x"}, {"migrate", "status"},
			}
			if name == "right" { // where others would only wait for the servers once more
				commands = append(commands, []string{"status", "--json"}, []string{"status", "--tally"}, []string{"outbox", "list"},
					[]string{"poison", "list"}, []string{"poison", "show", "x"}, []string{"poison", "replay", "--all", "--yes"})
			}
			for _, args := range commands {
				r := call(t, "", nil, append(args, "--config", file)...)
				if all := r.stdout + r.stderr; strings.Contains(all, marker) || strings.Contains(all, pg.Password) && pg.Password != "" {
					t.Errorf("%v prints a secret: %s", args, r)
				}
				if args[0] != "config" && (args[0] != "status" || len(args) > 1) {
					continue
				}
				// The same from the environment and from flags.
				r = call(t, "", map[string]string{"MILLBRIDGE_DATABASE_URL": c.database, "MILLBRIDGE_NATS_URL": c.nats}, args...)
				if strings.Contains(r.stdout+r.stderr, marker) {
					t.Errorf("%v prints a secret from the environment: %s", args, r)
				}
				r = call(t, "", nil, append(args, "--database-url", c.database, "--set", "nats.url="+c.nats)...)
				if strings.Contains(r.stdout+r.stderr, marker) {
					t.Errorf("%v prints a secret from a flag: %s", args, r)
				}
			}
		})
	}
}
