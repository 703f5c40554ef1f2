package natslink_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/natslink"
)

func TestSettings_check_says_everything_by_key(t *testing.T) {
	t.Parallel()
	secret := configgroup.NewSecret("hush")
	good := []string{"nats://one:4222", "tls://two"}
	for name, c := range map[string]struct {
		settings natslink.Settings
		want     string // the keys complained about
	}{
		"plain":        {natslink.Settings{URLs: good}, ""},
		"user":         {natslink.Settings{URLs: good, User: "u", Password: secret}, ""},
		"nothing":      {natslink.Settings{}, "url"},
		"other scheme": {natslink.Settings{URLs: []string{"http://x"}}, "url"},
		"no address":   {natslink.Settings{URLs: []string{"hush\x00"}}, "url"},
		"secret in it": {natslink.Settings{URLs: []string{"nats://hush@x"}}, "url"},
		"two ways":     {natslink.Settings{URLs: good, Token: secret, CredsFile: "c"}, "token"},
		"no user":      {natslink.Settings{URLs: good, Password: secret}, "password"},
		"half a pair":  {natslink.Settings{URLs: good, TLSKeyFile: "k"}, "tls.cert_file"},
		"many faults":  {natslink.Settings{Password: secret, TLSCertFile: "c"}, "url password tls.cert_file"},
	} {
		err := c.settings.Check()
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
		if strings.Contains(fmt.Sprint(err), "hush") {
			t.Errorf("%s: the error has a secret: %v", name, err)
		}
		if _, newErr := natslink.New(c.settings); (newErr != nil) != (err != nil) && c.settings.CredsFile == "" {
			t.Errorf("%s: New says %v", name, newErr)
		}
	}
}

func TestSettings_options_name_the_file_that_is_bad(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	for key, s := range map[string]natslink.Settings{
		"creds_file":    {CredsFile: missing},
		"nkey_file":     {NKeyFile: bad},
		"tls.ca_file":   {TLSCAFile: missing},
		"tls.cert_file": {TLSCertFile: bad, TLSKeyFile: bad},
	} {
		s.URLs = []string{"nats://127.0.0.1:1"}
		_, err := natslink.New(s)
		if err == nil || !strings.HasPrefix(err.Error(), key+": ") || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", key, err)
		}
	}
}
