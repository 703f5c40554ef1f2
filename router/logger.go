package router

import (
	"log/slog"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/millbridge/millbridge/schema"
)

// routerLogger passes on only what Watermill's router calls an error: everything else is logged by the middlewares,
// which know more.
type routerLogger struct{ log *slog.Logger }

func (l routerLogger) Error(msg string, err error, fields watermill.LogFields) {
	l.log.Error("router: "+schema.OneLine(msg), "error", schema.Reason(err), "handler", fields["handler_name"])
}

func (l routerLogger) Info(string, watermill.LogFields)                        {}
func (l routerLogger) Debug(string, watermill.LogFields)                       {}
func (l routerLogger) Trace(string, watermill.LogFields)                       {}
func (l routerLogger) With(fields watermill.LogFields) watermill.LoggerAdapter { return l }
