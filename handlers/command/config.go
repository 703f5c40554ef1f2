package command

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/schema"
)

// Defaults of a [Config].
const (
	DefaultDir       = "/"
	DefaultGrace     = 5 * time.Second
	DefaultMaxOutput = 64 << 10
)

// A Config describes one program. Only Command is required.
type Config struct {
	// Command is the program's absolute path and its arguments, as they are: no shell reads them, and nothing of a
	// message gets into them.
	Command []string `key:"command" required:"true" doc:"absolute path of the program, and its arguments, as they are"`
	// Dir is the directory that the program starts in; empty means [DefaultDir].
	Dir string `key:"dir" default:"/" doc:"absolute path of the directory that the program starts in"`
	// Env is added to the few variables that the program has anyway, and counts before them.
	Env map[string]configgroup.Secret `key:"env" doc:"more variables for the program"`
	// Grace is what the program has between SIGTERM and SIGKILL; 0 means [DefaultGrace].
	Grace time.Duration `key:"grace" default:"5s" doc:"time between SIGTERM and SIGKILL"`
	// Report hands the program's output back to whoever asked for the job's outcome. It must be JSON then, or empty.
	Report bool `key:"report" doc:"the output is JSON, and is handed back to whoever asked for the outcome"`
	// MaxOutput is how many bytes of output are kept for the report; 0 means [DefaultMaxOutput].
	MaxOutput int `key:"max_output" default:"65536" doc:"bytes of output that a report may have"`
	// PermanentCodes are exit codes that make trying again useless, besides 65.
	PermanentCodes []int `key:"permanent_codes" doc:"exit codes that are permanent, besides 65"`
	// TemporaryCodes are exit codes that are tried again. All but 0 and 65 are; this is for 65.
	TemporaryCodes []int `key:"temporary_codes" doc:"exit codes that are tried again: all are, but for 0, 65 and permanent_codes"`
}

// ownPrefix begins the variables that say which message it is.
const ownPrefix = "MILLBRIDGE_"

// Validate reports everything that is wrong with c. It does not look whether the program is there.
func (c Config) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case len(c.Command) == 0:
		fault("command: is missing")
	case !filepath.IsAbs(c.Command[0]):
		fault("command: %q is no absolute path", schema.OneLine(c.Command[0]))
	}
	for i, arg := range c.Command {
		if strings.ContainsRune(arg, 0) {
			fault("command: argument %d has a NUL byte", i)
		}
	}
	if c.Dir != "" && !filepath.IsAbs(c.Dir) || strings.ContainsRune(c.Dir, 0) {
		fault("dir: %q is no absolute path", schema.OneLine(c.Dir))
	}
	for name, value := range c.Env {
		switch {
		case !isVariable(name):
			fault("env: %q is no name of a variable: want A-Z, a-z, 0-9 and _, not starting with a digit", schema.OneLine(name))
		case strings.HasPrefix(name, ownPrefix):
			fault("env: %s: names that start with %s are ours", name, ownPrefix)
		case !isText(value.Reveal()):
			fault("env: %s: has a NUL byte or is not UTF-8", name)
		}
	}
	if c.Grace < 0 {
		fault("grace: is %v, must not be negative", c.Grace)
	}
	if c.MaxOutput < 0 || c.MaxOutput > handlers.MaxReport {
		fault("max_output: is %d, must be from 0 to %d", c.MaxOutput, handlers.MaxReport)
	}
	for key, codes := range map[string][]int{"permanent_codes": c.PermanentCodes, "temporary_codes": c.TemporaryCodes} {
		for _, code := range codes {
			if code < 1 || code > 255 {
				fault("%s: %d is no exit code of a failure: want 1 to 255", key, code)
			}
		}
	}
	for _, code := range c.PermanentCodes {
		if slices.Contains(c.TemporaryCodes, code) {
			fault("permanent_codes: %d is in temporary_codes, too", code)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func isVariable(name string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
	return name != "" && strings.Contains(letters, name[:1]) && strings.Trim(name, letters+"0123456789") == ""
}

// isText reports whether s can be the value of a variable, and be read by everybody who reads it.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
