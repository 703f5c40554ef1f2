package command

import (
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/schema"
)

// output keeps the first bytes of what is written to it, and lets the rest go: a program that prints too much must not
// be stopped by that.
type output struct {
	limit int
	kept  []byte
	over  bool
}

func (o *output) Write(p []byte) (int, error) {
	n := min(len(p), o.limit-len(o.kept))
	o.kept = append(o.kept, p[:n]...)
	o.over = o.over || n < len(p)
	return len(p), nil
}

// tail keeps the last bytes of what is written to it.
type tail struct {
	limit int
	kept  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if n >= t.limit {
		t.kept, p = t.kept[:0], p[n-t.limit:]
	}
	t.kept = append(t.kept, p...)
	if more := len(t.kept) - t.limit; more > 0 {
		t.kept = append(t.kept[:0], t.kept[more:]...)
	}
	return n, nil
}

// maxHint is how many characters of a program's last words an error has.
const maxHint = 500

// tailFor returns a tail that keeps enough for lastWords: what a secret lost at the start of it is cut off in the end.
func tailFor(secrets []string) *tail {
	longest := 0
	for _, s := range secrets {
		longest = max(longest, len(s))
	}
	return &tail{limit: 4*maxHint + longest}
}

// lastWords returns the end of text as one line without secrets.
func lastWords(text []byte, secrets []string) string {
	runes := []rune(configgroup.Mask(string(text), secrets...))
	return schema.OneLine(string(runes[max(0, len(runes)-maxHint):]))
}
