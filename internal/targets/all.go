package targets

import (
	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/webhook"
)

// all has every type once, sorted by name.
var all = []Type{
	typeOf("webhook", "posts each message to a URL, signed", func(c webhook.Config, env Env) (handlers.Handler, error) {
		c.Timeout, c.Logger = env.Timeout, env.Logger
		return webhook.New(c)
	}),
}
