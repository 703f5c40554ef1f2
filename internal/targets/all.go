package targets

import (
	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/command"
	"github.com/millbridge/millbridge/handlers/httprelay"
	"github.com/millbridge/millbridge/handlers/natsrelay"
	"github.com/millbridge/millbridge/handlers/natsrequest"
	"github.com/millbridge/millbridge/handlers/ncip"
	"github.com/millbridge/millbridge/handlers/peer"
	"github.com/millbridge/millbridge/handlers/reshare"
	"github.com/millbridge/millbridge/handlers/webhook"
)

// all has every type once, sorted by name.
var all = []Type{
	typeOf("exec", "runs a program, with the payload on its standard input", plain(command.New)),
	typeOf("http", "makes the requests of an HTTP API, as its actions are described", plain(httprelay.New)),
	typeOf("nats", "passes messages on to another NATS account or cluster", plain(natsrelay.New)),
	typeOf("ncip", "asks a library's system over NCIP 2.02", plain(ncip.New)),
	typeOf("peer", "passes messages on to another Millbridge, by HTTP", plain(peer.New)),
	typeOf("request", "asks a service on NATS and waits for its reply", plain(natsrequest.New)),
	typeOf("reshare", "makes patron requests in Project ReShare and performs actions on them", plain(reshare.New)),
	typeOf("webhook", "posts each message to a URL, signed", func(c webhook.Config, env Env) (handlers.Handler, error) {
		c.Timeout, c.Logger = env.Timeout, env.Logger
		return webhook.New(c)
	}),
}

// plain is for types that want to know nothing besides their settings.
func plain[C any](open func(C) (handlers.Handler, error)) func(C, Env) (handlers.Handler, error) {
	return func(c C, _ Env) (handlers.Handler, error) { return open(c) }
}
