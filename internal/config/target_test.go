package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/internal/config"
)

func TestParse_faults_inside_blocks_have_their_lines(t *testing.T) {
	t.Parallel()
	text := `
targets:
  ils:
    type: http
    base_url: https://ils.example
    auth: {type: bearer, token: 12345}
    actions:
      renew:
        metod: PUT
        path: /loans
        done:
          - status: [404]
          - {status: [gone]}
        lookup:
          query: {page: 1}
  printer:
    type: exec
  x y: {type: webhook, url: "https://h"}
  z: {type: webhok, url: x, colour: red}
`
	for _, c := range []struct {
		text string
		want []string
	}{
		{text, []string{
			`m.yaml:6: targets.ils.auth.token: a secret is a text in quotes, or {"file": "/path"}`,
			`m.yaml:13: targets.ils.actions.renew.done.1.status.0: wants a whole number, found a text`,
			`m.yaml:15: targets.ils.actions.renew.lookup.query.page: wants a text, found a number; put it in quotes`,
			`m.yaml:9: targets.ils.actions.renew.metod: is not known; did you mean method?`,
			`m.yaml:19: targets.z.type: is "webhok", must be one of exec, http, nats, ncip, peer, request, reshare, webhook`,
		}},
		// What the type finds wrong has the line, too.
		{
			strings.NewReplacer("12345", "'12345'", "metod", "method", "[gone]", "[7]", "page: 1", "page: '1'", "webhok", "webhook", "url: x, colour: red", `url: "https://h"`).Replace(text),
			[]string{
				`m.yaml:13: targets.ils.actions.renew.done.1.status: 7 is no code of an answer`,
				`m.yaml:14: targets.ils.actions.renew.lookup.found: is missing`,
				`m.yaml:14: targets.ils.actions.renew.lookup.path: does not begin with /`,
				`m.yaml:16: targets.printer.command: is missing`,
				`m.yaml:18: targets.x y: "x y" is not a name: it must be a-z, 0-9, '-' and '_', starting with a letter or digit`,
			},
		},
	} {
		_, err := config.Parse("m.yaml", []byte(c.text))
		got := strings.Split(fmt.Sprint(err), "\n")
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
	vars := map[string]string{"MILLBRIDGE_TARGETS_ILS_ACTIONS": `{"renew":{"metod":"PUT"}}`}
	file := write(t, "m.yaml", "targets: {ils: {type: http, base_url: 'https://h', actions: {renew: {method: PUT, path: /x}}}}")
	_, err := config.Load(config.Source{File: file, Getenv: func(n string) string { return vars[n] }})
	if want := "environment MILLBRIDGE_TARGETS_ILS_ACTIONS: targets.ils.actions.renew.metod: is not known; did you mean method?"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestLoad_variables_of_targets_that_set_nothing(t *testing.T) {
	t.Parallel()
	vars := map[string]string{
		"MILLBRIDGE_TARGETS": "crm", "MILLBRIDGE_TARGETS_CRM_TYPE": "webhook", "MILLBRIDGE_TARGETS_CRM_URL": "http://h", "MILLBRIDGE_TARGETS_CRM_TIMEOOT": "5s",
		"MILLBRIDGE_TARGETS_CRM_RATE": "", "MILLBRIDGE_SERVICE_HOST": "10.0.0.1", "MILLBRIDGE_TARGETS_OTHER_URL": "http://h", "MILLBRIDGE_TARGETS_A_B_RATE": "2", "MILLBRIDGE_RECEIVE_PEERS_X_ALLOW": "jobs.>", "PATH": "/bin",
	}
	environ := func() (list []string) {
		for name, value := range vars {
			list = append(list, name+"="+value)
		}
		return list
	}
	file := write(t, "m.yaml", "targets: {a-b: {type: webhook, url: 'http://h'}, a_b: {type: webhook, url: 'http://h'}}")
	_, err := config.Load(config.Source{File: file, Getenv: func(n string) string { return vars[n] }, Environ: environ})
	want := []string{
		"environment MILLBRIDGE_RECEIVE_PEERS_X_ALLOW: belongs to no peer; one that is not in the file is named in MILLBRIDGE_RECEIVE_PEERS",
		"environment MILLBRIDGE_TARGETS_A_B_RATE: is the variable of targets.a-b.rate and of targets.a_b.rate; set them in the file",
		"environment MILLBRIDGE_TARGETS_CRM_TIMEOOT: is not known; did you mean MILLBRIDGE_TARGETS_CRM_TIMEOUT?",
		"environment MILLBRIDGE_TARGETS_OTHER_URL: belongs to no target; one that is not in the file is named in MILLBRIDGE_TARGETS",
	}
	got := strings.Split(fmt.Sprint(err), "\n")
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
}

func TestPrint_says_where_a_block_is_from(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("m.yaml", []byte("targets:\n  a:\n    type: exec\n    command: [/bin/true]\n    env: {B: SECRET123}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := c.Print(&out); err != nil || !strings.Contains(out.String(), "    env: # m.yaml:5\n      B: '***'\n") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestTry_finds_files_and_events_that_do_not_fit(t *testing.T) {
	t.Parallel()
	text := `
targets:
  a: {type: webhook, url: "https://h", tls: {ca_file: /nowhere.pem}}
  b:
    type: http
    base_url: http://10.0.0.1
    actions: {x: {method: GET, path: /x}}
  c:
    type: ncip
    base_url: https://h
    from_agency: A
    to_agency: B
    events: [item.*, check-in-item, order.placed]
  d: {type: http, base_url: "https://h", actions: {item.lost: {method: GET, path: /x}}, events: [item.>, user.*]}
  e: {type: exec, command: [/bin/true], events: [item.>]}
`
	c, err := config.Parse("m.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	names := "accept-item, cancel-request-item, check-in-item, check-out-item, lookup-item, lookup-user, renew-item, request-item"
	want := []string{
		`m.yaml:3: targets.a.tls.ca_file: open /nowhere.pem: no such file or directory`,
		`m.yaml:6: targets.b.base_url: address 10.0.0.1 is not allowed: private, which allow_private permits`,
		`m.yaml:13: targets.c.events: "item.*" is the name of no action, so each would be a dead letter; there are ` + names,
		`m.yaml:13: targets.c.events: "order.placed" is the name of no action, so each would be a dead letter; there are ` + names,
		`m.yaml:14: targets.d.events: "user.*" is the name of no action, so each would be a dead letter; there are item.lost`,
	}
	if got := strings.Split(fmt.Sprint(c.Try()), "\n"); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What Load does not open, and what only a driver can read.
func TestTry_reads_what_the_servers_need(t *testing.T) {
	t.Parallel()
	garbage := write(t, "garbage.pem", "garbage")
	for text, want := range map[string]string{
		"database: {url: 'postgres://u:the-secret@h/d?sslmode=bogus'}\nnats: {url: nats://h}":                    "m.yaml:1: database.url: ",
		"database: {url: 'postgres://u:the-secret@h:notaport/d'}\nnats: {url: nats://h}":                         "m.yaml:1: database.url: ",
		"database: {url: 'postgres://h/d?sslmode=verify-full&sslrootcert=/nowhere'}\nnats: {url: nats://h}":      "/nowhere",
		"database: {url: 'postgres://h/d'}\nnats:\n  url: nats://h\n  creds_file: /nowhere":                      "m.yaml:4: nats.creds_file: open /nowhere: no such file",
		"database: {url: 'postgres://h/d'}\nnats:\n  url: nats://h\n  nkey_file: /nowhere":                       "m.yaml:4: nats.nkey_file: ",
		"database: {url: 'postgres://h/d'}\nnats: {url: nats://h, tls: {ca_file: /nowhere}}":                     "m.yaml:2: nats.tls.ca_file: open /nowhere: no such file",
		"database: {url: 'postgres://h/d'}\nnats: {url: nats://h, tls: {ca_file: " + garbage + "}}":              "m.yaml:2: nats.tls.ca_file: " + garbage + " has no certificate",
		"database: {url: 'postgres://h/d'}\nnats: {url: nats://h, tls: {cert_file: /nowhere, key_file: /there}}": "m.yaml:2: nats.tls.cert_file: open /nowhere: no such file",
		"receive:\n  listen: ':1'\n  origin: o\n  peers: {p: {secrets: [whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA], allow: [jobs.crm.>]}}\n" +
			"  tls: {cert_file: /nowhere, key_file: /there}": "m.yaml:5: receive.tls.cert_file: open /nowhere: no such file",
	} {
		c, err := config.Parse("m.yaml", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if err := c.Try(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "the-secret") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	c, err := config.Parse("m.yaml", []byte("database: {url: 'host=/run/postgres dbname=d sslmode=prefer'}\nnats: {url: nats://h}"))
	if err != nil || c.Try() != nil {
		t.Errorf("%v, %v", err, c.Try())
	}
}

// A webhook without secrets is not signed: an empty file must not make it one.
func TestLoad_a_file_of_secrets_that_is_empty(t *testing.T) {
	t.Parallel()
	empty := write(t, "secrets", "\n \n")
	file := write(t, "m.yaml", "targets: {crm: {type: webhook, url: 'https://h', secrets_file: "+empty+"}}")
	_, err := config.Load(config.Source{File: file})
	if want := file + ":1: targets.crm.secrets_file: " + empty + " is empty"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
