package reshare_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/reshare"
	"github.com/millbridge/millbridge/handlers/reshare/resharetest"
	"github.com/millbridge/millbridge/schema"
)

// What a preview shows is what is sent, but for secrets and for ids that are not known yet.
func TestPreview_shows_what_is_sent(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	for _, env := range []schema.Envelope{
		job(reshare.ActionCreate, book(), schema.WithKey("loan-1")),
		job(reshare.ActionGet, reshare.GetArgs{Which: byKey("loan-1")}),
		job(reshare.ActionList, reshare.ListArgs{Term: "a b&c", Match: []string{"title", "author"}, Filters: []string{"isRequester==true"}, PerPage: 5}),
		perform(reshare.Which{ID: "00000000-0000-4000-8000-000000000002"}, "respondYes", "", inWest()),
		perform(byKey("loan-1"), "requesterCancel", `{"reason":"patron_requested"}`),
	} {
		shown, err := h.(handlers.Previewer).Preview(t.Context(), env)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.seen(); len(got) != 0 {
			t.Fatalf("the preview has sent %v", got)
		}
		if _, err := run(t, newTarget(t, g.config()), env); err != nil {
			t.Fatal(err)
		}
		g.mu.Lock()
		sent := g.got
		g.got = nil
		g.mu.Unlock()
		if len(sent) != len(shown) {
			t.Fatalf("%s: %d shown, %d sent", env.Name, len(shown), len(sent))
		}
		for i, p := range shown {
			do := strings.Replace(p.Do, "{id}", "00000000-0000-4000-8000-000000000001", 1)
			if want := sent[i].method + " " + g.url + sent[i].url; do != want {
				t.Errorf("shown %s, sent %s", do, want)
			}
			if body := strings.Replace(p.Body, `"password":"***"`, `"password":"`+map[string]string{"": eastPassword, "west": westPassword}[env.Tenant]+`"`, 1); body != sent[i].body {
				t.Errorf("shown %s, sent %s", p.Body, sent[i].body)
			}
			for name, value := range p.Header {
				if got := sent[i].header.Get(name); got != value && (value != "***" || got == "") {
					t.Errorf("%s: shown %q, sent %q", name, value, got)
				}
			}
			for _, name := range slices.Collect(maps.Keys(sent[i].header)) {
				switch name {
				case "Content-Length", "Accept-Encoding": // the transport's
				default:
					if p.Header[name] == "" {
						t.Errorf("%s is sent and not shown", name)
					}
				}
			}
		}
	}
}

func TestPreview_refuses_what_a_run_refuses(t *testing.T) {
	t.Parallel()
	h := newTarget(t, config("https://okapi.example.org"))
	for _, env := range []schema.Envelope{
		job(reshare.ActionCreate, reshare.CreateArgs{}),
		job("borrow", nil),
		perform(reshare.Which{}, "shippedReturn", ""),
		job(reshare.ActionCreate, book(), schema.WithTenant("north")),
	} {
		_, shown := h.(handlers.Previewer).Preview(t.Context(), env)
		_, err := run(t, h, env)
		wantKind(t, err, schema.Permanent)
		if shown == nil || err == nil || shown.Error() != err.Error() {
			t.Errorf("the preview says %v, the run %v", shown, err)
		}
	}
}

func TestTarget_names_its_actions(t *testing.T) {
	t.Parallel()
	h := newTarget(t, config("https://okapi.example.org"))
	if got := h.(interface{ Names() []string }).Names(); !slices.Equal(got, []string{"create-request", "get-request", "list-requests", "perform-action"}) {
		t.Errorf("actions %v", got)
	}
	if err := (handlers.Target{Name: "ill", Handler: h}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestTenants_have_their_own_users(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	for tenant, want := range map[string]string{"": "east", "east": "east", "west": "west"} {
		env := job(reshare.ActionCreate, book(), schema.WithTenant(tenant))
		must[reshare.Created](t, h, env)
		g.mu.Lock()
		last := g.got[len(g.got)-1]
		g.mu.Unlock()
		if got := last.header.Get("X-Okapi-Tenant"); got != want || !strings.HasPrefix(last.header.Get("X-Okapi-Token"), "access-"+want) {
			t.Errorf("tenant %q went to %q", tenant, got)
		}
	}
	if n := g.Logins(); n != 2 {
		t.Errorf("%d logins for two tenants", n)
	}
	_, err := run(t, h, job(reshare.ActionCreate, book(), schema.WithTenant("north")))
	wantKind(t, err, schema.Permanent)
	wantText(t, err, `no credentials for tenant "north"`)

	cfg := g.config()
	cfg.Tenant, cfg.Username = "", ""
	cfg.Password = reshare.Config{}.Password
	only := newTarget(t, cfg)
	_, err = run(t, only, job(reshare.ActionCreate, book()))
	wantKind(t, err, schema.Permanent)
	wantText(t, err, "names no tenant")
	must[reshare.Listed](t, only, job(reshare.ActionList, reshare.ListArgs{}, inWest()))
}

// The gateway may stand behind a path.
func TestBaseURL_with_a_path(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	strip := http.StripPrefix("/okapi", http.HandlerFunc(g.ServeHTTP))
	base := serve(t, strip)
	must[reshare.Created](t, newTarget(t, config(base+"/okapi/")), job(reshare.ActionCreate, book()))
}
