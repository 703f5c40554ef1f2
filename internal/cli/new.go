package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/scaffold"
)

func (a *app) newCommand() *cobra.Command {
	var check bool
	var dir string
	cmd := group("new", "Write the files of a new target into your Go module, or check those that are there",
		`Writes the files of a new target into the Go module of your program, and finds what has drifted apart
there since. Run it in the module, or name its directory with --dir.

--check compares the registered targets with their configuration, their tests, docs/targets.md and
docs/known-gaps.md, in both directions. It reads source only and changes nothing. Exit code 3 if
something does not fit.`, a.newHandler(&dir))
	cmd.Example = `  millbridge new handler crm --action contact.update
  millbridge new --check`
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !check {
			return usagef("%s needs to know what to do: `handler <target>`, or --check", cmd.CommandPath())
		}
		return a.checkModule(dir)
	}
	cmd.PersistentFlags().StringVar(&dir, "dir", ".", "a `directory` of the Go module")
	cmd.Flags().BoolVar(&check, "check", false, "find what does not fit together")
	return cmd
}

func (a *app) newHandler(dir *string) *cobra.Command {
	var opts scaffold.Options
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "handler <target>",
		Short: "Write the files of a new target",
		Long: `Writes a target into your Go module: typed jobs and their handler, the client that asks the other
system, the group of its configuration, a step for sagas, tests (with a recorder, and end to end on the
embedded default), an entry in the registry targets/targets.go, a section of docs/targets.md and a
record of what is agreed with the other system. What it writes compiles and passes its tests. From then
on it is yours: nothing is generated again.

With --fake the target gets a client that does nothing, for as long as the other system cannot be
reached, and docs/known-gaps.md says so.

Files that are there are not touched: they are named and nothing is written. --force replaces those of
the target, and names each; entries and sections that are there stay as they are.`,
		Example: `  millbridge new handler crm --action contact.update --action contact.delete
  millbridge new handler ledger --fake --dry-run`,
		Args: needArgs(1, 1, "the name of a target"),
		RunE: func(_ *cobra.Command, args []string) error {
			m, err := findModule(*dir)
			if err != nil {
				return err
			}
			opts.Target = args[0]
			changes, err := scaffold.Plan(m, opts)
			switch {
			case errors.Is(err, scaffold.ErrExists):
				return withHint(err, "nothing was written; another name, or --force to replace the files of this target")
			case err != nil:
				return withHint(err, "nothing was written; correct what is named above")
			}
			if !dryRun {
				if err := scaffold.Apply(m, changes); err != nil {
					return err
				}
			}
			return a.printChanges(m, changes, dryRun)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&opts.Actions, "action", []string{"send"}, "an action of the target, by `name`; repeat for more")
	f.BoolVar(&opts.Fake, "fake", false, "the other system cannot be reached yet: the client does nothing")
	f.BoolVar(&dryRun, "dry-run", false, "only say what would be written")
	f.BoolVar(&opts.Force, "force", false, "replace files that are there")
	return cmd
}

func findModule(dir string) (scaffold.Module, error) {
	m, err := scaffold.FindModule(dir)
	switch {
	case errors.Is(err, scaffold.ErrNoModule):
		return m, withHint(err, "run it in the Go module of your program, or name its directory with --dir; `go mod init` makes one")
	case errors.Is(err, fs.ErrNotExist):
		return m, withHint(err, "name the directory of a Go module with --dir")
	}
	return m, err
}

func (a *app) printChanges(m scaffold.Module, changes []scaffold.Change, dryRun bool) error {
	w := a.env.Stdout
	if a.flags.json {
		for _, c := range changes {
			if err := object(w, struct {
				Path   string `json:"path"`
				What   string `json:"what"`
				DryRun bool   `json:"dry_run"`
			}{c.Path, c.What, dryRun}); err != nil {
				return err
			}
		}
		return nil
	}
	would := ""
	if dryRun {
		would = "would "
	}
	for _, c := range changes {
		fmt.Fprintf(w, "%s%-8s %s\n", would, c.What, escape(c.Path))
	}
	if dryRun {
		return nil
	}
	fmt.Fprintln(w, "\nNext:")
	if !m.Requires {
		fmt.Fprintf(w, "  go get %s\n", scaffold.Ours)
	}
	_, err := fmt.Fprint(w, `  go mod tidy && go test ./targets/...
  add what targets.Build() returns to your bridge, each with bridge.Target
  write down in docs/ what the files say you should
  millbridge new --check          # in your CI
`)
	return err
}

func (a *app) checkModule(dir string) error {
	m, err := findModule(dir)
	if err != nil {
		return err
	}
	found, err := scaffold.Check(m)
	if errors.Is(err, fs.ErrNotExist) {
		return withHint(err, "`millbridge new handler <target>` makes a registry")
	}
	if err != nil {
		return err
	}
	for _, d := range found {
		if a.flags.json {
			if err := object(a.env.Stdout, d); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintln(a.env.Stdout, escape(fmt.Sprintf("%s: %s: %s", d.Target, d.File, d.What)))
	}
	if len(found) > 0 {
		return wrongError{withHint(fmt.Errorf("%s", count(len(found), "difference")), "put right what is named above, the code or the page")}
	}
	if !a.flags.json {
		fmt.Fprintln(a.env.Stdout, "nothing has drifted")
	}
	return nil
}
