package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/config"
)

func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	for _, s := range []string{"", "a: &a {b: *a}", "targets: {crm: {type: webhook, url: http://h, tls: {ca_file: x}}}", "- 1", "nats: {url: [[a]]}", "? {a: b}\n: c", "x: !!binary aGk=", "<<: {prefix: a}", "targets: {\"\": {url: x}}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse("m.yaml", data)
		if err != nil {
			return
		}
		var first, second strings.Builder
		if err := c.Print(&first); err != nil {
			t.Fatal(err)
		}
		// What was printed holds masks in place of secrets, which may not be valid; everything else must come back.
		again, err := config.Parse("m.yaml", []byte(first.String()))
		if err != nil {
			if !strings.Contains(first.String(), "***") {
				t.Fatalf("%v in what was printed:\n%s", err, &first)
			}
			return
		}
		if err := again.Print(&second); err != nil {
			t.Fatal(err)
		}
		if a, b := values(&first), values(&second); a != b {
			t.Fatalf("printed once as\n%s\nand then as\n%s", a, b)
		}
	})
}

// values takes the origins off what was printed.
func values(printed *strings.Builder) string {
	var lines []string
	for line := range strings.SplitSeq(printed.String(), "\n") {
		if i := strings.LastIndex(line, " # "); i >= 0 {
			line = line[:i]
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"90s", "7d", "1.5d", "1d12h30m", "-1d", "1dd", "NaNd", "1e300d", "0x1p3d", "-9223372036854775808ns"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := config.ParseDuration(text)
		if err != nil {
			return
		}
		again, err := config.ParseDuration(d.String())
		// Days and fractions are added as floating point numbers, which know 53 bits.
		if diff := time.Duration(again - d).Abs(); err != nil || diff > time.Duration(d).Abs()/(1<<50) {
			t.Fatalf("%q is %d, written as %s, which is %d (%v)", text, d, d, again, err)
		}
	})
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"0", "64KiB", "1 MiB", "9B", "-1", "9999999999GiB", "KiB", "+5", "1 KiB B"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := config.ParseSize(text)
		if err != nil {
			return
		}
		if n < 0 || !strings.ContainsAny(text, "0123456789") {
			t.Fatalf("%q is %d", text, n)
		}
	})
}

// Whatever stands around it, a password in an address is not shown.
func FuzzMaskURL(f *testing.F) {
	for _, s := range []string{"postgres://u:%@h/d", "host=h password=%", "https://h/%", "nats://%@h", "postgres://h/d?password=%", ":%"} {
		before, after, _ := strings.Cut(s, "%")
		f.Add(before, after)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "S3cr3tS3cr3t"
		if strings.Contains(before+after, secret) {
			return
		}
		raw := before + secret + after
		for _, place := range []string{"postgres://u:" + secret + "@", "?password=" + secret, " password=" + secret} {
			if got := config.MaskURL(raw); strings.Contains(raw, place) && strings.Contains(got, secret) {
				t.Fatalf("%q is shown as %q", raw, got)
			}
		}
	})
}
