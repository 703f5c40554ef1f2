package command_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/command"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/schema"
)

func TestConfig_reports_all_faults(t *testing.T) {
	t.Parallel()
	secret := configgroup.NewSecret("SECRET123\x00")
	cfg := command.Config{
		Command: []string{"label", "a\x00b"}, Dir: "here", Grace: -1, MaxOutput: -1, PermanentCodes: []int{0, 7}, TemporaryCodes: []int{256, 7},
		Env: map[string]configgroup.Secret{"A=B": secret, "1A": secret, "": secret, "MILLBRIDGE_KEY": secret, "TOKEN": secret, "ä": secret},
	}
	err := cfg.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`command: "label" is no absolute path`, "command: argument 1 has a NUL byte", `dir: "here"`, "grace: is", "max_output: is -1", "permanent_codes: 0", "permanent_codes: 7 is in",
		"temporary_codes: 256", `env: "A=B"`, `env: "1A"`, `env: ""`, `env: "ä"`, "env: MILLBRIDGE_KEY: names", "env: TOKEN: has a NUL",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "SECRET123") {
		t.Errorf("the error has a secret: %v", err)
	}
	if _, err := command.New(cfg); err == nil {
		t.Error("New accepts what Validate refuses")
	}
	if err := (command.Config{}).Validate(); err == nil || err.Error() != "command: is missing" {
		t.Errorf("nothing: %v", err)
	}
	if err := (command.Config{Command: []string{"/bin/true"}, MaxOutput: handlers.MaxReport + 1}).Validate(); err == nil {
		t.Error("a report that is too long is accepted")
	}
}

func TestConfig_is_read_from_variables(t *testing.T) {
	t.Parallel()
	got, err := configgroup.Load[command.Config]("labels", configgroup.Environ([]string{
		"MILLBRIDGE_LABELS_COMMAND=/usr/bin/label,--a4", `MILLBRIDGE_LABELS_ENV={"PRINTER":"p-1"}`, "MILLBRIDGE_LABELS_PERMANENT_CODES=[2,3]", "MILLBRIDGE_LABELS_REPORT=true",
	}))
	want := command.Config{
		Command: []string{"/usr/bin/label", "--a4"}, Dir: command.DefaultDir, Grace: command.DefaultGrace, MaxOutput: command.DefaultMaxOutput, Report: true,
		Env: map[string]configgroup.Secret{"PRINTER": configgroup.NewSecret("p-1")}, PermanentCodes: []int{2, 3},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, error %v", got, err)
	}
}

func TestPreview_is_what_the_program_gets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := command.Config{
		Command: script(`cat > in; /usr/bin/env -0 > vars`), Dir: dir, Env: map[string]configgroup.Secret{"TOKEN": configgroup.NewSecret("hunter2")},
	}
	h := newProgram(t, cfg)
	ctx := handlers.WithCall(t.Context(), handlers.CallOf("labels", job))
	previews, err := h.(handlers.Previewer).Preview(ctx, job)
	if err != nil || len(previews) != 1 {
		t.Fatalf("previews %v, error %v", previews, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the preview ran the program: %v, %v", entries, err)
	}
	if err := h.Handle(ctx, job); err != nil {
		t.Fatal(err)
	}
	p := previews[0]
	in, _ := os.ReadFile(filepath.Join(dir, "in"))
	vars, _ := os.ReadFile(filepath.Join(dir, "vars"))
	if p.Body != string(in) || p.Body != string(job.Payload) || !strings.HasPrefix(p.Do, "exec /bin/sh -c cat > in") {
		t.Errorf("preview %+v, input %q", p, in)
	}
	for name, value := range p.Header {
		if name == "TOKEN" {
			if value != "***" {
				t.Errorf("the preview shows a secret: %q", value)
			}
			value = "hunter2"
		}
		if !strings.Contains("\x00"+string(vars), "\x00"+name+"="+value+"\x00") {
			t.Errorf("the program was not given %s=%s:\n%q", name, value, vars)
		}
	}
	for entry := range strings.SplitSeq(string(vars), "\x00") {
		name, _, _ := strings.Cut(entry, "=")
		if _, ok := p.Header[name]; !ok && strings.HasPrefix(name, "MILLBRIDGE_") {
			t.Errorf("the preview does not have %s", entry)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d"} {
		if text := fmt.Sprintf(verb, h) + fmt.Sprintf(verb, cfg); strings.Contains(text, "hunter2") {
			t.Errorf("%s prints a secret: %s", verb, text)
		}
	}
}

// A program that names what it makes after the key may run as often as it must.
func TestHandle_may_run_again(t *testing.T) {
	t.Parallel()
	handlertest.CheckIdempotent(t, func() handlertest.World {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		return handlertest.World{
			Handler: func() handlers.Handler {
				return newProgram(t, command.Config{
					Command: script(`name=$(printf %s "$MILLBRIDGE_KEY" | cksum | cut -d ' ' -f 1); cat > "$name.$$" && mv "$name.$$" "$name"`), Dir: dir, Grace: time.Second,
				})
			},
			State: func() any {
				made := map[string]string{}
				entries, err := os.ReadDir(dir)
				if err != nil {
					t.Error(err)
				}
				for _, e := range entries {
					if text, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil && !strings.Contains(e.Name(), ".") {
						made[e.Name()] = string(text)
					}
				}
				return made
			},
		}
	}, job, schema.NewJob("labels", "print", []byte(`{"order":"o-8"}`), schema.WithKey("o-8/../label")))
}
