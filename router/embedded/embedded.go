// Package embedded is the default that needs no installation, as an option: SQLite and a NATS server with JetStream in
// the process itself, in one data directory. A program that does not import it links neither.
//
//	in, err := embedded.Open(ctx, "data", embedded.Options{})
//	...
//	defer in.Close()
//	bridge, err := router.Open(ctx, router.Config{Store: in.Store, Conn: in.Conn})
package embedded

import (
	"context"
	"database/sql"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/internal/embedded"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// ErrInUse reports a data directory that another process runs.
var ErrInUse = embedded.ErrInUse

// Options of [Open]. The zero value works.
type Options struct {
	Logger *slog.Logger // Default: nothing is logged.
	// MaxStore is how many bytes the streams may take on disk; when it is full, rows wait in the outbox. Default: 8 GiB.
	MaxStore int64
}

// An Instance is an open data directory: what a bridge needs and what the application needs to write beside it.
type Instance struct {
	Store *sqlite.Store // migrated
	Conn  *nats.Conn
	DB    *sql.DB // the same database, for the application's tables; one connection, immediate transactions
	URL   string  // for other NATS clients on this machine; contains a token

	instance *embedded.Instance
}

// Open opens the data directory dir, which is made when needed and must not be open to others. If another process runs
// it, the error wraps [ErrInUse].
func Open(ctx context.Context, dir string, opts Options) (*Instance, error) {
	in, err := embedded.Open(ctx, dir, embedded.Options{
		Logger: opts.Logger,
		Server: embedded.ServerOptions{MaxStore: opts.MaxStore},
	})
	if err != nil {
		return nil, err
	}
	return &Instance{Store: in.Store, Conn: in.Conn(), DB: in.DB.Write, URL: in.NATSURL, instance: in}, nil
}

// Close stops the server and closes the database; close what uses them first.
func (in *Instance) Close() error { return in.instance.Close() }
