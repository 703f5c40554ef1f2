package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) configCommand() *cobra.Command {
	check := &cobra.Command{
		Use:   "check",
		Short: "Report everything that is wrong with the configuration",
		Long: `Reads file, environment and flags, the files with secrets and certificates that they name, and reports
everything that is wrong, each fault with the line, variable or flag it comes from. Nothing is
connected to; see ` + "`millbridge status`" + ` for that.
Exit code 3 if something is wrong.`,
		Example: `  millbridge config check
  millbridge config check --config /etc/millbridge/millbridge.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := a.loadConfig(cmd)
			c := a.flags.config // what could be read of it, even if something is wrong
			if c == nil {
				return err
			}
			if err == nil { // else targets cannot be opened
				err = withHint(c.Try(), "correct what is named above; docs/targets.md tells about each type")
			}
			if a.flags.json {
				faults := []string{}
				if err != nil {
					faults = a.redactAll(strings.Split(err.Error(), "\n"))
				}
				if printErr := object(a.env.Stdout, struct {
					OK     bool     `json:"ok"`
					Using  string   `json:"using"`
					Faults []string `json:"faults"`
				}{err == nil, c.String(), faults}); printErr != nil {
					return printErr
				}
			}
			if err != nil {
				return wrongError{err}
			}
			if a.flags.json {
				return nil
			}
			_, err = fmt.Fprintf(a.env.Stdout, "ok: %s, %s\n", escape(c.String()), count(len(c.Targets), "target"))
			return err
		},
	}
	show := &cobra.Command{
		Use:   "print",
		Short: "Print the effective configuration, secrets masked, with the origin of each value",
		Long: `Prints every setting with its effective value, as a file that could be used, and says where
each value comes from. Flags beat the environment, the environment beats the file, the file
beats the default. Passwords, tokens and secret parts of addresses are masked. If something is wrong,
it prints what could be read, and then what is wrong.

Each key is also an environment variable: database.url is MILLBRIDGE_DATABASE_URL. Each key that
holds a secret can be read from a file: database.url_file.`,
		Example: `  millbridge config print
  MILLBRIDGE_LOG_LEVEL=debug millbridge config print --set stop_timeout=1m
  millbridge config print --json | jq 'select(.origin != "default")'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, fault := a.loadConfig(cmd)
			c := a.flags.config // what could be read of it, even if something is wrong
			if c == nil {
				return fault
			}
			if !a.flags.json {
				return errors.Join(c.Print(a.env.Stdout), fault)
			}
			for _, v := range c.Values() {
				if err := object(a.env.Stdout, v); err != nil {
					return err
				}
			}
			return fault
		},
	}
	return group("config", "Check or print the configuration", "Checks or prints the configuration as the other commands see it.", check, show)
}
