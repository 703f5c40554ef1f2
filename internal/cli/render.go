package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/millbridge/millbridge/internal/config"
)

// escape makes text safe to print on a terminal: control characters, broken UTF-8 and characters that reorder the
// line are written as Go would.
func escape(s string) string {
	safe := true
	for i, r := range s {
		if !printable(r) || (r == utf8.RuneError && isBroken(s[i:])) {
			safe = false
			break
		}
	}
	if safe {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && isBroken(s[i:]):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case printable(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

func isBroken(s string) bool {
	_, n := utf8.DecodeRuneInString(s)
	return n == 1
}

func printable(r rune) bool { return r == ' ' || unicode.IsGraphic(r) && !unicode.Is(unicode.Z, r) }

// escapeLines escapes each line of s and keeps the lines.
func escapeLines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, line := range lines {
		lines[i] = escape(strings.ReplaceAll(strings.TrimRight(line, "\r"), "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// table prints rows below a heading, columns aligned. Numbers are aligned to the right.
func table(w io.Writer, heading []string, rows [][]string) {
	widths := make([]int, len(heading))
	right := make([]bool, len(heading))
	for i, h := range heading {
		widths[i] = utf8.RuneCountInString(h)
		right[i] = len(rows) > 0
		for _, row := range rows {
			row[i] = escape(row[i])
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
			if _, err := strconv.ParseInt(row[i], 10, 64); err != nil && row[i] != "-" {
				right[i] = false
			}
		}
	}
	line := func(cells []string) {
		var b strings.Builder
		for i, cell := range cells {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if right[i] {
				cell, pad = pad+cell, ""
			}
			b.WriteString(cell + pad + "  ")
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
	line(heading)
	for _, row := range rows {
		line(row)
	}
}

// object writes v, a struct, as one line of JSON that starts with the version of its format.
func object(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	rest := strings.TrimPrefix(string(body), "{")
	if rest != "}" {
		rest = "," + rest
	}
	_, err = fmt.Fprintf(w, "{\"version\":1%s\n", rest)
	return err
}

// short cuts s to n characters.
func short(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// age prints a time span the way people say it.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return config.Duration(d.Round(time.Minute)).String()
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// stamp prints a time with its zone.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// redactingWriter takes secrets out of what is written in one piece.
type redactingWriter struct {
	w        io.Writer
	redactor config.Redactor
}

func (r redactingWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(r.w, r.redactor.Redact(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
