package command

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millbridge/millbridge/handlers/configgroup"
)

// Whatever a program prints, and in whatever pieces, its last words are one short line without secrets.
func FuzzLastWords(f *testing.F) {
	f.Add([]byte("no printer\n"), "hunter2hunter2", 3)
	f.Add([]byte(strings.Repeat("x", 5000)+"hunter2hunter2"), "hunter2hunter2", 700)
	f.Add([]byte("\xff\x00\x1b[31m\u2028"), "secret", 1)
	f.Fuzz(func(t *testing.T, text []byte, secret string, piece int) {
		if len(secret) < 6 || strings.Contains(secret, "*") || configgroup.Mask(secret) != secret {
			return
		}
		kept := tailFor([]string{secret})
		for rest := text; len(rest) > 0; {
			n := min(max(piece, 1), len(rest))
			if written, err := kept.Write(rest[:n]); written != n || err != nil {
				t.Fatalf("wrote %d of %d: %v", written, n, err)
			}
			rest = rest[n:]
		}
		if len(kept.kept) > kept.limit || !strings.HasSuffix(string(text), string(kept.kept)) {
			t.Fatalf("%d bytes are kept, at most %d", len(kept.kept), kept.limit)
		}
		words := lastWords(kept.kept, []string{secret})
		if !utf8.ValidString(words) || utf8.RuneCountInString(words) > maxHint || strings.ContainsAny(words, "\n\r\x00\x1b\u2028") {
			t.Fatalf("%q is no line", words)
		}
		if strings.Contains(words, secret) {
			t.Fatalf("%q has the secret", words)
		}
	})
}

func TestOutput_keeps_the_first_bytes(t *testing.T) {
	t.Parallel()
	o := &output{limit: 5}
	for _, piece := range []string{"abc", "de", "", "f", "ghi"} {
		if n, err := o.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
		if o.over != (piece == "f" || piece == "ghi") {
			t.Errorf("after %q over is %v", piece, o.over)
		}
	}
	if string(o.kept) != "abcde" {
		t.Errorf("kept %q", o.kept)
	}
}
