package targets

import (
	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/command"
	"github.com/millbridge/millbridge/handlers/webhook"
)

// all has every type once, sorted by name.
var all = []Type{
	typeOf("exec", "runs a program, with the payload on its standard input", func(c command.Config, _ Env) (handlers.Handler, error) {
		return command.New(c)
	}),
	typeOf("webhook", "posts each message to a URL, signed", func(c webhook.Config, env Env) (handlers.Handler, error) {
		c.Timeout, c.Logger = env.Timeout, env.Logger
		return webhook.New(c)
	}),
}
