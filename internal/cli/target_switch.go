package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/schema"
)

func (a *app) targetDisableCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "disable <name>",
		Short: "Have a target's messages wait until it is enabled",
		Long: `Has the messages of a target or a subscription wait in their stream, whoever serves it, until it is
enabled. It takes effect within about a second, also on processes that start later; handlers that run go
on to their end. No message loses an attempt. The event millbridge.target.disabled tells of it, and
` + "`millbridge status`" + ` is not ok meanwhile. If it is disabled already nothing changes.`,
		Example: `  millbridge target disable crm
  millbridge target disable crm --reason 'moves to another host until Monday'`,
		Args: needArgs(1, 1, "the name of a target or subscription"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.switchTarget(cmd, args[0], func(ctx context.Context, s *ops.Service) (ops.Switched, error) {
				return s.Disable(ctx, args[0], reason)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "by an operator", "why; `text` that status and the event show")
	return cmd
}

func (a *app) targetEnableCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "enable <name>",
		Short: "Let a target's messages go on",
		Long: `Lets the messages of a target or a subscription that is disabled go on, whether an operator or failures
that lasted have disabled it: within about a second, and as if it had never failed. The event
millbridge.target.enabled tells of it. If it is not disabled nothing changes.`,
		Example: `  millbridge target enable crm
  millbridge status --json | jq -r '.circuits[] | select(.disabled) | .handler'`,
		Args: needArgs(1, 1, "the name of a target or subscription"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.switchTarget(cmd, args[0], func(ctx context.Context, s *ops.Service) (ops.Switched, error) {
				return s.Enable(ctx, args[0])
			})
		},
	}
}

func (a *app) switchTarget(cmd *cobra.Command, name string, order func(context.Context, *ops.Service) (ops.Switched, error)) error {
	if err := schema.CheckTarget(name); err != nil {
		return usageError{err}
	}
	return a.withBridge(cmd, func(ctx context.Context, o *opened) error {
		done, err := order(ctx, o.ops)
		if err != nil {
			return err
		}
		done.Reason = a.redact(done.Reason)
		if done.Unknown {
			fmt.Fprintf(a.env.Stderr, "no bridge has served a target or subscription %s yet\n", escape(name))
		}
		if a.flags.json {
			return object(a.env.Stdout, done)
		}
		_, err = fmt.Fprintln(a.env.Stdout, escape(name+" "+switchedText(done)))
		return err
	})
}

func switchedText(s ops.Switched) string {
	switch {
	case s.Disabled && s.Changed:
		return "is disabled, its messages wait"
	case s.Disabled:
		return fmt.Sprintf("is disabled already, since %s: %s", stamp(s.Since), s.Reason)
	case s.Changed:
		return fmt.Sprintf("is enabled; it was disabled since %s: %s", stamp(s.Since), s.Reason)
	}
	return "is not disabled"
}
