package natsrelay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/natslink"
	"github.com/millbridge/millbridge/handlers/natsrelay"
)

func TestConfig_validate_says_everything_by_key(t *testing.T) {
	t.Parallel()
	good := func(edit func(*natsrelay.Config)) natsrelay.Config {
		c := natsrelay.Config{Settings: natslink.Settings{URLs: []string{"nats://x:4222"}}, Origin: "here", Prefix: "mb"}
		edit(&c)
		return c
	}
	for name, c := range map[string]struct {
		config natsrelay.Config
		want   string // the keys complained about
	}{
		"prefix":            {good(func(*natsrelay.Config) {}), ""},
		"subject":           {good(func(c *natsrelay.Config) { c.Prefix, c.Subject = "", "orders.in" }), ""},
		"target":            {good(func(c *natsrelay.Config) { c.Target = "crm" }), ""},
		"nothing":           {natsrelay.Config{}, "url origin prefix"},
		"both":              {good(func(c *natsrelay.Config) { c.Subject = "x" }), "prefix"},
		"bad prefix":        {good(func(c *natsrelay.Config) { c.Prefix = "A.b" }), "prefix"},
		"bad origin":        {good(func(c *natsrelay.Config) { c.Origin = "not a name" }), "origin"},
		"bad target":        {good(func(c *natsrelay.Config) { c.Target = "a.b" }), "target"},
		"target, subject":   {good(func(c *natsrelay.Config) { c.Prefix, c.Subject, c.Target = "", "x", "crm" }), "target"},
		"wildcard":          {good(func(c *natsrelay.Config) { c.Prefix, c.Subject = "", "orders.>" }), "subject"},
		"blank":             {good(func(c *natsrelay.Config) { c.Prefix, c.Subject = "", "orders in" }), "subject"},
		"the server's own":  {good(func(c *natsrelay.Config) { c.Prefix, c.Subject = "", "$JS.API.STREAM.PURGE.X" }), "subject"},
		"short-lived":       {good(func(c *natsrelay.Config) { c.EventsTTL = time.Millisecond }), "events_ttl"},
		"sign-in, two ways": {good(func(c *natsrelay.Config) { c.User, c.Token = "u", configgroup.NewSecret("hush") }), "user"},
	} {
		err := c.config.Validate()
		var keys []string
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				key, _, _ := strings.Cut(line, ": ")
				keys = append(keys, key)
			}
		}
		if got := strings.Join(keys, " "); got != c.want {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		if _, newErr := natsrelay.New(c.config); (newErr != nil) != (err != nil) || strings.Contains(fmt.Sprint(newErr), "hush") {
			t.Errorf("%s: New says %v", name, newErr)
		}
	}
}

func TestConfig_is_read_by_key(t *testing.T) {
	t.Parallel()
	list, err := configgroup.SettingsOf(new(natsrelay.Config))
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, s := range list {
		keys = append(keys, s.Key)
	}
	const want = "url creds_file nkey_file token user password tls.ca_file tls.cert_file tls.key_file origin prefix target events_ttl subject"
	if got := strings.Join(keys, " "); got != want {
		t.Errorf("keys %s", got)
	}
}
