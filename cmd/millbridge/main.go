// Command millbridge runs and operates a bridge between a database and NATS JetStream; see `millbridge --help`.
package main

import (
	"context"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/millbridge/millbridge/internal/cli"
)

func main() {
	// net/http's client prints there what a server sends unasked, which may be a token that it was sent.
	log.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first signal stops gracefully; the second one then kills
	os.Exit(cli.Main(ctx, os.Args[1:], cli.System()))
}
