package command_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/command"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/schema"
)

// script returns the argv of a shell script: the shell is the program here.
func script(lines string, args ...string) []string {
	return append([]string{"/bin/sh", "-c", lines, "script"}, args...)
}

func newProgram(t *testing.T, cfg command.Config) handlers.Handler {
	t.Helper()
	h, err := command.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func run(t *testing.T, cfg command.Config, env schema.Envelope) (answer string, err error) {
	t.Helper()
	ctx := handlers.WithCall(t.Context(), handlers.CallOf("labels", env))
	err = newProgram(t, cfg).Handle(ctx, env)
	return string(handlers.ReportOf(ctx)), err
}

var job = schema.NewJob("labels", "print", []byte(`{"order":"o-7"}`), schema.WithKey("o-7/label"))

func TestHandle_gives_the_program_the_message_and_nothing_else(t *testing.T) {
	t.Setenv("MILLBRIDGE_TOKEN_OF_THE_BRIDGE", "hunter2") // its own environment stays with the bridge
	dir := t.TempDir()
	env := schema.NewJob("labels", "print", []byte("payload \x00\xff"), schema.WithKey("o-7\n$(id) é"), schema.WithTenant("t 1"), schema.WithActor("a"),
		schema.WithRequestID("r"), schema.WithContentType("text/plain"), schema.WithTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""))
	call := handlers.CallOf("labels", env)
	call.Attempt, call.Replay = 3, 1
	h := newProgram(t, command.Config{
		Command: script(`cat > in; /usr/bin/env -0 > vars; pwd -P > where; printf '%s|' "$@" > args`, "a b", "$(id)", "*"),
		Dir:     dir, Env: map[string]configgroup.Secret{"PRINTER": configgroup.NewSecret("s3cret $x"), "LANG": configgroup.NewSecret("de_DE")},
	})
	if err := h.Handle(handlers.WithCall(t.Context(), call), env); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if read("in") != "payload \x00\xff" || read("args") != "a b|$(id)|*|" {
		t.Errorf("payload %q, arguments %q", read("in"), read("args"))
	}
	if real, err := filepath.EvalSymlinks(dir); err != nil || strings.TrimSpace(read("where")) != real {
		t.Errorf("runs in %q, want %q", read("where"), real)
	}
	got := map[string]string{}
	for _, entry := range strings.Split(strings.TrimSuffix(read("vars"), "\x00"), "\x00") {
		name, value, _ := strings.Cut(entry, "=")
		got[name] = value
	}
	for _, shells := range []string{"PWD", "OLDPWD", "SHLVL", "_"} {
		delete(got, shells)
	}
	want := map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "de_DE", "PRINTER": "s3cret $x",
		"MILLBRIDGE_ID": env.ID, "MILLBRIDGE_KEY": "o-7\n$(id) é", "MILLBRIDGE_KIND": "job", "MILLBRIDGE_NAME": "print", "MILLBRIDGE_TARGET": "labels",
		"MILLBRIDGE_TENANT": "t 1", "MILLBRIDGE_ACTOR": "a", "MILLBRIDGE_REQUEST_ID": "r", "MILLBRIDGE_CONTENT_TYPE": "text/plain",
		"MILLBRIDGE_TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "MILLBRIDGE_ATTEMPT": "3", "MILLBRIDGE_REPLAY": "1",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("environment\n%q\nwant\n%q", got, want)
	}
}

func TestHandle_exit_codes(t *testing.T) {
	t.Parallel()
	for code := range 256 {
		if code > 3 && code < 60 || code > 80 && code < 124 || code > 150 && code < 254 {
			continue
		}
		_, err := run(t, command.Config{
			Command: script(`exit "$1"`, fmt.Sprint(code)), PermanentCodes: []int{2, 77}, TemporaryCodes: []int{3},
		}, job)
		switch {
		case code == 0 && err != nil:
			t.Errorf("0: %v", err)
		case code == 0:
		case err == nil || !strings.Contains(err.Error(), fmt.Sprintf("exit code %d", code)):
			t.Errorf("%d: error %v", code, err)
		case (schema.KindOf(err) == schema.Permanent) != (code == 2 || code == 65 || code == 77):
			t.Errorf("%d is %v", code, schema.KindOf(err))
		}
	}
	if _, err := run(t, command.Config{Command: script("exit 65"), TemporaryCodes: []int{65}}, job); schema.KindOf(err) != schema.Temporary {
		t.Errorf("65, when the configuration calls it temporary, is %v", schema.KindOf(err))
	}
}

func TestHandle_of_a_signal_is_temporary(t *testing.T) {
	t.Parallel()
	_, err := run(t, command.Config{Command: script("echo on fire >&2; kill -SEGV $$")}, job)
	if err == nil || schema.KindOf(err) != schema.Temporary || !strings.Contains(err.Error(), "ended by signal: segmentation fault") || !strings.Contains(err.Error(), "on fire") {
		t.Errorf("error %v (%v)", err, schema.KindOf(err))
	}
}

// A fault of the installation is none of the message.
func TestHandle_of_a_program_that_cannot_be_started_is_temporary(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "not-executable")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]command.Config{
		"no such file":      {Command: []string{"/no/such/program"}},
		"permission denied": {Command: []string{file}},
		"in /no/such/dir":   {Command: []string{"/bin/sh"}, Dir: "/no/such/dir"},
	} {
		_, err := run(t, cfg, job)
		if err == nil || schema.KindOf(err) != schema.Temporary || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), cfg.Command[0]) {
			t.Errorf("error %v (%v), want %q", err, schema.KindOf(err), want)
		}
	}
}

func TestHandle_of_a_command_written_as_one_text(t *testing.T) {
	t.Parallel()
	_, err := run(t, command.Config{Command: []string{"/bin/cat -"}}, job)
	if want := "no such file or directory; arguments are entries of their own"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestHandle_errors_have_the_programs_last_words(t *testing.T) {
	t.Parallel()
	secret := map[string]configgroup.Secret{"TOKEN": configgroup.NewSecret("hunter2hunter2")}
	_, err := run(t, command.Config{
		Command: script(`i=0; while [ $i -lt 20000 ]; do echo "line $i"; i=$((i+1)); done >&2; printf 'first\nno printer \033[31m for %s\n\n' "$TOKEN" >&2; exit 1`), Env: secret,
	}, job)
	if err == nil || strings.Contains(err.Error(), "hunter2") || strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 700 ||
		!strings.HasSuffix(err.Error(), "first no printer [31m for ***") {
		t.Errorf("error %q", err)
	}
}

func TestHandle_reports_what_is_printed(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		`{"number": 7}`:            `{"number":7}`,
		"[1]\n":                    "[1]",
		" \n":                      "",
		"printed 7":                "not JSON",
		`{} {}`:                    "not JSON",
		`"0123456789012345678901"`: "more than 20 bytes",
	} {
		got, err := run(t, command.Config{Command: script(`printf %s "$1"`, output), Report: true, MaxOutput: 20}, job)
		switch {
		case err == nil && got != want:
			t.Errorf("%q is reported as %q, want %q", output, got, want)
		case err != nil && (!strings.Contains(err.Error(), want) || schema.KindOf(err) != schema.Permanent || want == ""):
			t.Errorf("%q: error %v (%v), want %q", output, err, schema.KindOf(err), want)
		}
	}
	if got, err := run(t, command.Config{Command: script("echo printed")}, job); got != "" || err != nil {
		t.Errorf("without report: %q, error %v", got, err)
	}
}

// A program that prints without end, or does not read what it is given, is not stopped by that.
func TestHandle_of_much_data(t *testing.T) {
	t.Parallel()
	big := schema.NewJob("labels", "print", []byte(strings.Repeat("x", 1<<20)))
	for name, lines := range map[string]string{
		"prints everything back":  "cat",
		"prints it as its errors": "cat >&2",
		"reads nothing":           "exit 0",
		"closes its input":        "exec <&-; exit 0",
		"closes its output":       "exec >&- 2>&-; cat >/dev/null",
	} {
		if _, err := run(t, command.Config{Command: script(lines)}, big); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHandle_refuses_what_cannot_be_a_variable(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*schema.Envelope){
		"MILLBRIDGE_KEY":          func(e *schema.Envelope) { e.Key = "a\x00b" },
		"MILLBRIDGE_TENANT":       func(e *schema.Envelope) { e.Tenant = "\xff" },
		"MILLBRIDGE_CONTENT_TYPE": func(e *schema.Envelope) { e.ContentType = "\x00" },
	} {
		env := job
		change(&env)
		marker := filepath.Join(t.TempDir(), "ran")
		cfg := command.Config{Command: script(`: > "$1"`, marker)}
		_, err := run(t, cfg, env)
		if err == nil || schema.KindOf(err) != schema.Permanent || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v (%v)", name, err, schema.KindOf(err))
		}
		if _, err := newProgram(t, cfg).(handlers.Previewer).Preview(t.Context(), env); schema.KindOf(err) != schema.Permanent {
			t.Errorf("%s: the preview says %v", name, err)
		}
		if _, err := os.Stat(marker); err == nil {
			t.Errorf("%s: the program ran", name)
		}
	}
}

func TestHandle_when_the_time_is_up(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cancel func(context.Context) (context.Context, context.CancelFunc)
		want   error
		kind   schema.ErrorKind
	}{
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 300*time.Millisecond)
		}, context.DeadlineExceeded, schema.Temporary},
		"stop": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			timer := time.AfterFunc(300*time.Millisecond, cancel)
			return ctx, func() { timer.Stop(); cancel() }
		}, context.Canceled, schema.Shutdown},
		"somebody else has it": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			timer := time.AfterFunc(300*time.Millisecond, func() { cancel(schema.WithKind(schema.NotMine, errTaken)) })
			return ctx, func() { timer.Stop(); cancel(nil) }
		}, errTaken, schema.NotMine},
	} {
		ctx, cancel := c.cancel(t.Context())
		start := time.Now()
		err := newProgram(t, command.Config{Command: script("echo waiting >&2; sleep 60")}).Handle(ctx, job)
		cancel()
		if !errors.Is(err, c.want) || schema.KindOf(err) != c.kind || !strings.HasSuffix(err.Error(), ": waiting") {
			t.Errorf("%s: error %v (%v)", name, err, schema.KindOf(err))
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	marker := filepath.Join(t.TempDir(), "ran")
	err := newProgram(t, command.Config{Command: script(`: > "$1"`, marker)}).Handle(ctx, job)
	if _, statErr := os.Stat(marker); !errors.Is(err, context.Canceled) || statErr == nil {
		t.Errorf("after the end: error %v, ran %v", err, statErr == nil)
	}
}

var errTaken = errors.New("taken")
