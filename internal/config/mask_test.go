package config_test

import (
	"strings"
	"testing"

	"github.com/millbridge/millbridge/internal/config"
)

func TestMaskURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"":                     "",
		"postgres://u:p@h:1/d": "postgres://u:***@h:1/d",
		"postgres://u@h/d":     "postgres://u@h/d",
		"postgres://h/d?password=x&sslmode=require": "postgres://h/d?***&sslmode=require",
		"host=h password=x":                         "***",
		"postgres://u:p%zz@h/d":                     "***",
		"nats://token@h:4222":                       "nats://***@h:4222",
		"nats://u:p@h:4222":                         "nats://u:***@h:4222",
		"https://h/services/T0/B0/x?key=y":          "https://h/***?***",
		"https://h/":                                "https://h",
	} {
		if got := config.MaskURL(raw); got != want {
			t.Errorf("MaskURL(%q) = %q, want %q", raw, got, want)
		}
	}
}

func TestRedactor_removes_secrets_from_foreign_text(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://u:SECRET123@h/d", "postgres://u@h/d?password=SECRET123", "host=h password=SECRET123 user=x", "host=h password = 'SECRET123' user=x",
		"postgres://u:SECRET123@h:1,h:2/d",
	} {
		c := parse(t, "nats: {url: 'nats://TOKEN456@h', token: tok789}\ntargets: {crm: {type: webhook, url: 'https://h/HOOK/abc?k=PARAM', secrets: [whsec_KEYKEYKEYKEYKEYKEYKEYKEYKEYKEYKE]}}\ndatabase: {url: \""+url+"\"}")
		text := "cannot use " + url + " with password SECRET123, nats://TOKEN456@h and tok789, Post https://h/HOOK/abc?k=PARAM: whsec_KEYKEYKEYKEYKEYKEYKEYKEYKEYKEYKE"
		got := c.Redactor().Redact(text)
		for _, secret := range []string{"SECRET123", "TOKEN456", "tok789", "HOOK", "PARAM", "KEYKEY"} {
			if strings.Contains(got, secret) {
				t.Errorf("%s: %q is still in %q", url, secret, got)
			}
		}
		if !strings.HasPrefix(got, "cannot use ") || !strings.Contains(got, " with password ***, nats://") {
			t.Errorf("%s: %q lost more than secrets", url, got)
		}
	}
}

func TestParseValues(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"90s": "1m30s", "7d": "7d", "24h": "1d", "1.5d": "36h", "1d12h30m": "36h30m", "10m": "10m", "0s": "0s", "250ms": "250ms"} {
		if d, err := config.ParseDuration(text); err != nil || d.String() != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %s", text, d, err, want)
		}
	}
	for text, want := range map[string]int64{"0": 0, "17": 17, "64KiB": 65536, "1 MiB": 1 << 20, "2MB": 2000000, "9B": 9} {
		if n, err := config.ParseSize(text); err != nil || n != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"", "d", "1dd", "1d1", "NaNd", "1e300d", "5", "x"} {
		if d, err := config.ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %v", text, d)
		}
	}
	for _, text := range []string{"", "-1", "1.5MB", "9999999999GiB", "MB"} {
		if n, err := config.ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %d", text, n)
		}
	}
}
