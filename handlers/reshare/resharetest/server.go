package resharetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Tenant is one library.
type Tenant struct {
	Name     string
	Username string
	Password string
	Supplier string   // tenant that its requests are sent to; empty means that nobody has the title
	Rota     []string // further ones, each asked when the one before cannot supply
}

// A Config says what there is.
type Config struct {
	Tenants   []Tenant
	Legacy    bool             // the gateway has only the older login, whose tokens never end
	TokenLife time.Duration    // 10 minutes unless given, as mod-authtoken has it
	Now       func() time.Time // clock of the tokens; nil is [time.Now]
}

// A Server is a gateway with what is behind it. It is safe for concurrent use.
type Server struct {
	config Config

	mu       sync.Mutex
	tokens   map[string]grant
	logins   int
	served   int
	requests []*request
}

// grant is what a token is worth.
type grant struct {
	tenant string
	ends   time.Time // zero means never
}

// New returns a server in which nothing was requested yet.
func New(cfg Config) *Server {
	cfg.TokenLife = cmp.Or(cfg.TokenLife, 10*time.Minute)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Server{config: cfg, tokens: map[string]grant{}}
}

// Logins returns how often somebody has tried to log in.
func (s *Server) Logins() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins
}

// ExpireTokens ends all tokens.
func (s *Server) ExpireTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token := range s.tokens {
		delete(s.tokens, token)
	}
}

// ServeHTTP answers as the gateway.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served++
	tenant, ok := s.tenant(r.Header.Get("X-Okapi-Tenant"))
	if !ok {
		plain(w, http.StatusBadRequest, "No such Tenant "+r.Header.Get("X-Okapi-Tenant"))
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "POST /authn/login-with-expiry":
		if s.config.Legacy {
			break
		}
		s.login(w, r, tenant, false)
		return
	case "POST /authn/login":
		s.login(w, r, tenant, true)
		return
	}
	id, action, ok := route(r)
	if !ok {
		plain(w, http.StatusNotFound, fmt.Sprintf("No suitable module found for path %s for tenant %s", r.URL.Path, tenant.Name))
		return
	}
	switch token := r.Header.Get("X-Okapi-Token"); {
	case token == "":
		plain(w, http.StatusBadRequest, "Token missing, access requires permission: rs.patronrequests.collection.get")
	case s.tokens[token] == grant{} || s.ended(s.tokens[token]):
		plain(w, http.StatusUnauthorized, "Invalid token")
	case s.tokens[token].tenant != tenant.Name:
		plain(w, http.StatusForbidden, "Invalid token")
	default:
		s.serve(w, r, tenant, id, action)
	}
}

func (s *Server) ended(g grant) bool { return !g.ends.IsZero() && !s.config.Now().Before(g.ends) }

func (s *Server) tenant(name string) (Tenant, bool) {
	for _, t := range s.config.Tenants {
		if t.Name == name {
			return t, true
		}
	}
	return Tenant{}, false
}

// login answers both ways of logging in.
func (s *Server) login(w http.ResponseWriter, r *http.Request, tenant Tenant, legacy bool) {
	s.logins++
	var credentials struct{ Username, Password string }
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&credentials); err != nil || credentials.Username == "" {
		plain(w, http.StatusBadRequest, "You must provide a username or userId")
		return
	}
	if !strings.EqualFold(credentials.Username, tenant.Username) || credentials.Password != tenant.Password {
		answer(w, http.StatusUnprocessableEntity, map[string]any{"errors": []map[string]any{{
			"message": "Wrong username or wrong password or account blocked", "type": "error",
			"code": "wrong.username.or.wrong.password.or.account.blocked",
		}}, "total_records": 1})
		return
	}
	token := fmt.Sprintf("access-%s-%d", tenant.Name, s.logins)
	if legacy {
		s.tokens[token] = grant{tenant: tenant.Name}
		w.Header().Set("X-Okapi-Token", token)
		answer(w, http.StatusCreated, map[string]any{"okapiToken": token})
		return
	}
	ends := s.config.Now().Add(s.config.TokenLife)
	s.tokens[token] = grant{tenant.Name, ends}
	week := 7 * 24 * time.Hour
	for _, c := range []http.Cookie{
		{Name: "folioAccessToken", Value: token, Path: "/", MaxAge: int(s.config.TokenLife.Seconds())},
		{Name: "folioRefreshToken", Value: "refresh-" + token, Path: "/authn", MaxAge: int(week.Seconds())},
	} {
		c.Secure, c.HttpOnly, c.SameSite = true, true, http.SameSiteStrictMode
		http.SetCookie(w, &c)
	}
	answer(w, http.StatusCreated, map[string]any{
		"accessTokenExpiration":  ends.UTC().Format(time.RFC3339),
		"refreshTokenExpiration": s.config.Now().Add(week).UTC().Format(time.RFC3339),
	})
}

// route takes a path of mod-rs apart.
func route(r *http.Request) (id, action string, ok bool) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) < 2 || len(parts) > 4 || parts[0] != "rs" || parts[1] != "patronrequests" {
		return "", "", false
	}
	parts = append(parts, "", "")
	id, action = parts[2], parts[3]
	switch r.Method + " " + action {
	case "GET ", "GET validActions", "POST performAction":
		return id, action, true
	case "POST ":
		return id, action, id == ""
	}
	return "", "", false
}

// serve answers as mod-rs.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, tenant Tenant, id, action string) {
	switch {
	case r.Method == http.MethodPost && id == "":
		s.create(w, r, tenant)
	case id == "":
		s.list(w, r, tenant)
	case action == "performAction":
		s.perform(w, r, tenant, id)
	case action == "validActions":
		if found := s.find(tenant.Name, id); found != nil {
			answer(w, http.StatusOK, map[string]any{"actions": found.valid()})
			return
		}
		answer(w, http.StatusOK, map[string]any{"actions": []string{}, "message": "Unable to locate request"})
	default:
		if found := s.find(tenant.Name, id); found != nil {
			answer(w, http.StatusOK, found.full())
			return
		}
		answer(w, http.StatusNotFound, map[string]any{"message": "Not Found", "error": 404})
	}
}

func (s *Server) find(tenant, id string) *request {
	for _, r := range s.requests {
		if r.tenant == tenant && r.id == id {
			return r
		}
	}
	return nil
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
