package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/schema"
)

// usageError is a command line that cannot be run as it is written.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// wrongError is the answer of a check that found something wrong. What it is has been printed already.
type wrongError struct{ err error }

func (e wrongError) Error() string { return e.err.Error() }
func (e wrongError) Unwrap() error { return e.err }

// hintedError says what to try next.
type hintedError struct {
	err  error
	hint string
}

func (e hintedError) Error() string { return e.err.Error() }
func (e hintedError) Unwrap() error { return e.err }

func withHint(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return hintedError{err, fmt.Sprintf(format, args...)}
}

// finish prints err with its hint and returns the exit code.
func (a *app) finish(cmd *cobra.Command, err error) int {
	if err == nil {
		return exitOK
	}
	text := a.redact(err.Error())
	hint := hintFor(cmd, err)
	code := exitFailed
	var usage usageError
	var wrong wrongError
	switch {
	case errors.As(err, &usage), strings.HasPrefix(err.Error(), "unknown command "):
		code = exitUsage
	case errors.As(err, &wrong):
		code = exitWrong
	}
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if i == 0 {
			line = "Error: " + line
		} else {
			line = "       " + line
		}
		fmt.Fprintln(a.env.Stderr, escape(line))
	}
	fmt.Fprintln(a.env.Stderr, "Try: "+escape(a.redact(hint)))
	return code
}

// hintFor returns what to do about err.
func hintFor(cmd *cobra.Command, err error) string {
	var hinted hintedError
	var usage usageError
	var netErr net.Error
	var fileErr *fs.PathError
	switch {
	case errors.As(err, &hinted):
		return hinted.hint
	case errors.As(err, &usage), strings.HasPrefix(err.Error(), "unknown command "):
		return fmt.Sprintf("`%s --help` shows how it is used", cmd.CommandPath())
	case errors.Is(err, schema.ErrNotMigrated):
		return "`millbridge migrate up` brings the database up to date"
	case errors.Is(err, schema.ErrSchemaTooNew):
		return "use the version of millbridge that migrated the database, or a newer one"
	case errors.Is(err, schema.ErrNotEmpty):
		return "`millbridge status` shows what is left; --force drops it"
	case errors.Is(err, schema.ErrKeyReused):
		return "use another --key for other content"
	case errors.Is(err, schema.ErrInvalid):
		return "change the fields named above and publish again; nothing was written"
	case errors.Is(err, schema.ErrAlreadyReplayed):
		return "`millbridge show ID` tells where the message is now"
	case errors.Is(err, schema.ErrNotFound):
		return "`millbridge outbox list` and `millbridge poison list` show what there is"
	case errors.Is(err, context.Canceled):
		return "run the same command again; what was done is kept"
	case errors.As(err, &fileErr): // a net.Error as well, for it may have timed out
		return "see that what is named above is there, and that you may use it"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr):
		return "check that database and NATS can be reached; `millbridge config print` shows the addresses in use"
	}
	return "`millbridge status` shows what is wrong; --log-level debug shows more"
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasAvailableSubCommands() {
		names := cmd.SuggestionsFor(args[0])
		if len(names) == 0 {
			for _, sub := range cmd.Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, sub.Name())
				}
			}
		}
		return usagef("%s has no command %q; there is %s", cmd.CommandPath(), args[0], strings.Join(names, ", "))
	}
	return usagef("%s takes no argument %q", cmd.CommandPath(), args[0])
}

// needArgs demands between least and most arguments, named for messages.
func needArgs(least, most int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least {
			return usagef("%s needs %s", cmd.CommandPath(), strings.Join(names[len(args):least], " and "))
		}
		if len(args) > most {
			return usagef("%s takes no argument %q", cmd.CommandPath(), args[most])
		}
		return nil
	}
}
