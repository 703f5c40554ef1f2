package cli

import "github.com/spf13/cobra"

func (a *app) targetCommand() *cobra.Command {
	return group("target", "Look at the configured targets and try them, stop and start targets",
		`Shows the targets of the configuration, and what they would send; see docs/targets.md for their types.
Has the messages of any target or subscription wait, and go on.`,
		a.targetListCommand(), a.targetTestCommand(), a.targetDisableCommand(), a.targetEnableCommand())
}
