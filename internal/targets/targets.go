// Package targets lists the types of targets that a configuration can have, and opens them.
package targets

import (
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers"
)

// A Type is a kind of target that runs from configuration.
type Type struct {
	Name string // the value of the key "type"
	Doc  string // what it calls, in a few words
	New  func() Settings
}

// Settings are the settings of one target: a pointer to a struct that package configgroup reads.
type Settings interface {
	// Pointer is what configgroup fills in.
	Pointer() any
	// Validate reports everything that is wrong, each fault with its key first.
	Validate() error
	// Open makes the handler. It may read files and does no other I/O.
	Open(env Env) (handlers.Handler, error)
}

// Env is what a target is told besides its own settings.
type Env struct {
	Name    string        // of the target
	Timeout time.Duration // of one attempt
	Logger  *slog.Logger
}

// Close closes what a handler holds, if it holds anything.
func Close(h handlers.Handler) error {
	if c, ok := h.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// All returns all types, sorted by name.
func All() []Type { return slices.Clone(all) }

// Named returns the type with the name. The error lists all names.
func Named(name string) (Type, error) {
	names := make([]string, len(all))
	for i, t := range all {
		if t.Name == name {
			return t, nil
		}
		names[i] = t.Name
	}
	return Type{}, errors.New("must be one of " + strings.Join(names, ", "))
}

// settings is the C of a target's package with what opens it.
type settings[C interface{ Validate() error }] struct {
	config C
	open   func(C, Env) (handlers.Handler, error)
}

func (s *settings[C]) Pointer() any    { return &s.config }
func (s *settings[C]) Validate() error { return s.config.Validate() }

func (s *settings[C]) Open(env Env) (handlers.Handler, error) { return s.open(s.config, env) }

func typeOf[C interface{ Validate() error }](name, doc string, open func(C, Env) (handlers.Handler, error)) Type {
	return Type{name, doc, func() Settings { return &settings[C]{open: open} }}
}
