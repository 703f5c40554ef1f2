package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/config"
)

// listedTarget is a line of `target list`.
type listedTarget struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"`
	Events  []string `json:"events,omitempty"`
	Actions []string `json:"actions,omitempty"`
	Calls   string   `json:"calls,omitempty"`
}

func (a *app) targetListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the targets of the configuration",
		Long: `Lists the targets of the configuration: their types, and what they take: jobs, some with a list of
actions, or events. Nothing is connected to; ` + "`millbridge status`" + ` shows how they are doing.`,
		Example: `  millbridge target list
  millbridge target list --json | jq -r .name`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.loadConfig(cmd)
			if err != nil {
				return err
			}
			var list []listedTarget
			for _, name := range c.TargetNames() {
				err := withTarget(c, name, func(t *config.Target, h handlers.Handler) error {
					list = append(list, listTarget(name, t, h))
					return nil
				})
				if err != nil {
					return err
				}
			}
			if a.flags.json {
				for _, line := range list {
					if err := object(a.env.Stdout, line); err != nil {
						return err
					}
				}
				return nil
			}
			return a.printTargets(list)
		},
	}
}

func listTarget(name string, t *config.Target, h handlers.Handler) listedTarget {
	line := listedTarget{Name: name, Type: t.Type, Events: t.Events}
	if typed, ok := h.(interface{ Names() []string }); ok && len(t.Events) == 0 {
		line.Actions = typed.Names()
	}
	if s, ok := h.(fmt.Stringer); ok {
		line.Calls = s.String()
	}
	return line
}

func (a *app) printTargets(list []listedTarget) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(a.env.Stdout, "no targets in the configuration; docs/targets.md shows how to add one")
		return err
	}
	w := tabwriter.NewWriter(a.env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tTYPE\tTAKES\tCALLS")
	for _, t := range list {
		takes := "all jobs"
		switch {
		case len(t.Events) > 0:
			takes = "events " + strings.Join(t.Events, " ")
		case len(t.Actions) > 0:
			takes = "jobs " + strings.Join(t.Actions, " ")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.Name, t.Type, takes, escape(t.Calls))
	}
	return w.Flush()
}
