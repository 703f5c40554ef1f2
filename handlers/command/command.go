package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// New returns a handler that runs the program once for each message. It does not look whether the program is there. On
// systems without process groups, such as Windows, it is an error.
func New(cfg Config) (handlers.Handler, error) {
	err := errUnsupported
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	p := &program{
		argv:      slices.Clone(cfg.Command),
		dir:       cmp.Or(cfg.Dir, DefaultDir),
		grace:     cmp.Or(cfg.Grace, DefaultGrace),
		report:    cfg.Report,
		maxOutput: cmp.Or(cfg.MaxOutput, DefaultMaxOutput),
		permanent: slices.Clone(cfg.PermanentCodes),
	}
	if !slices.Contains(cfg.TemporaryCodes, exDataErr) {
		p.permanent = append(p.permanent, exDataErr)
	}
	fixed := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
	for name, value := range cfg.Env {
		delete(fixed, name)
		p.env = append(p.env, variable{name, value.Reveal(), true})
	}
	for name, value := range fixed {
		p.env = append(p.env, variable{name, value, false})
	}
	slices.SortFunc(p.env, func(a, b variable) int { return strings.Compare(a.name, b.name) })
	return p, nil
}

// exDataErr is EX_DATAERR of <sysexits.h>: the input was incorrect.
const exDataErr = 65

// program is run once for each message.
type program struct {
	argv      []string
	dir       string
	env       []variable
	grace     time.Duration
	report    bool
	maxOutput int
	permanent []int
}

// variable is one entry of the program's environment.
type variable struct {
	name, value string
	secret      bool
}

// String leaves out arguments and environment.
func (p *program) String() string { return "exec " + p.argv[0] }

// Format writes String whatever the verb: the environment has secrets.
func (p *program) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(p.String())) }

// Handle runs the program for one message.
func (p *program) Handle(ctx context.Context, env schema.Envelope) error {
	vars, err := p.environment(ctx, env)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("run %s: %w", p.argv[0], context.Cause(ctx))
	}
	end, err := p.run(ctx, vars, env.Payload)
	if err == nil {
		err = p.judge(end)
	}
	if err == nil && p.report {
		err = p.answer(ctx, end)
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", p.argv[0], err)
	}
	return nil
}

// Preview says how the program would be run.
func (p *program) Preview(ctx context.Context, env schema.Envelope) ([]handlers.Preview, error) {
	vars, err := p.environment(ctx, env)
	if err != nil {
		return nil, err
	}
	shown := make(map[string]string, len(vars))
	for _, v := range vars {
		shown[v.name] = v.value
		if v.secret {
			shown[v.name] = mask
		}
	}
	return []handlers.Preview{{Do: "exec " + strings.Join(p.argv, " "), Header: shown, Body: string(env.Payload)}}, nil
}

const mask = "***"

// environment returns everything that the program sees. What cannot be a variable makes the message undeliverable: it
// would be the same in each attempt.
func (p *program) environment(ctx context.Context, env schema.Envelope) ([]variable, error) {
	call, ok := handlers.CallFrom(ctx)
	if !ok {
		call = handlers.CallOf(env.Target, env)
	}
	vars := slices.Clone(p.env)
	for _, v := range [...]variable{
		{"ID", env.ID, false},
		{"KEY", env.IdempotencyKey(), false},
		{"KIND", string(env.Kind), false},
		{"NAME", env.Name, false},
		{"TARGET", call.Handler, false},
		{"TENANT", env.Tenant, false},
		{"ACTOR", env.Actor, false},
		{"REQUEST_ID", env.RequestID, false},
		{"TRACEPARENT", env.TraceParent, false},
		{"CONTENT_TYPE", env.ContentType, false},
		{"ATTEMPT", fmt.Sprint(max(call.Attempt, 1)), false},
		{"REPLAY", fmt.Sprint(call.Replay), false},
	} {
		v.name = ownPrefix + v.name
		if !isText(v.value) {
			return nil, handlers.Permanent(fmt.Errorf("%s: has a NUL byte or is not UTF-8, so it cannot be a variable", v.name))
		}
		vars = append(vars, v)
	}
	return vars, nil
}

// ending is how a run of the program ended.
type ending struct {
	code   int    // exit code, -1 if a signal ended it
	signal string // the signal's name
	stdout output
	stderr string // its last line or so, without secrets
}

// judge turns the end of a program into what Handle returns; see the table in the package's documentation.
func (p *program) judge(e ending) error {
	switch {
	case e.code == 0:
		return nil
	case e.signal != "":
		return schema.WithKind(schema.Temporary, errors.New("ended by signal: "+e.signal+hint(e.stderr)))
	case slices.Contains(p.permanent, e.code):
		return handlers.Permanent(fmt.Errorf("exit code %d%s", e.code, hint(e.stderr)))
	}
	return schema.WithKind(schema.Temporary, fmt.Errorf("exit code %d%s", e.code, hint(e.stderr)))
}

func hint(stderr string) string {
	if stderr == "" {
		return ""
	}
	return ": " + stderr
}

// answer reports what the program has printed. It has done its work, so a second run would print no better answer.
func (p *program) answer(ctx context.Context, e ending) error {
	switch {
	case e.stdout.over:
		return handlers.Permanent(fmt.Errorf("done, but the answer has more than %d bytes", p.maxOutput))
	case strings.TrimSpace(string(e.stdout.kept)) == "":
		return nil
	case !json.Valid(e.stdout.kept):
		return handlers.Permanent(errors.New("done, but the answer is not JSON"))
	}
	return handlers.Report(ctx, json.RawMessage(e.stdout.kept))
}
