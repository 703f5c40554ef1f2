package cli

import "github.com/spf13/cobra"

func (a *app) targetCommand() *cobra.Command {
	return group("target", "Look at the configured targets and try them",
		"Shows the targets of the configuration, and what they would send. See docs/targets.md for their types.",
		a.targetListCommand(), a.targetTestCommand())
}
