// Package configgroup reads the settings of a target from the environment: one struct per target, one variable per
// field, named MILLBRIDGE_<TARGET>_<FIELD>.
//
//	type Config struct {
//		BaseURL *url.URL           `required:"true" doc:"where the API is"`
//		Token   configgroup.Secret `required:"true" doc:"bearer token"`
//		Timeout time.Duration      `default:"10s" doc:"of one request"`
//		Region  string             `env:"DATA_REGION" doc:"where the data is kept"`
//	}
//
//	cfg, err := configgroup.Load[Config]("crm")
//
// reads MILLBRIDGE_CRM_BASE_URL, MILLBRIDGE_CRM_TOKEN or MILLBRIDGE_CRM_TOKEN_FILE, MILLBRIDGE_CRM_TIMEOUT and
// MILLBRIDGE_CRM_DATA_REGION. A '-' in the target's name becomes '_'.
//
// # Tags
//
//	key       the setting's name in a file, as "tls.ca_file"; in variables TLS_CA_FILE
//	env       the field's part of the name, in place of the field's own name; "-" leaves the field alone
//	default   the value if no variable is set
//	required  "true": a variable must be set
//	doc       what the setting is, for Describe
//
// # Types
//
// string, bool, all ints, uints and floats, [time.Duration] ("10s"), [*url.URL] (absolute, without user and password),
// [Secret], []string and []Secret (separated by commas), and every type that reads itself with UnmarshalText. Other structs,
// maps and slices are blocks: their variable holds JSON, with the fields' json tags; unknown fields are errors, and a
// [Secret] inside may be {"file": "/path"}. The fields of an embedded struct count as the struct's own. If the struct has
// a method Validate() error, it is called once all fields are read.
//
// # Rules
//
// An empty variable counts as not set. A secret may stand in a file that the variable with _FILE names: one line. [Alias]
// adds names of another style, such as SHOP_CRM_BASE_URL. A variable of the group that no field reads is an error: a
// misspelt setting must not silently be the default. The error of [Load] joins everything that is wrong, each with its
// variable; it quotes no secret and no URL.
package configgroup
