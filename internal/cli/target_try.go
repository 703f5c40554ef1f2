package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/config"
	"github.com/millbridge/millbridge/internal/targets"
	"github.com/millbridge/millbridge/schema"
)

func (a *app) targetTestCommand() *cobra.Command {
	var flags publishFlags
	cmd := &cobra.Command{
		Use:   "test <target> <action|event> [payload|-]",
		Short: "Show what a target would send for a message, without sending it",
		Long: `Makes a message as ` + "`millbridge publish`" + ` would and shows what the target would send for it: requests with
headers and bodies, programs with their input. Nothing is published, connected to or run; secrets
are masked. For a subscription the second argument is the event's name. Exit code 3 if the target
would refuse the message.`,
		Example: `  millbridge target test crm contact.update '{"id": 7}'
  millbridge target test crm contact.update --file contact.json --key contact-7-v3
  millbridge target test warehouse order.placed '{"order": 7}' --json | jq -r .do`,
		Args: needArgs(2, 3, "a target", "an action or event", "a payload"),
		RunE: func(cmd *cobra.Command, args []string) error {
			payload, err := flags.payload(args[2:], a.env.Stdin)
			if err != nil {
				return err
			}
			opts, err := flags.options(payload, a.env.Now())
			if err != nil {
				return err
			}
			c, err := a.loadConfig(cmd)
			if err != nil {
				return err
			}
			return withTarget(c, args[0], func(t *config.Target, h handlers.Handler) error {
				return a.testTarget(cmd.Context(), t, h, args[0], args[1], payload, opts)
			})
		},
	}
	flags.register(cmd)
	return cmd
}

func (a *app) testTarget(ctx context.Context, t *config.Target, h handlers.Handler, name, what string, payload []byte, opts []schema.Option) error {
	env := schema.NewJob(name, what, payload, opts...)
	if len(t.Events) > 0 {
		env = schema.NewEvent(what, payload, opts...)
		if !(handlers.Subscription{Events: t.Events}).Takes(what) {
			return withHint(wrongError{fmt.Errorf("%s does not subscribe to %s: its events are %s", name, schema.OneLine(what), strings.Join(t.Events, ", "))},
				"change targets.%s.events, or name one of them", name)
		}
	}
	if err := env.Validate(0); err != nil {
		return wrongError{fmt.Errorf("the message would be refused when it is published: %w", err)}
	}
	previewer, ok := h.(handlers.Previewer)
	if !ok {
		return fmt.Errorf("targets of the type %s cannot say what they would send", t.Type)
	}
	list, err := previewer.Preview(handlers.WithCall(ctx, handlers.CallOf(name, env)), env)
	if err != nil {
		return withHint(wrongError{fmt.Errorf("the target would refuse the message (%s): %w", schema.KindOf(err), err)},
			"change the message or targets.%s; nothing was sent", name)
	}
	for i, p := range list {
		if a.flags.json {
			err = object(a.env.Stdout, p)
		} else {
			err = printPreview(a.env.Stdout, p, i > 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func printPreview(w io.Writer, p handlers.Preview, again bool) error {
	var b strings.Builder
	if again {
		b.WriteByte('\n')
	}
	b.WriteString(escape(p.Do) + "\n")
	if p.When != "" {
		b.WriteString("  when " + escape(p.When) + "\n")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Header)) {
		b.WriteString("  " + escape(name+": "+p.Header[name]) + "\n")
	}
	if p.Body != "" {
		b.WriteString("\n" + indent(payloadText([]byte(p.Body)), "  ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// withTarget opens a target of the configuration to look at it; nothing is connected to.
func withTarget(c *config.Config, name string, look func(t *config.Target, h handlers.Handler) error) error {
	t := c.Targets[name]
	if t == nil {
		return withHint(fmt.Errorf("there is no target %s in the configuration", schema.OneLine(name)), "`millbridge target list` shows them all")
	}
	h, err := t.Open(name, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return errors.Join(look(t, h), targets.Close(h))
}
