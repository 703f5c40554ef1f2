package cli

import (
	"strings"
	"testing"
	"time"
)

func TestEscape_leaves_nothing_a_terminal_would_obey(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain Ünïcode → ok":   "plain Ünïcode → ok",
		"red \x1b[31mtext":     `red \x1b[31mtext`,
		"bell \a and \x00 nul": `bell \a and \x00 nul`,
		"line\nbreak\ttab":     `line\nbreak\ttab`,
		"c1 \u009b0m":          `c1 \u009b0m`,
		"bidi \u202eabc":       `bidi \u202eabc`,
		"broken \xff utf8":     `broken \xff utf8`,
		"real \ufffd":          "real \ufffd",
		"line sep \u2028 x":    `line sep \u2028 x`,
	} {
		if got := escape(in); got != want {
			t.Errorf("escape(%q) = %q, want %q", in, got, want)
		}
	}
	if got := escapeLines("a\tb\r\n\x1bc\n"); got != "a    b\n\\x1bc" {
		t.Errorf("escapeLines = %q", got)
	}
}

func TestTable_aligns_columns(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	table(&b, []string{"NAME", "ROWS", "X"}, [][]string{{"größe", "7", "a"}, {"b\x1b", "1234", ""}, {"c", "-", "z"}})
	want := "NAME   ROWS  X\ngröße     7  a\nb\\x1b  1234\nc         -  z\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestObject_starts_with_the_version(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := object(&b, struct {
		At time.Time `json:"at"`
	}{time.Date(2026, 3, 1, 9, 0, 0, 5e8, time.UTC)}); err != nil {
		t.Fatal(err)
	}
	if err := object(&b, struct{}{}); err != nil {
		t.Fatal(err)
	}
	if want := "{\"version\":1,\"at\":\"2026-03-01T09:00:00.5Z\"}\n{\"version\":1}\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	for in, want := range map[time.Duration]string{
		1234 * time.Microsecond: "1ms", 1500 * time.Millisecond: "1.5s", 90 * time.Second: "1m30s", 3*time.Hour + 29*time.Second: "3h", 80 * time.Hour: "3d",
	} {
		if got := age(in); got != want {
			t.Errorf("age(%v) = %s, want %s", in, got, want)
		}
	}
}

func TestPayloadText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":               "",
		`{"a":"\u001b"}`: "{\n  \"a\": \"\\u001b\"\n}",
		"text\x1b":       `text\x1b`,
		"\x00\xff":       "00000000  00 ff                                             |..|",
	} {
		if got := payloadText([]byte(in)); got != want {
			t.Errorf("payloadText(%q) = %q, want %q", in, got, want)
		}
	}
}
