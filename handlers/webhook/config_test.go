package webhook_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/schema"
)

func TestConfig_urls(t *testing.T) {
	t.Parallel()
	for _, u := range []string{
		"https://example.org", "http://example.org:8080/hook?token=x", "https://a.b-c.example./", "https://1.1.1.1/x", "https://[2606:4700::1111]:8443/", "HTTPS://EXAMPLE.ORG",
		"https://3com.com", "https://0xabc.example", "https://xn--bcher-kva.example/",
	} {
		if err := (webhook.Config{URL: u}).Validate(); err != nil {
			t.Errorf("%s: %v", u, err)
		}
	}
	for u, want := range map[string]string{
		"":                                "not an http or https address",
		"example.org":                     "not an http or https address",
		"/hook":                           "not an http or https address",
		"ftp://example.org":               "not an http or https address",
		"file:///etc/passwd":              "not an http or https address",
		"https:example.org":               "not an http or https address",
		"https://":                        "not an http or https address",
		"https://exa mple.org":            "not an http or https address",
		"https://example.org:x":           "not an http or https address",
		"https://:443":                    "no host",
		"https://u@example.org":           "user information",
		"https://u:p@example.org":         "user information",
		"https://example.org/#x":          "fragment",
		"https://bücher.example":          "ASCII",
		"https://１２７.0.0.1":               "ASCII",
		"https://%31%32%37.0.0.1":         "not an http or https address",
		"https://2130706433":              "form that is not accepted",
		"https://0177.0.0.1":              "form that is not accepted",
		"https://127.1":                   "form that is not accepted",
		"https://0x7f.0.0.1":              "form that is not accepted",
		"https://0x7f000001":              "form that is not accepted",
		"https://127.0.0.0x1":             "form that is not accepted",
		"https://127.0.0.1.":              "form that is not accepted",
		"https://example.123":             "form that is not accepted",
		"https://127.0.0.1":               "loopback",
		"https://[::1]":                   "loopback",
		"https://[::ffff:127.0.0.1]":      "loopback",
		"https://10.0.0.1":                "private",
		"https://169.254.169.254/latest/": "link-local",
		"https://[fe80::1%25eth0]/":       "link-local",
		"https://0.0.0.0":                 "this host",
	} {
		err := webhook.Config{URL: u}.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", u, err, want)
		}
	}
	if err := (webhook.Config{URL: "http://127.0.0.1", Network: outbound.Network{AllowPrivate: true}}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestConfig_reports_all_faults(t *testing.T) {
	t.Parallel()
	cfg := webhook.Config{
		URL: "https://u@10.0.0.1/#f", Secrets: []string{newSecret, "x"}, Timeout: -1, MaxResponse: -1, RetryAfterMax: -1,
		Headers: map[string]string{
			"Host": "x", "content-length": "1", "Transfer-Encoding": "x", "CONNECTION": "x", "Idempotency-Key": "x", "Webhook-Id": "x", "ce-id": "x", "Proxy-Authorization": "x",
			"a b": "x", "": "x", "X-Line": "a\r\nb", "X-Nul": "\x00", "X-Blank": " x", "X-Twice": "1", "x-twice": "2",
		},
	}
	err := cfg.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"user information", "fragment", "timeout is", "max response is", "retry after max is", "secret 2: ", "header Host ", "header content-length ", "header Transfer-Encoding ",
		"header CONNECTION ", "header Idempotency-Key ", "header Webhook-Id ", "header ce-id ", "header Proxy-Authorization ", `header "a b"`, `header ""`, "header X-Line", "header X-Nul",
		"header X-Blank", "header X-Twice is there twice",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	if _, newErr := webhook.New(cfg); newErr == nil {
		t.Error("New accepts what Validate refuses")
	}
}

// Nothing that can be printed or stored may hold what is secret.
func TestNothing_tells_secrets(t *testing.T) {
	t.Parallel()
	const marker = "SECRET123"
	var logs bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	names, resolver := newNameServer(t)
	names.set("10.0.0.1")
	var texts []string
	print := func(v any) {
		texts = append(texts, fmt.Sprint(v), fmt.Sprintf("%+v", v), fmt.Sprintf("%#v", v), fmt.Sprintf("%s %q %d", v, v, v))
		logger.Info("x", "v", v)
	}
	attempt := func(cfg webhook.Config) {
		cfg.Logger = logger
		cfg.Secrets = []string{"whsec_" + marker + marker + marker + "AAAAA"}
		cfg.Headers = map[string]string{"Authorization": marker}
		hook, err := webhook.New(cfg)
		print(cfg)
		if err != nil {
			t.Fatal(err)
		}
		print(hook)
		err = hook.Handle(t.Context(), schema.NewJob("t", "a", []byte(marker)))
		if err == nil {
			t.Error("an attempt that was to fail did not")
		}
		print(err)
	}
	path := "/" + marker + "?token=" + marker
	tls := newReceiver(t, status(200))
	for _, code := range []int{301, 302, 400, 410, 429, 500} {
		attempt(webhook.Config{URL: newReceiver(t, status(code, "Location", "/"+marker)).URL + path, Network: local})
	}
	attempt(webhook.Config{URL: "http://" + closed.Addr().String() + path, Network: local})
	attempt(webhook.Config{URL: "http://hook.test" + path, Network: outbound.Network{Resolver: resolver}})
	attempt(webhook.Config{URL: strings.Replace(tls.URL, "http:", "https:", 1) + path, Network: local})
	names.set()
	attempt(webhook.Config{URL: "http://hook.test" + path, Network: outbound.Network{Resolver: resolver}})
	for _, cfg := range []webhook.Config{
		{URL: "https://" + marker + ":" + marker + "@example.org/" + marker},
		{URL: "://" + marker},
		{URL: "https://example.org:" + marker},
		{URL: "https://example.org/%zz" + marker},
		{URL: "https://example.org/" + marker, Secrets: []string{marker, "whsec_" + marker, "whsec_" + marker + "==="}},
		{URL: "https://example.org/", Headers: map[string]string{"X": marker + "\n", "Host": marker}},
	} {
		print(cfg)
		if err := cfg.Validate(); err == nil {
			t.Error("a bad config was accepted")
		} else {
			print(err)
		}
	}
	for _, text := range append(texts, logs.String()) {
		if strings.Contains(text, marker) {
			t.Errorf("%q", text)
		}
	}
	if !strings.Contains(logs.String(), `"webhook attempt"`) {
		t.Error("attempts are not logged")
	}
}
