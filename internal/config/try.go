package config

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/targets"
)

// Try makes the handler of each target and drops it again. It finds what the settings alone do not tell: files with
// certificates that are not there or hold something else, and events for which a target has no action. It connects to
// nothing. The configuration must be one that [Load] found nothing wrong with.
func (c *Config) Try() error {
	l := newLayer(c)
	for _, name := range c.TargetNames() {
		t := c.Targets[name]
		bad := func(key, format string, args ...any) {
			key = targetsPrefix + name + "." + key
			l.fault(c.near(key), key, format, args...)
		}
		h, err := t.own.Open(targets.Env{Name: name, Timeout: time.Duration(t.Timeout), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.blame(bad, err)
			continue
		}
		if typed, ok := h.(interface{ Names() []string }); ok {
			for _, event := range t.Events {
				if takes := (handlers.Subscription{Events: []string{event}}).Takes; !slices.ContainsFunc(typed.Names(), takes) {
					bad("events", "%s is the name of no action, so each would be a dead letter; there are %s", quote(event), strings.Join(typed.Names(), ", "))
				}
			}
		}
		if err := targets.Close(h); err != nil {
			t.blame(bad, err)
		}
	}
	return errors.Join(l.faults...)
}
