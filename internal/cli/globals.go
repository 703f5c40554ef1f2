package cli

import (
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/config"
)

// globals are the flags every command has.
type globals struct {
	file   string
	json   bool
	values map[string]*string // flag -> value, for the settings that have their own flag
	sets   []string
	config *config.Config
}

// settingFlags are the settings worth a flag of their own; --set reaches all others.
var settingFlags = []struct{ flag, key, usage string }{
	{"data-dir", "data_dir", "directory of the embedded default"},
	{"database-url", "database.url", "PostgreSQL, for example postgres://user@host/db"},
	{"nats-url", "nats.url", "NATS servers, separated by commas"},
	{"prefix", "prefix", "first token of all subjects"},
	{"log-level", "log.level", "debug, info, warn or error"},
}

func (g *globals) register(root *cobra.Command) {
	f := root.PersistentFlags()
	f.SortFlags = false
	f.StringVar(&g.file, "config", "", "configuration `file` (default millbridge.yaml if it exists)")
	g.values = map[string]*string{}
	for _, s := range settingFlags {
		g.values[s.flag] = f.String(s.flag, "", s.usage)
	}
	f.StringArrayVar(&g.sets, "set", nil, "any other setting as `key=value`; see `millbridge config print`")
	f.BoolVar(&g.json, "json", false, "print JSON for programs, one object a line")
}

// loadConfig reads the configuration once, for a command that works on database and streams.
func (a *app) loadConfig(cmd *cobra.Command) (*config.Config, error) {
	return a.loadConfigFor(cmd, need{nats: true})
}

// loadConfigFor reads the configuration once. A command that needs no NATS need not be told where that is.
func (a *app) loadConfigFor(cmd *cobra.Command, n need) (*config.Config, error) {
	if a.flags.config != nil {
		return a.flags.config, nil
	}
	src := config.Source{File: a.flags.file, Getenv: a.env.Getenv, Environ: a.env.Environ, DatabaseAlone: !n.nats}
	for _, s := range settingFlags {
		if cmd.Flags().Changed(s.flag) {
			src.Sets = append(src.Sets, config.Set{Flag: "--" + s.flag, Key: s.key, Value: *a.flags.values[s.flag]})
		}
	}
	for _, set := range a.flags.sets {
		key, value, ok := strings.Cut(set, "=")
		if !ok {
			return nil, usagef("--set wants key=value")
		}
		src.Sets = append(src.Sets, config.Set{Flag: "--set", Key: key, Value: value})
	}
	c, err := config.Load(src)
	a.flags.config = c
	if err == nil {
		return c, nil
	}
	if onlyFlags(err) {
		err = usageError{err}
	}
	return nil, withHint(err, "correct what is named above; `millbridge config print` shows all keys with their origin")
}

// onlyFlags reports that everything that is wrong with the configuration was given on the command line.
func onlyFlags(err error) bool {
	for fault := range strings.SplitSeq(err.Error(), "\n") {
		if !strings.HasPrefix(fault, "flag ") {
			return false
		}
	}
	return true
}

// redact takes the configuration's secrets out of text that somebody else wrote.
func (a *app) redact(text string) string {
	if a.flags.config == nil {
		return text
	}
	return a.flags.config.Redactor().Redact(text)
}

// quietLogger says nothing unless a level was asked for: a story is told on standard output.
func (a *app) quietLogger(c *config.Config) *slog.Logger {
	if c.Origin("log.level") == "default" {
		return slog.New(slog.DiscardHandler)
	}
	return a.logger(c)
}

// logger writes to standard error, without secrets.
func (a *app) logger(c *config.Config) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Log.Level)); err != nil {
		level = slog.LevelInfo
	}
	w := redactingWriter{a.env.Stderr, c.Redactor()}
	opts := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
