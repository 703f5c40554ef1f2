package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/config"
)

const full = `
data_dir: /var/lib/millbridge
prefix: shop
database:
  url: postgres://app:SECRET123@db:5432/shop?sslmode=require
  max_connections: 20
nats:
  url: [nats://n1:4222, nats://n2:4222]
  user: bridge
  password: SECRET123
  tls: {ca_file: /ca.pem, cert_file: /c.pem, key_file: /k.pem}
  replicas: 3
forward: false
events_ttl: 3d
stop_timeout: 45s
metrics: {listen: 127.0.0.1:9464}
log: {level: debug, format: json}
targets:
  crm:
    type: webhook
    url: https://crm.example.com/hooks/SECRET123
    secrets: [whsec_SECRET123SECRET123SECRET123SECRE]
    retry: {max_attempts: 5, base: 250ms, factor: 3, max: 1m, jitter: 0.1}
    timeout: 5s
    concurrency: 2
    rate: 12.5
    ordered: true
    breaker: {failures: 7, cooldown: 15s, disable_after: 5d}
    allow_private: true
  audit:
    type: webhook
    url: https://audit.example.com/
    events: [order.placed, invoice.>]
`

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("millbridge.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func value(t *testing.T, c *config.Config, key string) any {
	t.Helper()
	for _, v := range c.Values() {
		if v.Key == key {
			return v.Value
		}
	}
	t.Fatalf("there is no %s", key)
	return nil
}

func TestParse_reads_every_key(t *testing.T) {
	t.Parallel()
	c := parse(t, full)
	crm := c.Targets["crm"]
	got := fmt.Sprintln(c.DataDir, c.Prefix, c.Database.URL.Reveal(), c.Database.MaxConnections, len(c.NATS.URLs), c.NATS.URLs[1].Reveal(),
		c.NATS.User, c.NATS.Password.Reveal(), c.NATS.CAFile, c.NATS.CertFile, c.NATS.KeyFile, c.Replicas(), c.Forward, c.EventsTTL, c.StopTimeout, c.Metrics.Listen, c.Log,
		crm.Type, crm.Retry, crm.Timeout, crm.Concurrency, crm.Rate, crm.Ordered, crm.Breaker, value(t, c, "targets.crm.allow_private"),
		c.Redactor().Redact("whsec_SECRET123SECRET123SECRET123SECRE https://crm.example.com/hooks/SECRET123"),
		c.Targets["audit"].Events, c.TargetNames())
	want := "/var/lib/millbridge shop postgres://app:SECRET123@db:5432/shop?sslmode=require 20 2 nats://n2:4222 bridge SECRET123 /ca.pem /c.pem /k.pem " +
		"3 false 3d 45s 127.0.0.1:9464 {debug json} webhook {5 250ms 3 1m0s 0.1} 5s 2 12.5 true {7 15s 5d} true *** *** " +
		"[order.placed invoice.>] [audit crm]"
	if strings.Join(strings.Fields(got), " ") != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if c.Embedded() {
		t.Error("a configuration with both addresses is embedded")
	}
	if o := c.Origin("targets.crm.timeout"); o != "millbridge.yaml:24" {
		t.Errorf("origin of targets.crm.timeout = %s", o)
	}
}

func TestParse_empty_is_the_embedded_default(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# nothing\n", "---\n", "database:\nnats: {}\n", "null"} {
		c := parse(t, text)
		if !c.Embedded() || c.DataDir != "millbridge-data" || c.Replicas() != 1 || !c.Forward || time.Duration(c.EventsTTL) != 168*time.Hour {
			t.Errorf("%q gives %+v", text, c)
		}
	}
}

func TestParse_reports_all_faults_with_their_lines(t *testing.T) {
	t.Parallel()
	_, err := config.Parse("m.yaml", []byte(`
databse:
  url: x
nats:
  tsl: 1
  replicas: many
  token: a
  token_file: /b
stop_timeout: soon
forward: perhaps
prefix: [a, b]
prefix: c
log: text
targets:
  crm: {retry: {bse: 1s}, timeout: 1 year}
`))
	want := []string{
		`m.yaml:2: unknown key "databse": did you mean database?`,
		`m.yaml:5: unknown key "nats.tsl": did you mean nats.url?`,
		`m.yaml:6: nats.replicas: "many" is not a whole number`,
		`m.yaml:9: stop_timeout: "soon" is not a time span such as 500ms, 30s, 10m or 7d`,
		`m.yaml:10: forward: "perhaps" is neither true nor false`,
		`m.yaml:11: prefix: wants one value, not a list`,
		`m.yaml:12: prefix: is set twice`,
		`m.yaml:13: log: wants keys and values below it`,
		`m.yaml:15: unknown key "targets.crm.retry.bse": did you mean targets.crm.retry.base?`,
		`m.yaml:15: targets.crm.timeout: "1 year" is not a time span such as 500ms, 30s, 10m or 7d`,
		`m.yaml:7: nats.token: is set together with nats.token_file; keep one of them`,
	}
	if got := strings.Split(fmt.Sprint(err), "\n"); !slices.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
}

func TestParse_checks_values(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"prefix: a.b":                                                                 "m.yaml:1: prefix: must be",
		"nats: {url: 'nats://h'}":                                                     "m.yaml:1: nats.url: is set without database.url",
		"database: {url: 'postgres://h/d'}":                                           "database.url: is set without nats.url",
		"database: {url: 'mysql://h'}":                                                "database.url: is not an address",
		"nats: {url: 'http://h'}":                                                     "nats.url: is not an address",
		"nats: {token: a, user: b}":                                                   "nats.user: is set together with nats.token",
		"nats: {user: b}":                                                             "m.yaml:1: nats.user: is set without nats.url",
		"nats: {tls: {ca_file: a}}":                                                   "m.yaml:1: nats.tls.ca_file: is set without nats.url",
		"nats: {tls: {cert_file: a}}":                                                 "nats.tls.cert_file: and nats.tls.key_file go together",
		"nats: {replicas: 2}":                                                         "nats.replicas: must be 1, 3 or 5",
		"events_ttl: 1ms":                                                             "events_ttl: must be at least 1s",
		"metrics: {listen: 9464}":                                                     `metrics.listen: "9464" is not an address to listen on`,
		"log: {level: loud}":                                                          `log.level: "loud" is none of`,
		"targets: {crm: {type: webhook, timeout: 1s}}":                                "targets.crm.url: is missing",
		"targets: {Crm: {type: webhook, url: 'http://h'}}":                            `"Crm" is not a name`,
		"targets: {crm: {type: webhook, url: ftp://h}}":                               "targets.crm.url: is not an http or https address",
		"targets: {crm: {type: webhook, url: http://127.0.0.1/}}":                     "targets.crm.url: address 127.0.0.1 is not allowed",
		"targets: {crm: {type: webhook, url: http://h, secrets: [x]}}":                "targets.crm.secrets: number 1 ",
		"targets: {crm: {type: webhook, retry: {factor: 0.5}}}":                       "targets.crm.retry.factor: is 0.5, must be at least 1",
		"targets: {crm: {type: webhook, breaker: {failures: -1}}}":                    "targets.crm.breaker.failures: must be between",
		"targets: {crm: {type: webhook, breaker: {disable_after: -1s}}}":              "targets.crm.breaker.disable_after: must be 0",
		"targets: {crm: {type: webhook, breaker: {cooldown: 0s}}}":                    "targets.crm.breaker.cooldown: must be more than 0",
		"targets: {crm: {type: webhook, rate: -1}}":                                   "targets.crm.rate: must be between",
		"targets: {crm: {type: webhook, concurrency: 0}}":                             "targets.crm.concurrency: must be between",
		"targets: {crm: {type: webhook, url: 'http://h', events: ['a b', a.>, a.b]}}": `targets.crm.events: event "a b": want an event name`,
		"targets: {crm: {timeout: 1s}}":                                               "targets.crm.type: is missing; it must be one of ",
		"targets: {crm: {type: webhok}}":                                              `targets.crm.type: is "webhok", must be one of `,
		"targets: {crm: {url: x}}":                                                    `unknown key "targets.crm.url": targets.crm.type is not set`,
		"targets: {crm: {type: webhook, url: 'http://h', tls: {cert_file: a}}}":       "targets.crm.tls.cert_file: goes together with",
		"targets:\n  crm: {type: webhook, url: 'http://h',\n    headers: {Host: x}}":  "m.yaml:3: targets.crm.headers",
		"targets: {mb-x: {type: exec, command: [/bin/true]}}":                         "m.yaml:1: targets.mb-x: names that start with mb- are ours",
		"targets: {a: &d {type: exec}, b: {<<: *d}}":                                  "m.yaml:1: targets.b.<<: maps are not merged",
		"targets: {a: {type: exec, command: [/x], env: {<<: {A: b}}}}":                "targets.a.env: line 1: maps are not merged",
		"a: b\n---\nc: d":                                                             "has more than one document",
		"targets: {crm: {type: webhook, retry: {base: 1s, base: 2s}}":                 "did not find expected",
		"x: &a [1, 2]\nprefix: *a":                                                    "m.yaml:2: prefix: wants one value",
	} {
		if _, err := config.Parse("m.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func env(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad_flag_beats_environment_beats_file_beats_default(t *testing.T) {
	t.Parallel()
	src := config.Source{File: write(t, "m.yaml", full)}
	level := func() string {
		c, err := config.Load(src)
		if err != nil {
			t.Fatal(err)
		}
		return c.Log.Level + " from " + strings.TrimPrefix(c.Origin("log.level"), src.File)
	}
	if got := level(); got != "debug from :17" {
		t.Error(got)
	}
	src.Getenv = env("MILLBRIDGE_LOG_LEVEL", "warn")
	if got := level(); got != "warn from environment MILLBRIDGE_LOG_LEVEL" {
		t.Error(got)
	}
	src.Sets = []config.Set{{Flag: "--log-level", Key: "log.level", Value: "error"}}
	if got := level(); got != "error from flag --log-level" {
		t.Error(got)
	}
}

func TestLoad_every_key_from_the_environment(t *testing.T) {
	t.Parallel()
	samples := map[string]string{
		"prefix": "p", "database.url": "postgres://h/d", "database.max_connections": "3", "nats.url": "nats://a, nats://b",
		"nats.replicas": "1", "stock.tables": "outbox, audit", "stock.consumer_group": "shop", "stock.topics": "a=jobs.b.c, *=events.*", "stock.ordering_key": "order", "forward": "false", "events_ttl": "1d", "stop_timeout": "1s", "metrics.listen": ":9464", "log.level": "warn", "log.format": "json",
		"nats.token": "tok", "nats.tls.cert_file": "/c", "nats.tls.key_file": "/k", "targets.<name>.type": "webhook", "targets.<name>.url": "http://h",
		"targets.<name>.secrets": "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA,whsec_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB", "targets.<name>.events": "e.f,g", "targets.<name>.retry.max_attempts": "2",
		"targets.<name>.retry.base": "2s", "targets.<name>.retry.factor": "4", "targets.<name>.retry.max": "1h",
		"targets.<name>.retry.jitter": "0.5", "targets.<name>.timeout": "9s", "targets.<name>.concurrency": "7", "targets.<name>.rate": "2.5",
		"targets.<name>.ordered": "true", "targets.<name>.breaker.failures": "4", "targets.<name>.breaker.cooldown": "3s", "targets.<name>.breaker.disable_after": "6d", "targets.<name>.allow_private": "true",
		"receive.listen": ":8443", "receive.origin": "here", "receive.max_bytes": "5000", "receive.peers.<name>.secrets": "whsec_CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
		"receive.peers.<name>.allow": "jobs.crm.>, events.public.*",
	}
	excluded := []string{ // they contradict another key of the list, or read a file
		"database.url_file", "nats.creds_file", "nats.nkey_file", "nats.token_file", "nats.user", "nats.password", "nats.password_file",
		"receive.peers.<name>.secrets_file",
	}
	vars := map[string]string{"MILLBRIDGE_TARGETS": "my-crm", "MILLBRIDGE_RECEIVE_PEERS": "my-crm"}
	var keys []string
	for _, pattern := range append(config.Keys(), "targets.<name>.url", "targets.<name>.secrets", "targets.<name>.allow_private") {
		if slices.Contains(excluded, pattern) {
			continue
		}
		key := strings.Replace(pattern, "<name>", "my-crm", 1)
		keys = append(keys, key)
		if vars[config.Variable(key)] = samples[pattern]; samples[pattern] == "" {
			vars[config.Variable(key)] = "/x"
		}
	}
	c, err := config.Load(config.Source{File: write(t, "m.yaml", ""), Getenv: func(n string) string { return vars[n] }})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range c.Values() {
		if want := "environment " + config.Variable(v.Key); slices.Contains(keys, v.Key) && v.Origin != want {
			t.Errorf("%s comes from %s, want %s", v.Key, v.Origin, want)
		}
	}
	hidden := c.Redactor().Redact("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA whsec_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB whsec_CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC")
	if w := c.Targets["my-crm"]; hidden != "*** *** ***" || w.Retry.Factor != 4 || len(c.NATS.URLs) != 2 {
		t.Errorf("target = %+v, secrets %q", w, hidden)
	}
}

func TestLoad_secrets_from_files(t *testing.T) {
	t.Parallel()
	secret := write(t, "url", "postgres://u:filesecret@h/d\n")
	keys := write(t, "keys", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n\nwhsec_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB\n")
	file := write(t, "m.yaml", "database: {url_file: "+secret+"}\nnats: {url: nats://h}\ntargets: {crm: {type: webhook, url: 'http://h', secrets_file: "+keys+"}}")
	c, err := config.Load(config.Source{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if secrets := fmt.Sprint(value(t, c, "targets.crm.secrets")); c.Database.URL.Reveal() != "postgres://u:filesecret@h/d" || secrets != "[*** ***]" {
		t.Errorf("url %q, secrets %s", c.Database.URL.Reveal(), secrets)
	}
	c, err = config.Load(config.Source{File: file, Getenv: env("MILLBRIDGE_DATABASE_URL", "postgres://other/d")})
	if err != nil || c.Database.URL.Reveal() != "postgres://other/d" || c.Database.URLFile != "" {
		t.Errorf("the environment's url does not replace the file's url_file: %v %v", c.Database, err)
	}
	_, err = config.Load(config.Source{File: file, Sets: []config.Set{{Flag: "--set", Key: "nats.token_file", Value: "/does/not/exist"}}})
	if err == nil || !strings.Contains(err.Error(), "flag --set: nats.token_file: open /does/not/exist") {
		t.Error(err)
	}
}

func TestLoad_a_named_file_must_exist(t *testing.T) {
	t.Parallel()
	if _, err := config.Load(config.Source{File: "/does/not/exist.yaml"}); err == nil {
		t.Error("a missing file was accepted")
	}
	_, err := config.Load(config.Source{Getenv: env("MILLBRIDGE_CONFIG", "/does/not/exist.yaml")})
	if err == nil {
		t.Error("a missing file named by the environment was accepted")
	}
}

func TestLoad_the_database_alone(t *testing.T) {
	t.Parallel()
	file := write(t, "m.yaml", "database: {url: 'postgres://u:secret@h/d'}")
	if _, err := config.Load(config.Source{File: file}); err == nil {
		t.Error("a database without NATS was accepted where both are needed")
	}
	c, err := config.Load(config.Source{File: file, DatabaseAlone: true})
	if err != nil || c.String() != "postgres://u:***@h/d" || c.Embedded() {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestPrint_masks_secrets_and_can_be_read_again(t *testing.T) {
	t.Parallel()
	c := parse(t, full)
	var out strings.Builder
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(c.Values())
	if err != nil {
		t.Fatal(err)
	}
	all := out.String() + string(encoded) + c.String() + fmt.Sprintf("%v %+v %#v %s %q %x", c.Database, c.NATS, *c.Targets["crm"], c.NATS.Password, c.NATS.Password, c.NATS.Password)
	if strings.Contains(all, "SECRET123") || strings.Contains(all, fmt.Sprintf("%x", "SECRET123")) {
		t.Errorf("printed a secret:\n%s", all)
	}
	for _, want := range []string{"url: postgres://app:***@db:5432/shop?sslmode=require", "password: '***' # millbridge.yaml:10", "base: 250ms", "max: 1m", "events_ttl: 3d"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	// A mask is not a secret that could sign.
	again := parse(t, strings.NewReplacer("['***']", "[whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA]", "    url: '***'", "    url: https://crm.example.com/").Replace(out.String()))
	if again.Targets["crm"].Retry != c.Targets["crm"].Retry || again.StopTimeout != c.StopTimeout || !slices.Equal(again.Targets["audit"].Events, c.Targets["audit"].Events) {
		t.Errorf("read again: %+v", again)
	}
}
