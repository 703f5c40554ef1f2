package config

import (
	"maps"
	"slices"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/schema"
)

// FileName is the file that is read when none is named and it exists.
const FileName = "millbridge.yaml"

// Config is the whole configuration. Without database.url and nats.url the embedded default in DataDir is used.
type Config struct {
	DataDir     string // directory of the embedded default
	Prefix      string // first token of all subjects
	Database    Database
	NATS        NATS
	Forward     bool     // whether run moves outbox rows to the streams
	EventsTTL   Duration // how long an event stays in its stream
	StopTimeout Duration // how long a stop waits for running handlers
	Metrics     Metrics
	Log         Log
	Webhooks    map[string]*Webhook // by name

	origin map[string]string // key -> where its value came from
}

// Database says where PostgreSQL is.
type Database struct {
	URL            URL
	URLFile        string
	MaxConnections int // 0 leaves it to the driver
}

// NATS says where the servers are and how to sign in.
type NATS struct {
	URLs         []URL
	CredsFile    string // JWT and seed in one file
	NKeyFile     string // seed of an nkey
	Token        Secret
	TokenFile    string
	User         string
	Password     Secret
	PasswordFile string
	CAFile       string
	CertFile     string
	KeyFile      string
	Replicas     int // of the streams; 0 means 3, or 1 on the embedded default
}

// Metrics says where run tells a monitoring system how it is doing.
type Metrics struct {
	Listen string // host:port of GET /metrics; empty for none
}

// Log says what is logged and how.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// Webhook is a target, or a subscription to events, that is served by HTTP requests to one URL.
type Webhook struct {
	URL          URL
	URLFile      string
	Secrets      []Secret // sign with each; the first is the newest
	SecretsFile  string   // one secret a line
	Events       []string // subscribe to these instead of being a target of jobs
	Retry        Retry
	Timeout      Duration // of one attempt, from dialling to the last byte
	Concurrency  int
	Rate         float64 // requests a second at most, over all processes; 0 is no limit
	Ordered      bool    // keep the order of messages that share an ordering key
	Breaker      Breaker // when to stop calling an endpoint that is down
	AllowPrivate bool    // permit loopback and private addresses
}

// Breaker says when requests to an endpoint that is down stop, in all processes.
type Breaker struct {
	Failures int      // in a row; 0 means never
	Cooldown Duration // before one request is tried
}

// Default returns the configuration that nothing was said to.
func Default() Config {
	return Config{
		DataDir:     "millbridge-data",
		Prefix:      schema.DefaultPrefix,
		Forward:     true,
		EventsTTL:   Duration(7 * 24 * time.Hour),
		StopTimeout: Duration(30 * time.Second),
		Log:         Log{Level: "info", Format: "text"},
		origin:      map[string]string{},
	}
}

func defaultWebhook() *Webhook {
	return &Webhook{Retry: Retry(schema.DefaultRetry), Timeout: Duration(30 * time.Second), Concurrency: 10, Breaker: Breaker{Cooldown: Duration(handlers.DefaultCooldown)}}
}

// Endpoint is the webhook as its handler takes it.
func (w *Webhook) Endpoint() webhook.Config {
	c := webhook.Config{URL: w.URL.Reveal(), Timeout: time.Duration(w.Timeout)}
	c.AllowPrivate = w.AllowPrivate
	for _, s := range w.Secrets {
		c.Secrets = append(c.Secrets, s.Reveal())
	}
	return c
}

// Policy is the webhook's policy as the router takes it.
func (w *Webhook) Policy() handlers.Policy {
	return handlers.Policy{
		Retry: schema.RetryPolicy(w.Retry), Timeout: time.Duration(w.Timeout), Concurrency: w.Concurrency, Rate: w.Rate, Ordered: w.Ordered,
		Breaker: handlers.Breaker{Failures: w.Breaker.Failures, Cooldown: time.Duration(w.Breaker.Cooldown)},
	}
}

// Embedded reports whether the embedded default is meant.
func (c *Config) Embedded() bool { return c.Database.URL == "" && len(c.NATS.URLs) == 0 }

// Replicas returns the number of copies the streams are to have.
func (c *Config) Replicas() int {
	switch {
	case c.NATS.Replicas > 0:
		return c.NATS.Replicas
	case c.Embedded():
		return 1
	}
	return 3
}

// WebhookNames returns the names of all webhooks, sorted.
func (c *Config) WebhookNames() []string { return slices.Sorted(maps.Keys(c.Webhooks)) }

// Origin says where the value of a key came from: "default", a line of the file, a variable or a flag.
func (c *Config) Origin(key string) string {
	if o := c.origin[key]; o != "" {
		return o
	}
	return "default"
}
