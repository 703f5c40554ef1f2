package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/config"
	"github.com/millbridge/millbridge/schema"
)

// maxInput is more than any payload limit a server can have.
const maxInput = 65 << 20

type publishFlags struct {
	file        string
	id          string
	key         string
	orderingKey string
	tenant      string
	actor       string
	requestID   string
	contentType string
	due         string
	metadata    []string
	public      bool
}

func (p *publishFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&p.file, "file", "f", "", "read the payload from `file`")
	f.StringVar(&p.key, "key", "", "idempotency key: the same content with the same key is published once")
	f.StringVar(&p.orderingKey, "ordering-key", "", "keep the order of messages that share this key")
	f.StringVar(&p.due, "due", "", "hold the message back until a `time` (2026-03-01T09:00:00Z) or for a while (10m)")
	f.StringVar(&p.tenant, "tenant", "", "scope of both keys")
	f.StringVar(&p.actor, "actor", "", "who caused the message")
	f.StringVar(&p.requestID, "request-id", "", "the request that caused it")
	f.StringArrayVar(&p.metadata, "meta", nil, "an entry of metadata as `key=value`; repeat for more")
	f.StringVar(&p.contentType, "content-type", "", "media type of the payload (default application/json if it is JSON)")
	f.StringVar(&p.id, "id", "", "message id in place of a new one")
}

// payload reads it from the argument, from the file or from standard input ("-").
func (p *publishFlags) payload(args []string, stdin io.Reader) ([]byte, error) {
	switch {
	case p.file != "" && len(args) > 0:
		return nil, usagef("give the payload as an argument or with --file, not both")
	case p.file != "":
		f, err := os.Open(p.file)
		if err != nil {
			return nil, withHint(err, "check the name given with --file")
		}
		defer f.Close()
		return read(f)
	case len(args) == 0:
		return nil, nil
	case args[0] == "-":
		return read(stdin)
	}
	return []byte(args[0]), nil
}

func read(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInput))
	if err != nil {
		return nil, fmt.Errorf("read the payload: %w", err)
	}
	return data, nil
}

func (p *publishFlags) options(payload []byte, now time.Time) ([]schema.Option, error) {
	opts := []schema.Option{
		schema.WithKey(p.key), schema.WithOrderingKey(p.orderingKey), schema.WithTenant(p.tenant), schema.WithActor(p.actor),
		schema.WithRequestID(p.requestID), schema.WithContentType(p.contentType), schema.WithTime(now),
	}
	if p.contentType == "" && len(payload) > 0 && json.Valid(payload) {
		opts = append(opts, schema.WithContentType("application/json"))
	}
	if p.id != "" {
		opts = append(opts, schema.WithID(p.id))
	}
	if p.public {
		opts = append(opts, schema.WithPublic())
	}
	if p.due != "" {
		wait, err := dueOption(p.due, now)
		if err != nil {
			return nil, usagef("--due: %v", err)
		}
		opts = append(opts, wait)
	}
	for _, entry := range p.metadata {
		k, v, ok := strings.Cut(entry, "=")
		if !ok {
			return nil, usagef("--meta wants key=value")
		}
		opts = append(opts, schema.WithMetadata(map[string]string{k: v}))
	}
	return opts, nil
}

// dueOption reads when a message is due; a span is counted by the database's clock.
func dueOption(s string, now time.Time) (schema.Option, error) {
	if d, err := config.ParseDuration(s); err == nil {
		if d <= 0 {
			return nil, fmt.Errorf("%v is not in the future", d)
		}
		return schema.WithDelay(time.Duration(d)), nil
	}
	due, err := parseTime(s, now)
	return schema.WithDueAt(due), err
}

// parseTime reads a point in time, or a span before now.
func parseTime(s string, now time.Time) (time.Time, error) {
	if d, err := config.ParseDuration(s); err == nil {
		return now.Add(-time.Duration(d)), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05Z07:00", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a time such as 2026-03-01T09:00:00Z nor a span such as 10m", schema.OneLine(s))
}

func (a *app) publishCommand() *cobra.Command {
	var jobFlags, eventFlags publishFlags
	job := &cobra.Command{
		Use:   "job <target> <action> [payload|-]",
		Short: "Publish a job: ask one target for one action",
		Long: `Publishes a job in a transaction of its own. The payload is an argument, a file (--file) or
standard input (-). What can never be delivered is refused and nothing is written.`,
		Example: `  millbridge publish job crm contact.update '{"id": 7}'
  millbridge publish job crm contact.update --file contact.json --key contact-7-v3
  pg_dump mydb | millbridge publish job archive dump.store - --content-type application/sql
  millbridge publish job mail reminder.send '{"to": "a@example.com"}' --due 2h --meta campaign=spring`,
		Args: needArgs(2, 3, "a target", "an action", "a payload"),
		RunE: func(cmd *cobra.Command, args []string) error {
			payload, err := jobFlags.payload(args[2:], a.env.Stdin)
			if err != nil {
				return err
			}
			opts, err := jobFlags.options(payload, a.env.Now())
			if err != nil {
				return err
			}
			return a.publish(cmd, schema.NewJob(args[0], args[1], payload, opts...))
		},
	}
	event := &cobra.Command{
		Use:   "event <name> [payload|-]",
		Short: "Publish an event: state a fact to whoever subscribes",
		Long: `Publishes an event in a transaction of its own. Events are internal unless --public is given.
The payload is an argument, a file (--file) or standard input (-).`,
		Example: `  millbridge publish event order.placed '{"order": 7}'
  millbridge publish event price.changed --file price.json --public --ordering-key sku-42`,
		Args: needArgs(1, 2, "a name", "a payload"),
		RunE: func(cmd *cobra.Command, args []string) error {
			payload, err := eventFlags.payload(args[1:], a.env.Stdin)
			if err != nil {
				return err
			}
			opts, err := eventFlags.options(payload, a.env.Now())
			if err != nil {
				return err
			}
			return a.publish(cmd, schema.NewEvent(args[0], payload, opts...))
		},
	}
	jobFlags.register(job)
	eventFlags.register(event)
	event.Flags().BoolVar(&eventFlags.public, "public", false, "make the event public")
	return group("publish", "Publish a job or an event",
		"Publishes a job or an event by hand. Programs publish in the transaction of what they write; see the package publishers.", job, event)
}

func (a *app) publish(cmd *cobra.Command, env schema.Envelope) error {
	return a.with(cmd, need{create: true}, func(ctx context.Context, o *opened) error {
		var receipts []schema.Receipt
		err := o.store.Unit(ctx, func(unit schema.Unit) error {
			var err error
			receipts, err = unit.Append(ctx, []schema.Envelope{env})
			return err
		})
		if err != nil {
			return err
		}
		r := receipts[0]
		if a.flags.json {
			return object(a.env.Stdout, struct {
				ID       string `json:"id"`
				Existing bool   `json:"existing"`
			}{r.ID, r.Existing})
		}
		said := "published"
		if r.Existing {
			said = "already published as"
		}
		_, err = fmt.Fprintf(a.env.Stdout, "%s %s %s\n", said, env.Kind, escape(r.ID))
		return err
	})
}
