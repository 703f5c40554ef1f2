package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

func (a *app) runCommand() *cobra.Command {
	var migrate, drain bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Forward messages and serve targets until stopped",
		Long: `Forwards the outbox to the streams and serves the targets of the configuration, until it is stopped.
Any number of identical processes may run at once; each takes over when another dies.

The first signal stops gracefully: nothing new is taken, handlers that run get stop_timeout to finish.
A second one ends the process. While database or NATS is down it waits. It refuses a database that is
not migrated, unless --migrate is given. With --drain it works until nothing is due, prints a tally as
JSON and ends.`,
		Example: `  millbridge run --config /etc/millbridge/millbridge.yaml
  millbridge run --migrate --log-level debug
  millbridge run --drain | jq .handled`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.loadConfig(cmd)
			if err != nil {
				return err
			}
			if err := c.Try(); err != nil {
				return withHint(err, "correct what is named above; `millbridge config check` says whether all is well")
			}
			opening := true
			err = a.with(cmd, need{nats: true, create: true, stay: true}, func(ctx context.Context, o *opened) error {
				opening = false
				if migrate {
					if _, _, err := o.store.MigrateUp(ctx); err != nil {
						return err
					}
				}
				if drain {
					return a.drain(ctx, o)
				}
				stopMetrics, err := o.serveMetrics(ctx)
				if err != nil {
					return err
				}
				defer stopMetrics()
				bridge, err := o.openPatiently(ctx)
				if err != nil {
					return runError(ctx, err)
				}
				o.log.InfoContext(ctx, "bridge runs", "on", o.config.String(), "targets", len(o.config.Targets), "forwards", o.config.Forward)
				if err := o.runBridge(ctx, bridge); err != nil {
					return runError(ctx, err)
				}
				o.log.InfoContext(ctx, "bridge stopped")
				return nil
			})
			if stopped := cmd.Context().Err(); opening && stopped != nil && errors.Is(err, stopped) {
				return nil // a stop before the start
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&migrate, "migrate", false, "bring the database up to date first")
	f.BoolVar(&drain, "drain", false, "work until nothing is due, print the tally and end")
	return cmd
}

// runBridge runs the bridge until ctx ends. Meanwhile it watches it and receives what peers send.
func (o *opened) runBridge(ctx context.Context, bridge *router.Bridge) error {
	stopReceiving, err := o.serveReceiver(ctx, bridge)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { o.watch(running, bridge) })
	group.Go(func() {
		select {
		case <-ctx.Done():
		case <-ended:
		}
		stopReceiving() // before the forwarder stops: what was stored last is sent, too
		stop()
	})
	err = bridge.Run(running)
	close(ended)
	group.Wait()
	return err
}

// runError gives hints that only run can give; a stop before the start is no failure.
func runError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return nil
	case errors.Is(err, schema.ErrNotMigrated):
		return withHint(err, "`millbridge migrate up`, or `millbridge run --migrate`")
	case tooFewServers(err):
		return withHint(err, "streams have 3 copies unless nats.replicas says otherwise; with 1, a lost disk loses messages")
	case errors.Is(err, router.ErrUnfinished):
		return withHint(err, "their messages come back; a longer stop_timeout gives handlers more time")
	}
	return err
}

func (a *app) drain(ctx context.Context, o *opened) error {
	bridge, err := o.openBridge(ctx)
	if err != nil {
		return runError(ctx, err)
	}
	tally, err := bridge.Drain(ctx)
	if printErr := object(a.env.Stdout, tally); printErr != nil {
		return fmt.Errorf("print the tally: %w", printErr)
	}
	return err
}
