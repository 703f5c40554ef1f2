package configgroup_test

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/schema"
)

type limits struct {
	Timeout time.Duration `default:"10s" doc:"of one request"`
}

type crm struct {
	BaseURL  *url.URL           `required:"true" doc:"where the API is"`
	Token    configgroup.Secret `required:"true" doc:"bearer token"`
	Region   string             `env:"DATA_REGION" default:"eu"`
	Dry      bool
	Pages    int     `default:"3"`
	Small    uint8   `default:"7"`
	Share    float64 `default:"0.5"`
	Tags     []string
	Network  netip.Prefix
	HTTPPort int `env:""`
	limits       // its fields count as the struct's own
	Client   any `env:"-"`
	hidden   string
}

func (c *crm) Validate() error {
	if c.Pages > 100 || c.hidden != "" || c.Client != nil {
		return errors.New("pages is too large")
	}
	return nil
}

func load(env ...string) (crm, error) {
	return configgroup.Load[crm]("crm-api", configgroup.Environ(env), configgroup.Alias("SHOP_CRM"), configgroup.Others("crm-api-eu"))
}

const (
	needURL   = "MILLBRIDGE_CRM_API_BASE_URL=https://crm.example/v1"
	needToken = "MILLBRIDGE_CRM_API_TOKEN=s3cret"
)

func TestLoad_reads_every_type(t *testing.T) {
	t.Parallel()
	got, err := load(needURL, needToken)
	if err != nil {
		t.Fatal(err)
	}
	if got.BaseURL.String() != "https://crm.example/v1" || got.Token.Reveal() != "s3cret" || got.Region != "eu" || got.Dry || got.Pages != 3 ||
		got.Small != 7 || got.Share != 0.5 || got.Tags != nil || got.Network.IsValid() || got.HTTPPort != 0 || got.Timeout != 10*time.Second {
		t.Errorf("defaults: %+v", got)
	}
	got, err = load(needURL, needToken, "MILLBRIDGE_CRM_API_DATA_REGION=us", "MILLBRIDGE_CRM_API_DRY=true", "MILLBRIDGE_CRM_API_PAGES=-4",
		"MILLBRIDGE_CRM_API_SMALL=255", "MILLBRIDGE_CRM_API_SHARE=1e-3", "MILLBRIDGE_CRM_API_TAGS=a, b,,c ", "MILLBRIDGE_CRM_API_NETWORK=10.0.0.0/8",
		"MILLBRIDGE_CRM_API_HTTP_PORT=81", "MILLBRIDGE_CRM_API_TIMEOUT=1m30s", "PATH=/bin", "MILLBRIDGE_CRM_APIX=1", "MILLBRIDGE_CRM_API_EU_BASE_URL=x")
	if err != nil {
		t.Fatal(err)
	}
	if got.Region != "us" || !got.Dry || got.Pages != -4 || got.Small != 255 || got.Share != 1e-3 || !reflect.DeepEqual(got.Tags, []string{"a", "b", "c"}) ||
		got.Network != netip.MustParsePrefix("10.0.0.0/8") || got.HTTPPort != 81 || got.Timeout != 90*time.Second {
		t.Errorf("all set: %+v", got)
	}
}

func TestLoad_joins_all_faults_with_their_variables(t *testing.T) {
	t.Parallel()
	const marker = "SECRET123"
	_, err := load("MILLBRIDGE_CRM_API_BASE_URL=https://u:"+marker+"@crm.example", "MILLBRIDGE_CRM_API_DRY=perhaps", "MILLBRIDGE_CRM_API_PAGES=3.5",
		"MILLBRIDGE_CRM_API_SMALL=256", "MILLBRIDGE_CRM_API_SHARE=NaN", "MILLBRIDGE_CRM_API_TIMEOUT=10", "MILLBRIDGE_CRM_API_NETWORK=ten",
		"MILLBRIDGE_CRM_API_TOKEN=", "MILLBRIDGE_CRM_API_TIMEOOT=5s", "MILLBRIDGE_CRM_API_COLOUR_OF_THE_SKY=blue", "MILLBRIDGE_CRM_API_HTTP_PORT=\x00\n")
	for _, want := range []string{
		"MILLBRIDGE_CRM_API_BASE_URL: has a user or password",
		"MILLBRIDGE_CRM_API_TOKEN: is missing, and so is MILLBRIDGE_CRM_API_TOKEN_FILE",
		`MILLBRIDGE_CRM_API_DRY: "perhaps" is neither true nor false`,
		`MILLBRIDGE_CRM_API_PAGES: "3.5" is not a whole number`,
		`MILLBRIDGE_CRM_API_SMALL: "256" is not a whole number from 0 on`,
		`MILLBRIDGE_CRM_API_SHARE: "NaN" is not a number`,
		`MILLBRIDGE_CRM_API_TIMEOUT: "10" is not a time span`,
		"MILLBRIDGE_CRM_API_NETWORK: netip.ParsePrefix",
		"MILLBRIDGE_CRM_API_HTTP_PORT: ",
		"MILLBRIDGE_CRM_API_TIMEOOT: is not known; did you mean MILLBRIDGE_CRM_API_TIMEOUT?",
		"MILLBRIDGE_CRM_API_COLOUR_OF_THE_SKY: is not known; there are MILLBRIDGE_CRM_API_BASE_URL, ",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	if schema.KindOf(err) != schema.Permanent || strings.Contains(fmt.Sprint(err), marker) {
		t.Errorf("error %v (%v)", err, schema.KindOf(err))
	}
	if _, err := load(needURL, needToken, "MILLBRIDGE_CRM_API_PAGES=101"); err == nil || !strings.Contains(err.Error(), `settings of target "crm-api": pages is too large`) {
		t.Errorf("Validate: error %v", err)
	}
	for _, bad := range []string{"crm.example", "//crm.example", "https:", "https://", "https://crm example/" + marker, "/" + marker} {
		if _, err := load(needToken, "MILLBRIDGE_CRM_API_BASE_URL="+bad); err == nil || !strings.Contains(err.Error(), "absolute address") || strings.Contains(err.Error(), marker) {
			t.Errorf("url %q: error %v", bad, err)
		}
	}
}

func TestLoad_of_aliases(t *testing.T) {
	t.Parallel()
	got, err := load("SHOP_CRM_BASE_URL=https://a.example", "SHOP_CRM_TOKEN=abcd", "SHOP_CRM_THEME=dark")
	if err != nil || got.BaseURL.Host != "a.example" || got.Token.Reveal() != "abcd" {
		t.Errorf("got %+v, error %v", got, err)
	}
	if _, err := load(needURL, needToken, "SHOP_CRM_BASE_URL=https://crm.example/v1"); err != nil {
		t.Errorf("the same value twice: %v", err)
	}
	_, err = load(needURL, needToken, "SHOP_CRM_BASE_URL=https://a.example")
	if err == nil || !strings.Contains(err.Error(), "MILLBRIDGE_CRM_API_BASE_URL: is set together with SHOP_CRM_BASE_URL; keep one of them") {
		t.Errorf("two values: %v", err)
	}
}

func TestLoad_of_secrets_in_files(t *testing.T) {
	t.Parallel()
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, text := range []string{"from file", "from file\n", "from file\r\n", "\nfrom file\n\n"} {
		got, err := load(needURL, "MILLBRIDGE_CRM_API_TOKEN_FILE="+file(text))
		if err != nil || got.Token.Reveal() != "from file" {
			t.Errorf("%q: got %q, error %v", text, got.Token.Reveal(), err)
		}
	}
	for text, want := range map[string]string{"": "has 0 lines", "a\nb": "has 2 lines", "  \n": "want 1 with the secret", strings.Repeat("x", 1<<20+1): "is larger than"} {
		if _, err := load(needURL, "MILLBRIDGE_CRM_API_TOKEN_FILE="+file(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.10q: error %v", text, err)
		}
	}
	if _, err := load(needURL, needToken, "MILLBRIDGE_CRM_API_TOKEN_FILE="+file("other")); err == nil || !strings.Contains(err.Error(), "is set together with MILLBRIDGE_CRM_API_TOKEN_FILE") {
		t.Errorf("both: %v", err)
	}
	if _, err := load(needURL, "MILLBRIDGE_CRM_API_TOKEN_FILE=/no/such/file"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestLoad_reads_the_environment(t *testing.T) {
	t.Setenv("MILLBRIDGE_CRM_TIMEOUT", "7s")
	got, err := configgroup.Load[limits]("crm")
	if err != nil || got.Timeout != 7*time.Second {
		t.Errorf("got %+v, error %v", got, err)
	}
}

func TestLoad_refuses_bad_groups(t *testing.T) {
	t.Parallel()
	type pointer struct{ *limits }
	for want, load := range map[string]func() error{
		"target \"Bad.Name\"":                 try[limits]("Bad.Name"),
		"MILLBRIDGE_NATS_ are Millbridge's":   try[limits]("nats"),
		"MILLBRIDGE_EVENTS_ are Millbridge's": try[limits]("events-old"),
		"string is no struct":                 try[string]("crm"),
		"field A: chan int cannot be read":    try[struct{ A chan int }]("crm"),
		"field A: []func() cannot be read":    try[struct{ A []func() }]("crm"),
		`field A: "a b" is no name`: try[struct {
			A string `env:"a b"`
		}]("crm"),
		`field A: required is "yes"`: try[struct {
			A string `required:"yes"`
		}]("crm"),
		"field A: is required and has a default": try[struct {
			A string `required:"true" default:"x"`
		}]("crm"),
		"field A: a secret has no default": try[struct {
			A configgroup.Secret `default:"x"`
		}]("crm"),
		`field A: default: "x" is not a whole number`: try[struct {
			A int `default:"x"`
		}]("crm"),
		"field B: X is read by field A already": try[struct {
			A string `env:"X"`
			B string `env:"X"`
		}]("crm"),
		"field KeyFile: KEY_FILE is read by field Key already": try[struct {
			Key     configgroup.Secret
			KeyFile string
		}]("crm"),
		"field limits: embed the struct": try[pointer]("crm"),
	} {
		if err := load(); err == nil || !strings.Contains(err.Error(), want) || schema.KindOf(err) != schema.Permanent {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	got, err := configgroup.Load[limits]("nats", configgroup.Prefix("MYAPP_NATS"), configgroup.Environ([]string{"MYAPP_NATS_TIMEOUT=2s"}))
	if err != nil || got.Timeout != 2*time.Second {
		t.Errorf("with a prefix: %+v, error %v", got, err)
	}
	_, err = configgroup.Load[struct{}]("crm", configgroup.Environ([]string{"MILLBRIDGE_CRM_X=1"}))
	if err == nil || !strings.Contains(err.Error(), "the group has no settings") {
		t.Errorf("an empty group: %v", err)
	}
}

func try[T any](target string) func() error {
	return func() error {
		_, err := configgroup.Load[T](target, configgroup.Environ([]string{}))
		return err
	}
}

func TestDescribe_lists_what_Load_reads(t *testing.T) {
	t.Parallel()
	list, err := configgroup.Describe[crm]("crm-api", configgroup.Alias("SHOP_CRM_"))
	if err != nil || len(list) != 11 {
		t.Fatalf("%d settings, error %v: %+v", len(list), err, list)
	}
	want := configgroup.Variable{
		Name: "MILLBRIDGE_CRM_API_TOKEN", Key: "token", File: "MILLBRIDGE_CRM_API_TOKEN_FILE", Aliases: []string{"SHOP_CRM_TOKEN", "SHOP_CRM_TOKEN_FILE"},
		Type: "secret", Required: true, Doc: "bearer token",
	}
	if !reflect.DeepEqual(list[1], want) {
		t.Errorf("got %+v, want %+v", list[1], want)
	}
	// Each name that is listed is one that is read.
	for _, v := range list {
		for _, name := range append([]string{v.Name, v.File}, v.Aliases...) {
			if name == "" {
				continue
			}
			_, with := load("X=1")
			_, without := load(name + "=\x00")
			if fmt.Sprint(with) == fmt.Sprint(without) && v.Required {
				t.Errorf("%s is not read", name)
			}
			if strings.Contains(fmt.Sprint(without), name+": is not known") {
				t.Errorf("%s is not known", name)
			}
		}
	}
	if _, err := configgroup.Describe[int]("crm"); err == nil {
		t.Error("an int has no settings")
	}
	if _, err := configgroup.Describe[limits]("log"); err == nil {
		t.Error("a reserved name is taken")
	}
}
