package configgroup_test

import (
	"fmt"
	"net/url"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
)

type billingConfig struct {
	BaseURL *url.URL           `required:"true" doc:"where the API is"`
	Token   configgroup.Secret `required:"true" doc:"bearer token"`
	Timeout time.Duration      `default:"10s" doc:"of one request"`
}

func ExampleLoad() {
	cfg, err := configgroup.Load[billingConfig]("billing", configgroup.Alias("SHOP_BILLING"), configgroup.Environ([]string{
		"SHOP_BILLING_BASE_URL=https://billing.example/v2", // the real environment, unless it is a test
		"MILLBRIDGE_BILLING_TOKEN=a-b-c",
	}))
	fmt.Println(cfg.BaseURL, cfg.Token, cfg.Timeout, err)
	// Output: https://billing.example/v2 *** 10s <nil>
}

// Everything that is wrong is said at once.
func ExampleLoad_faults() {
	_, err := configgroup.Load[billingConfig]("billing", configgroup.Environ([]string{
		"MILLBRIDGE_BILLING_TOKEN=a-b-c",
		"MILLBRIDGE_BILLING_TIMEOUT=ten seconds",
		"MILLBRIDGE_BILLING_BASEURL=https://billing.example/v2",
	}))
	fmt.Println(err)
	// Output:
	// MILLBRIDGE_BILLING_BASE_URL: is missing
	// MILLBRIDGE_BILLING_TIMEOUT: "ten seconds" is not a time span such as 500ms, 30s, 10m or 7d
	// MILLBRIDGE_BILLING_BASEURL: is not known; did you mean MILLBRIDGE_BILLING_BASE_URL?
}

func ExampleDescribe() {
	list, err := configgroup.Describe[billingConfig]("billing")
	if err != nil {
		panic(err)
	}
	fmt.Print(configgroup.Markdown(list))
	// Output:
	// | Variable | Type | Default | Meaning |
	// |---|---|---|---|
	// | `MILLBRIDGE_BILLING_BASE_URL` | url | required | where the API is |
	// | `MILLBRIDGE_BILLING_TOKEN`, `MILLBRIDGE_BILLING_TOKEN_FILE` | secret | required | bearer token |
	// | `MILLBRIDGE_BILLING_TIMEOUT` | duration | `10s` | of one request |
}

func ExampleSecret() {
	token := configgroup.NewSecret("a-b-c")
	fmt.Printf("%v %q %d\n", token, token, token)
	fmt.Printf("Authorization: Bearer %s\n", token.Reveal())
	// Output:
	// *** *** ***
	// Authorization: Bearer a-b-c
}
