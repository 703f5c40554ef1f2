package targets

import (
	"errors"
	"strings"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/webhook"
)

// all has every type once, sorted by name.
var all = []Type{
	typeOf("webhook", "posts each message to a URL, signed", func(c webhookConfig, env Env) (handlers.Handler, error) {
		w := c.config()
		w.Timeout, w.Logger = env.Timeout, env.Logger
		var err error
		if w.Network, err = c.Network(); err != nil {
			return nil, err
		}
		return webhook.New(w)
	}),
}

type webhookConfig struct {
	URL     configgroup.Secret   `required:"true" doc:"where to post"`
	Secrets []configgroup.Secret `doc:"secrets to sign with, the newest first"`
	outbound.Settings
}

func (c webhookConfig) config() webhook.Config {
	w := webhook.Config{URL: c.URL.Reveal()}
	w.AllowPrivate = c.AllowPrivate
	for _, s := range c.Secrets {
		w.Secrets = append(w.Secrets, s.Reveal())
	}
	return w
}

func (c webhookConfig) Validate() error {
	err := errors.Join(c.config().Validate(), c.Check())
	if err == nil {
		return nil
	}
	text := strings.ReplaceAll(err.Error(), "url is", "url: is")
	return errors.New(strings.ReplaceAll(text, "secret ", "secrets: secret "))
}
