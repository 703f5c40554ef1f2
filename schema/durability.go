package schema

import (
	"fmt"
	"slices"
	"strings"
)

// Durability says what a message survives on its way from the caller's transaction to its handler. A later one is
// stronger. A job type names the weakest that it accepts, see [JobType].
type Durability uint8

const (
	AnyDurability   Durability = iota // nothing is asked for
	InMemory                          // lost when the process ends
	OnSQLite                          // on the disk of one machine
	OnPostgresAsync                   // PostgreSQL that may lose its last commits in a crash, or a stream that may
	OnPostgres                        // PostgreSQL with durable commits, the stream on one server that syncs always
	OnPostgresR3                      // PostgreSQL with durable commits, the stream on three servers
)

var durabilityNames = [...]string{"any", "memory", "sqlite", "postgres_async", "postgres", "postgres_r3"}

func (d Durability) known() bool { return int(d) < len(durabilityNames) }

// String returns the name as it appears in configuration and messages.
func (d Durability) String() string {
	if d.known() {
		return durabilityNames[d]
	}
	return fmt.Sprintf("Durability(%d)", uint8(d))
}

// MarshalText returns the name.
func (d Durability) MarshalText() ([]byte, error) {
	if !d.known() {
		return nil, WithKind(Permanent, fmt.Errorf("%v is no durability", d))
	}
	return []byte(d.String()), nil
}

// UnmarshalText reads a name.
func (d *Durability) UnmarshalText(text []byte) error {
	i := slices.Index(durabilityNames[:], string(text))
	if i < 0 {
		return WithKind(Permanent, fmt.Errorf("%q is no durability: want one of %s", OneLine(string(text)), strings.Join(durabilityNames[:], ", ")))
	}
	*d = Durability(i)
	return nil
}
