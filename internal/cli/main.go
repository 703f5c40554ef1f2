package cli

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitWrong  = 3 // checked and found wrong
)

// Env is everything a command touches outside its arguments.
type Env struct {
	Stdin       io.Reader
	Stdout      io.Writer
	Stderr      io.Writer
	Getenv      func(name string) string
	Environ     func() []string // all variables, as os.Environ has them; nil if only Getenv is known
	Now         func() time.Time
	InTerminal  bool // a person can answer questions
	OutTerminal bool // a person reads the output as it comes
}

// System returns the environment of the process.
func System() Env {
	return Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Environ: os.Environ, Now: time.Now,
		InTerminal:  isatty.IsTerminal(os.Stdin.Fd()),
		OutTerminal: isatty.IsTerminal(os.Stdout.Fd()),
	}
}

// Main runs one command line, without the program's name, and returns the exit code. Commands that stay up stop
// gracefully when ctx ends.
func Main(ctx context.Context, args []string, env Env) int {
	a := &app{env: env}
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return a.finish(cmd, err)
}

// app is one run of the program.
type app struct {
	env   Env
	flags globals
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "millbridge",
		Short: "Commit business data and messages together; deliver every message once",
		Long: `Millbridge moves messages that were committed with business data from a database to
NATS JetStream, hands them to targets with retries and keeps what cannot be handled.

Without configuration it uses the embedded default: SQLite and a NATS server inside this
program, in one directory. With database.url and nats.url it uses PostgreSQL and NATS.`,
		Example: `  millbridge demo                 # see everything happen in a few seconds
  millbridge dev                  # an embedded bridge that stays up, to try commands against
  millbridge publish job crm contact.update '{"id": 7}'
  millbridge status               # what waits, what runs, what is wrong`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.env.Stdin)
	root.SetOut(a.env.Stdout)
	root.SetErr(a.env.Stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{Use: "no-help", Hidden: true})
	root.SetHelpCommandGroupID(groupOperate) // hidden, but a command without a group has a heading
	root.SetCompletionCommandGroupID(groupOperate)
	a.flags.register(root)
	a.addCommands(root)
	return root
}

// The headings below which the commands are listed.
const (
	groupStart   = "start"
	groupUse     = "use"
	groupOperate = "operate"
)

func (a *app) addCommands(root *cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: groupStart, Title: "Start:"},
		&cobra.Group{ID: groupUse, Title: "Publish and look:"},
		&cobra.Group{ID: groupOperate, Title: "Operate:"},
	)
	add := func(id string, cmds ...*cobra.Command) {
		for _, cmd := range cmds {
			cmd.GroupID = id
			root.AddCommand(cmd)
		}
	}
	add(groupStart, a.demoCommand(), a.devCommand(), a.runCommand(), a.newCommand())
	add(groupUse, a.publishCommand(), a.statusCommand(), a.showCommand(), a.outboxCommand(), a.poisonCommand(), a.sagaCommand(), a.targetCommand())
	add(groupOperate, a.verifyCommand(), a.migrateCommand(), a.repairCommand(), a.importCommand(), a.configCommand(), a.versionCommand())
}

// group returns a command that only has others below it.
func group(use, short, long string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("%s needs to know what to do", cmd.CommandPath())
		},
	}
	cmd.AddCommand(below...)
	return cmd
}
