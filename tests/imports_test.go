package tests

import (
	"slices"
	"testing"
)

// mayImport lists, for each public package, which other packages of the module it may import. What is below a listed
// path needs an entry of its own. Internal packages, commands, tests and examples are not listed: only these may not
// import them, unless it says so.
var mayImport = map[string][]string{
	"schema":               nil,
	"schema/postgres":      {"schema"},
	"schema/sqlite":        {"schema", "internal/filelock"},
	"schema/schematest":    {"schema"},
	"handlers":             {"schema"},
	"handlers/outbound":    {"schema"},
	"handlers/configgroup": {"schema", "internal/span", "internal/spelling"},
	"handlers/fields":      {"schema"},
	"handlers/webhook":     {"schema", "handlers", "handlers/outbound", "handlers/configgroup", "handlers/fields"},
	"handlers/httprelay":   {"schema", "handlers", "handlers/outbound", "handlers/configgroup", "handlers/fields"},
	"handlers/ncip":        {"schema", "handlers", "handlers/outbound", "handlers/configgroup"},
	"handlers/reshare":     {"schema", "handlers", "handlers/outbound", "handlers/configgroup"},
	"handlers/peer":        {"schema", "handlers", "handlers/outbound", "handlers/configgroup", "handlers/webhook"},
	"handlers/natslink":    {"schema", "handlers", "handlers/configgroup", "internal/natswords"},
	"handlers/natsrelay":   {"schema", "handlers", "handlers/natslink"},
	"handlers/natsrequest": {"schema", "handlers", "handlers/natslink"},
	"handlers/command":     {"schema", "handlers", "handlers/configgroup"},
	"handlers/saga":        {"schema", "handlers"},
	"handlers/handlertest": {"schema", "handlers"},
	"publishers":           {"schema"},
	"publishers/jetstream": {"schema", "internal/killpoint", "internal/natswords"},
	"subscribers":          {"schema", "internal/killpoint", "internal/natswords"},
	"router": {
		"schema", "handlers", "subscribers", "publishers", "publishers/jetstream", "internal/deadletters", "internal/killpoint",
		"internal/natswords", "router/kvinbox",
	},
	"router/kvinbox":   {"schema"},
	"router/embedded":  {"schema", "schema/sqlite", "router", "internal/embedded"},
	"router/inprocess": {"schema", "handlers"},

	"handlers/reshare/resharetest": nil,
	"handlers/ncip/nciptest":       nil,
}

// publicRoots are the directories whose packages users import; each needs an entry above.
var publicRoots = []string{"schema", "handlers", "publishers", "subscribers", "router"}

func TestImports_run_one_way(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, p := range packages(t) {
		if !underAny(p.own(), publicRoots) {
			continue
		}
		allowed, ok := mayImport[p.own()]
		if !ok {
			t.Errorf("%s is a public package without a rule in mayImport", p.own())
			continue
		}
		seen++
		for _, imp := range p.Imports {
			if isOwn(imp) && !slices.Contains(allowed, ownPath(imp)) {
				t.Errorf("%s imports %s; it may import %v", p.own(), ownPath(imp), allowed)
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d public packages were looked at", seen)
	}
}

// onlyIn lists who may import a third-party module directly.
var onlyIn = map[string][]string{
	"github.com/nats-io/nats-server": {"internal/embedded", "internal/testkit"},
	"modernc.org/sqlite":             {"internal/embedded", "internal/testkit"},
	"github.com/nats-io/nats.go": {
		"publishers/jetstream", "subscribers", "router", "internal", "tests", "examples", "handlers/natslink", "handlers/natsrelay", "handlers/natsrequest",
	},
	"github.com/ThreeDotsLabs/watermill": {
		"schema/postgres", "schema/sqlite", "publishers", "subscribers", "router", "internal", "tests", "examples",
	},
	"github.com/jackc/pgx": {"schema/postgres", "internal", "tests", "examples"},
	"github.com/spf13":     {"internal/cli"},
	"go.yaml.in/yaml":      {"internal/config", "tests"},
}

func TestImports_of_third_parties_have_their_place(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			for mod, places := range onlyIn {
				if !under(imp, mod) {
					continue
				}
				found[mod] = true
				if !underAny(p.own(), places) {
					t.Errorf("%s imports %s; only %v may", p.own(), imp, places)
				}
			}
		}
	}
	for mod := range onlyIn {
		if !found[mod] {
			t.Errorf("nobody imports %s any more: its rule is dead", mod)
		}
	}
}

// mustNotLink lists what must not be in a program that uses the package, however indirectly.
var mustNotLink = map[string][]string{
	"publishers": {
		"github.com/nats-io", "modernc.org/sqlite", module + "/router", module + "/subscribers", module + "/internal",
	},
	"schema/postgres":       {"github.com/nats-io", "modernc.org/sqlite"},
	"schema/sqlite":         {"github.com/nats-io", "github.com/jackc/pgx"},
	"router":                {"github.com/nats-io/nats-server", "modernc.org/sqlite", "github.com/jackc/pgx", module + "/internal/embedded"},
	"examples/publish-only": {"github.com/nats-io", "modernc.org/sqlite", module + "/router", module + "/subscribers"},
}

func TestDependencies_stay_out_of_programs_that_do_not_need_them(t *testing.T) {
	t.Parallel()
	byPath := map[string]pkg{}
	for _, p := range packages(t) {
		byPath[p.own()] = p
	}
	for path, unwanted := range mustNotLink {
		p, ok := byPath[path]
		if !ok {
			t.Errorf("there is no package %s", path)
			continue
		}
		for _, dep := range p.Deps {
			if underAny(dep, unwanted) {
				t.Errorf("a program with %s links %s", path, dep)
			}
		}
	}
}

// standardOnly lists the packages that bring no third party into a program.
var standardOnly = []string{
	"schema", "handlers", "handlers/saga", "handlers/outbound", "handlers/configgroup", "handlers/webhook", "handlers/handlertest", "router/inprocess",
	"handlers/fields", "handlers/httprelay", "handlers/ncip", "handlers/ncip/nciptest", "handlers/reshare", "handlers/reshare/resharetest", "handlers/peer", "handlers/command",
}

func TestDependencies_of_schema_and_handlers_are_the_standard_library(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if !slices.Contains(standardOnly, p.own()) {
			continue
		}
		for _, dep := range p.Deps {
			if !isOwn(dep) && !isStandard(dep) {
				t.Errorf("%s depends on %s", p.own(), dep)
			}
		}
	}
}
