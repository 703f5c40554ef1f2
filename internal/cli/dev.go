package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

func (a *app) devCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "dev",
		Short: "Run an embedded bridge to develop against and to try commands on",
		Long: `Runs the embedded default, stays up, and says how to connect to it: for NATS clients, for SQLite and
with the other commands. A built-in target "echo" prints the jobs it gets, and a subscription prints
all events. Targets of the configuration are served too. The data stays in the data directory.`,
		Example: `  millbridge dev
  millbridge dev --data-dir /tmp/try`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.loadConfig(cmd)
			if err != nil {
				return err
			}
			if !c.Embedded() {
				return usagef("dev is for the embedded default; `millbridge run` serves %s", c)
			}
			if c.Origin("log.level") == "default" {
				c.Log.Level = "warn" // the echo is what one wants to see
			}
			return a.with(cmd, need{nats: true, create: true}, func(ctx context.Context, o *opened) error {
				if o.instance.Attached() {
					return withHint(fmt.Errorf("another process runs %s already", c.DataDir), "use the other commands on it, or name another directory with --data-dir")
				}
				bridge, err := o.openBridge(ctx)
				if err == nil {
					err = a.addEcho(bridge)
				}
				if err != nil {
					return err
				}
				if err := a.sayHow(o); err != nil {
					return err
				}
				return runError(ctx, o.runBridge(ctx, bridge))
			})
		},
	}
}

// sayHow says how to connect.
func (a *app) sayHow(o *opened) error {
	db, err := filepath.Abs(filepath.Join(o.config.DataDir, "millbridge.db"))
	if err != nil {
		return err
	}
	if a.flags.json {
		return object(a.env.Stdout, struct {
			NATS    string `json:"nats"`
			SQLite  string `json:"sqlite"`
			DataDir string `json:"data_dir"`
		}{o.instance.NATSURL, db, o.config.DataDir})
	}
	flag := ""
	if o.config.Origin("data_dir") != "default" {
		flag = " --data-dir " + escape(o.config.DataDir)
	}
	w, p := a.env.Stdout, a.paint()
	fmt.Fprintf(w, "%s in %s; Ctrl-C stops it, the data stays\n\n", p.bold("An embedded bridge"), escape(o.config.DataDir))
	fmt.Fprintf(w, "  NATS    %s   (the token is this directory's own)\n", o.instance.NATSURL)
	fmt.Fprintf(w, "  SQLite  %s\n\nTry in another terminal:\n\n", escape(db))
	for _, line := range [][2]string{
		{"publish job echo say '{\"hello\": \"world\"}'", "appears below"},
		{"publish job echo fail", "ends in the poison queue"},
		{"poison list", "shows it there"},
		{"poison replay --all", "puts it back, and it succeeds"},
		{"publish event order.placed '{\"order\": 7}'", "appears below too"},
		{"publish job crm x --due 1m", "waits for its time, and for a target \"crm\""},
		{"status", "says what waits and what is wrong"},
	} {
		fmt.Fprintf(w, "  millbridge %-50s %s\n", line[0]+flag, p.faint("# "+line[1]))
	}
	_, err = fmt.Fprintln(w)
	return err
}

// addEcho adds what prints jobs and events.
func (a *app) addEcho(bridge *router.Bridge) error {
	say := func(what string, env schema.Envelope) {
		if a.flags.json {
			object(a.env.Stdout, struct { //nolint:errcheck // nobody listens any more
				Got  string `json:"got"`
				ID   string `json:"id"`
				Name string `json:"name"`
			}{what, env.ID, env.Name})
			return
		}
		fmt.Fprintf(a.env.Stdout, "%-6s %-20s %s  %s\n", what, escape(env.Name), a.paint().faint(escape(env.ID)), escape(short(string(env.Payload), 100)))
	}
	err := bridge.Target(handlers.Target{
		Name: "echo", Policy: handlers.Policy{Concurrency: 1},
		Handler: handlers.HandlerFunc(func(_ context.Context, env schema.Envelope) error {
			if env.Name == "fail" && env.Replay == nil {
				say("failed", env)
				return handlers.Permanent(errors.New("the job asked to fail; a replay of it succeeds"))
			}
			say("job", env)
			return nil
		}),
	})
	return errors.Join(err, bridge.Subscribe(handlers.Subscription{
		Name: "echo-events", Events: []string{">"}, Policy: handlers.Policy{Concurrency: 1},
		Handler: handlers.HandlerFunc(func(_ context.Context, env schema.Envelope) error {
			say("event", env)
			return nil
		}),
	}))
}
