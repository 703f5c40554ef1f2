package configgroup_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers/configgroup"
)

func TestSecret_never_prints_itself(t *testing.T) {
	t.Parallel()
	const marker = "hunter2hunter2"
	s := configgroup.NewSecret(marker)
	type exported struct{ Token configgroup.Secret }
	type hidden struct{ token configgroup.Secret }
	type deep struct {
		inner  *hidden
		list   []configgroup.Secret
		byName map[string]configgroup.Secret
	}
	var out bytes.Buffer
	text := slog.New(slog.NewTextHandler(&out, nil))
	asJSON := slog.New(slog.NewJSONHandler(&out, nil))
	for _, v := range []any{
		s, &s,
		exported{s},
		&exported{s},
		hidden{s},
		&hidden{s},
		[]configgroup.Secret{s},
		map[string]any{"k": s},
		map[configgroup.Secret]int{s: 1},
		deep{&hidden{s}, []configgroup.Secret{s}, map[string]configgroup.Secret{"k": s}},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%T"} {
			fmt.Fprintf(&out, verb, v)
		}
		fmt.Fprint(&out, v)
		text.Info("x", "v", v)
		asJSON.Info("x", "v", v)
		data, err := json.Marshal(v)
		fmt.Fprint(&out, string(data), err)
	}
	fmt.Fprint(&out, fmt.Errorf("with %v", s))
	for _, form := range []string{marker, fmt.Sprintf("%x", marker)} {
		if strings.Contains(out.String(), form) {
			t.Errorf("the secret is printed: %s", out.String())
		}
	}
	var none configgroup.Secret
	if s.Reveal() != marker || none.Reveal() != "" || s.IsZero() || !none.IsZero() || none.String() != "" || fmt.Sprint(s) != "***" || !configgroup.NewSecret("").IsZero() {
		t.Errorf("reveals %q and %q, prints %q and %q", s.Reveal(), none.Reveal(), s, none)
	}
}

func TestMask_finds_secrets_that_cleaning_would_bring_out(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 500)
	for _, c := range []struct{ text, want string }{
		{"bad password: hunter2", "bad password: ***"},
		{"bad password: hun\x00ter2", "bad password: ***"},
		{"bad password: pass\r\n\tphrase!", "bad password: ***!"},
		{"bad password: pass\u2028phrase", "bad password: ***"},
		{"bad password: tab bed and \xff\xfe", "bad password: *** and ***"},
		{"bad password: hunter22", "bad password: ***"},
		{strings.Repeat("x", 1990) + long, strings.Repeat("x", 1990) + "***"},
		{" no\x00 secret\n", "no secret"},
	} {
		got := configgroup.Mask(c.text, "", "hunter2", "hunter22", "pass phrase", " tab\tbed\n", "\xff\xfe", long)
		if got != c.want {
			t.Errorf("%.60q: got %.60q, want %.60q", c.text, got, c.want)
		}
	}
}
