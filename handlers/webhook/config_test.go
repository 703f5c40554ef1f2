package webhook_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers/configgroup"
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
		if err := (webhook.Config{URL: text(u)}).Validate(); err != nil {
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
		err := webhook.Config{URL: text(u)}.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", u, err, want)
		}
	}
	if err := (webhook.Config{URL: text("http://127.0.0.1"), Settings: outbound.Settings{AllowPrivate: true}}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestConfig_reports_all_faults(t *testing.T) {
	t.Parallel()
	cfg := webhook.Config{
		URL: text("https://u@10.0.0.1/#f"), Secrets: texts(newSecret, "x"), Timeout: -1, MaxResponseBytes: -1, RetryAfterMax: -1, Format: 9,
		Payload: "{{.x}} {{.y}}", Settings: outbound.Settings{AllowedNetworks: []string{"all"}, TLSKeyFile: "x"},
		Headers: map[string]configgroup.Secret{
			"X-Field": text("{{.z}}"), "Host": text("x"), "content-length": text("1"), "Transfer-Encoding": text("x"), "CONNECTION": text("x"), "Idempotency-Key": text("x"), "Webhook-Id": text("x"), "ce-id": text("x"), "Proxy-Authorization": text("x"),
			"a b": text("x"), "": text("x"), "X-Line": text("a\r\nb"), "X-Nul": text("\x00"), "X-Blank": text(" x"), "X-Twice": text("1"), "x-twice": text("2"),
		},
	}
	err := cfg.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"url: has user information", "url: has a fragment", "timeout: must not", "max_response_bytes: must not", "retry_after_max: must not",
		"secrets: number 2 must begin with whsec_ or whsk_", "format: must be one of binary, structured, raw", `payload: position 1: there is no field "x"`, `payload: position 8: `,
		"allowed_networks: ", "tls.cert_file: ", "headers.X-Field: position 1: ", "headers.Host: ", "headers.content-length: ", "headers.Transfer-Encoding: ", "headers.CONNECTION: ",
		"headers.Idempotency-Key: ", "headers.Webhook-Id: ", "headers.ce-id: ", "headers.Proxy-Authorization: ", `headers: "a b" is not`, `headers: "" is not`, "headers.X-Line: ", "headers.X-Nul: ",
		"headers.X-Blank: ", "headers.X-Twice: is there twice",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	many := make([]configgroup.Secret, 17)
	for i := range many {
		many[i] = text(newSecret)
	}
	if err := (webhook.Config{URL: text("https://example.org"), Secrets: many}).Validate(); err == nil || !strings.Contains(err.Error(), "secrets: there are 17") {
		t.Errorf("17 secrets: %v", err)
	}
	if err := (webhook.Config{URL: text("https://example.org"), Secrets: many[1:]}).Validate(); err != nil {
		t.Errorf("16 secrets: %v", err)
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if key, _, ok := strings.Cut(line, ": "); !ok || strings.Contains(key, " ") {
			t.Errorf("%q does not begin with a key", line)
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
	var printed []string
	print := func(v any) {
		printed = append(printed, fmt.Sprint(v), fmt.Sprintf("%+v", v), fmt.Sprintf("%#v", v), fmt.Sprintf("%s %q %d", v, v, v))
		logger.Info("x", "v", v)
	}
	attempt := func(cfg webhook.Config) {
		cfg.Logger = logger
		cfg.Secrets = texts("whsec_"+marker+marker+marker+"AAAAA", "whsk_"+marker+marker+marker+marker+"AAAAAAA=")
		cfg.Headers = map[string]configgroup.Secret{"Authorization": text(marker + "{{.id}}")}
		if cfg.Network == nil {
			cfg.AllowPrivate = true
		}
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
		attempt(webhook.Config{URL: text(newReceiver(t, status(code, "Location", "/"+marker)).URL + path)})
	}
	attempt(webhook.Config{URL: text("http://" + closed.Addr().String() + path)})
	attempt(webhook.Config{URL: text("http://hook.test" + path), Network: &outbound.Network{Resolver: resolver}})
	attempt(webhook.Config{URL: text(strings.Replace(tls.URL, "http:", "https:", 1) + path)})
	names.set()
	attempt(webhook.Config{URL: text("http://hook.test" + path), Network: &outbound.Network{Resolver: resolver}})
	for _, cfg := range []webhook.Config{
		{URL: text("https://" + marker + ":" + marker + "@example.org/" + marker)},
		{URL: text("://" + marker)},
		{URL: text("https://example.org:" + marker)},
		{URL: text("https://example.org/%zz" + marker)},
		{URL: text("https://example.org/" + marker), Secrets: texts(marker, "whsec_"+marker, "whsec_"+marker+"===", "whsk_"+marker, "whpk_"+marker)},
		{URL: text("https://example.org/"), Headers: map[string]configgroup.Secret{"X": text(marker + "\n"), "Host": text(marker), "Y": text(marker + "{{" + marker), "Z": text(marker + "{{ " + marker + " }}")}},
	} {
		print(cfg)
		if err := cfg.Validate(); err == nil {
			t.Error("a bad config was accepted")
		} else {
			print(err)
		}
	}
	for _, line := range append(printed, logs.String()) {
		if strings.Contains(line, marker) {
			t.Errorf("%q", line)
		}
	}
	if !strings.Contains(logs.String(), `"webhook attempt"`) {
		t.Error("attempts are not logged")
	}
}
