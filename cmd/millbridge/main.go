// Command millbridge runs and operates a bridge between a database and NATS JetStream; see `millbridge --help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/millbridge/millbridge/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first signal stops gracefully; the second one then kills
	os.Exit(cli.Main(ctx, os.Args[1:], cli.System()))
}
