package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/config"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/sqlite"
)

func (a *app) migrateCommand() *cobra.Command {
	return group("migrate", "Create, update, drop or print the tables",
		`Creates, updates, drops or prints the tables that messages are kept in. Any number of processes may
migrate at once. The embedded default migrates itself.`,
		a.migrateUp(), a.migrateDown(), a.migrateStatus(), a.migratePrint())
}

func (a *app) migrateUp() *cobra.Command {
	var maxPayload string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring the database to the version this program needs",
		Example: `  millbridge migrate up --database-url postgres://admin@db/shop
  millbridge migrate up --max-payload 256KiB`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var limit int64
			if maxPayload != "" {
				var err error
				if limit, err = config.ParseSize(maxPayload); err != nil {
					return usagef("--max-payload: %v", err)
				}
			}
			return a.withDatabase(cmd, func(ctx context.Context, o *opened) error {
				from, to, err := o.store.MigrateUp(ctx)
				if err != nil {
					return err
				}
				if limit > 0 {
					if err := o.store.SetMaxPayload(ctx, int(limit)); err != nil {
						return err
					}
				}
				if a.flags.json {
					return object(a.env.Stdout, struct {
						From int `json:"from"`
						To   int `json:"to"`
					}{from, to})
				}
				said := fmt.Sprintf("migrated from version %d to %d", from, to)
				if from == to {
					said = fmt.Sprintf("already at version %d", to)
				}
				if limit > 0 {
					said += ", the largest payload is now " + maxPayload
				}
				_, err = fmt.Fprintln(a.env.Stdout, said)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&maxPayload, "max-payload", "", "also set the largest payload that is accepted, as a `size` such as 256KiB")
	return cmd
}

func (a *app) migrateDown() *cobra.Command {
	var force, yes bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Drop all tables of Millbridge",
		Long: `Drops all tables of Millbridge. Refuses while a process forwards, and while messages wait in the tables,
unless --force is given: those are lost. Without a terminal it needs --yes.`,
		Example: `  millbridge migrate down
  millbridge migrate down --force --yes`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes && !a.env.InTerminal {
				return usagef("drop all tables: nobody can be asked here; repeat with --yes")
			}
			return a.withDatabase(cmd, func(ctx context.Context, o *opened) error {
				if err := o.forwardsNowhere(ctx); err != nil {
					return err
				}
				if !yes {
					if err := a.ask("drop all tables of Millbridge in " + o.config.String()); err != nil {
						return err
					}
				}
				if err := o.store.MigrateDown(ctx, force); err != nil {
					return err
				}
				if a.flags.json {
					return object(a.env.Stdout, struct {
						Dropped bool `json:"dropped"`
					}{true})
				}
				_, err := fmt.Fprintln(a.env.Stdout, "dropped all tables")
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "drop messages that still wait")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// forwardsNowhere reports a process that forwards, as far as the database knows: its tables are in use.
func (o *opened) forwardsNowhere(ctx context.Context) error {
	if o.instance != nil && o.instance.Attached() {
		return withHint(fmt.Errorf("a process runs %s", o.config.DataDir), "stop it first; nothing was dropped")
	}
	for _, stream := range schema.Streams {
		shards, err := o.store.Shards(ctx, stream)
		if errors.Is(err, schema.ErrNotMigrated) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, sh := range shards {
			if sh.LeaseLeft > 0 {
				return withHint(fmt.Errorf("a process forwards shard %d of %s: the tables are in use", sh.Shard, stream),
					"stop all bridges first; the lease of one that died ends in %v; nothing was dropped", sh.LeaseLeft.Round(time.Second))
			}
		}
	}
	return nil
}

func (a *app) migrateStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Compare the database's version with the one this program needs",
		Long:  "Compares the database's version with the one this program needs. Exit code 3 if they differ.",
		Example: `  millbridge migrate status
  millbridge migrate status --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDatabase(cmd, func(ctx context.Context, o *opened) error {
				have, want, err := o.store.SchemaVersion(ctx)
				if err != nil {
					return err
				}
				if a.flags.json {
					err = object(a.env.Stdout, struct {
						Have int  `json:"have"`
						Want int  `json:"want"`
						OK   bool `json:"ok"`
					}{have, want, have == want})
				} else {
					_, err = fmt.Fprintf(a.env.Stdout, "version %d, this program needs %d\n", have, want)
				}
				switch {
				case err != nil || have == want:
					return err
				case have > want:
					return wrongError{withHint(fmt.Errorf("the database is newer than this program"), "use a newer millbridge")}
				}
				return wrongError{withHint(fmt.Errorf("the database is not up to date"), "`millbridge migrate up`")}
			})
		},
	}
}

func (a *app) migratePrint() *cobra.Command {
	var down, lite bool
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the SQL of the migrations, for those who run them with another tool",
		Example: `  millbridge migrate print > 0042_millbridge.sql
  millbridge migrate print --down
  millbridge migrate print --sqlite`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			scripts := postgres.Migrations()
			if lite {
				scripts = sqlite.Migrations()
			}
			suffix := ".up.sql"
			if down {
				suffix = ".down.sql"
			}
			names, err := fs.Glob(scripts, "*"+suffix)
			if err != nil {
				return fmt.Errorf("list migrations: %w", err)
			}
			for _, name := range names {
				text, err := fs.ReadFile(scripts, name)
				if err != nil {
					return fmt.Errorf("read migration %s: %w", name, err)
				}
				fmt.Fprintf(a.env.Stdout, "-- %s\n%s\n", name, strings.TrimSpace(string(text)))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&down, "down", false, "print the way down")
	cmd.Flags().BoolVar(&lite, "sqlite", false, "for SQLite instead of PostgreSQL")
	return cmd
}
