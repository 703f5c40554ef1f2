package config

import (
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/natslink"
	"github.com/millbridge/millbridge/handlers/peer"
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
	Forward     bool // whether run moves outbox rows to the streams
	Stock       Stock
	EventsTTL   Duration // how long an event stays in its stream
	StopTimeout Duration // how long a stop waits for running handlers
	Metrics     Metrics
	Log         Log
	Receive     Receive
	Targets     map[string]*Target // by name

	origin map[string]string // key -> where its value came from
	place  map[string]string // key, section or place inside a block -> where it is written, also if it is wrong
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

// SignIn is how to sign in, as the connection takes it. The addresses are not in it.
func (n *NATS) SignIn() natslink.Settings {
	return natslink.Settings{
		CredsFile: n.CredsFile, NKeyFile: n.NKeyFile, Token: configgroup.NewSecret(n.Token.Reveal()),
		User: n.User, Password: configgroup.NewSecret(n.Password.Reveal()),
		TLSCAFile: n.CAFile, TLSCertFile: n.CertFile, TLSKeyFile: n.KeyFile,
	}
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

// Default returns the configuration that nothing was said to.
func Default() Config {
	return Config{
		DataDir:     "millbridge-data",
		Prefix:      schema.DefaultPrefix,
		Forward:     true,
		EventsTTL:   Duration(7 * 24 * time.Hour),
		StopTimeout: Duration(30 * time.Second),
		Log:         Log{Level: "info", Format: "text"},
		Receive:     Receive{MaxBytes: peer.DefaultMaxBytes},
		origin:      map[string]string{},
		place:       map[string]string{},
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

// Origin says where the value of a key came from: "default", a line of the file, a variable or a flag. What is inside a
// block came from where the block did.
func (c *Config) Origin(key string) string {
	for key != "" {
		if o := c.origin[key]; o != "" {
			return o
		}
		key = key[:max(strings.LastIndexByte(key, '.'), 0)]
	}
	return "default"
}

// near says where a fault is: where its key is set, or else the closest section around it that is written somewhere.
func (c *Config) near(key string) string {
	for {
		if o := c.place[key]; o != "" {
			return o
		}
		if o := c.origin[key]; o != "" {
			return o
		}
		i := strings.LastIndexByte(key, '.')
		if i < 0 {
			return "default"
		}
		key = key[:i]
	}
}
