package reshare

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers"
)

// maxPage is mod-rs's own limit.
const maxPage = 100

// Which names a request: by its id in ReShare, or by the idempotency key of the create-request job that made it.
type Which struct {
	ID  string `json:"id,omitempty"`
	Key string `json:"key,omitempty"`
}

// unknownID stands in a path for the id that a look-up is going to find.
const unknownID = "{id}"

// plan returns the look-up that is needed, if one is, and the path of the request.
func (w Which) plan() (calls []call, path string, err error) {
	switch {
	case (w.ID == "") == (w.Key == ""):
		return nil, "", errors.New("id: give it, or the key of the job that made the request, and not both")
	case w.Key != "":
		return []call{lookUp(Reference(w.Key))}, pathRequests + "/" + unknownID, nil
	case !isName(w.ID):
		return nil, "", errors.New("id: is no id of a request")
	}
	return nil, pathRequests + "/" + w.ID, nil
}

// resolve makes the look-up, if there is one, and returns the other calls for the request it has found.
func (c *client) resolve(ctx context.Context, s *session, w Which, calls []call) (id string, rest []call, err error) {
	if w.Key == "" {
		return w.ID, calls, nil
	}
	r, ok, err := c.find(ctx, s, calls[0])
	if err != nil {
		return "", nil, err
	}
	if !ok { // temporary: its job may still be on the way
		return "", nil, fmt.Errorf("there is no request %s, of the job with the given key, in ReShare yet", calls[0].query.Get("term"))
	}
	for _, call := range calls[1:] {
		rest = append(rest, call.at(string(r.ID)))
	}
	return string(r.ID), rest, nil
}

// fetch reads a request with its history.
func (c *client) fetch(ctx context.Context, s *session, get call) (record, error) {
	body, err := c.send(ctx, s, get)
	if err != nil {
		return record{}, err
	}
	r, err := decodeRecord(body)
	if err != nil {
		return record{}, fmt.Errorf("%s %s: %w", get.method, get.path, err)
	}
	return r, nil
}

// valid reads which actions a user may perform on a request now.
func (c *client) valid(ctx context.Context, s *session, get call) ([]string, error) {
	body, err := c.send(ctx, s, get)
	if err != nil {
		return nil, err
	}
	actions, err := decodeActions(body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", get.method, get.path, err)
	}
	return actions, nil
}

// GetArgs say which request is wanted, and what is to be waited for: ReShare calls nobody when a library has answered.
type GetArgs struct {
	Which
	// While are states that are no answer yet. A job that finds the request in one of them is snoozed, which costs no
	// attempt, and reports only when the request has left them.
	While []string `json:"while,omitempty"`
	// Every is the time between two looks, as "1h30m"; "10m" unless given, at most a day.
	Every string `json:"every,omitempty"`
}

// Got answers get-request.
type Got struct {
	Request
	ValidActions []string `json:"validActions"` // what a user may do with it now
}

func (a GetArgs) plan(string) ([]call, error) {
	calls, path, err := a.Which.plan()
	if _, wrong := a.every(); wrong != nil {
		err = errors.Join(err, wrong)
	}
	if err != nil {
		return nil, handlers.Permanent(err)
	}
	when := ""
	if len(a.While) > 0 {
		when = "the request is not " + strings.Join(a.While, " or ") + " any more"
	}
	return append(calls, call{method: http.MethodGet, path: path}, call{method: http.MethodGet, path: path + "/validActions", when: when}), nil
}

// every returns how long a request is left alone.
func (a GetArgs) every() (time.Duration, error) {
	if a.Every == "" {
		return 10 * time.Minute, nil
	}
	d, err := time.ParseDuration(a.Every)
	if err != nil || d <= 0 || d > 24*time.Hour {
		return 0, errors.New(`every: is no time such as "10m", or longer than a day`)
	}
	return d, nil
}

// get runs a get-request job.
func (c *client) get(ctx context.Context, s *session, a GetArgs, calls []call) error {
	_, calls, err := c.resolve(ctx, s, a.Which, calls)
	if err != nil {
		return err
	}
	r, err := c.fetch(ctx, s, calls[0])
	if err != nil {
		return err
	}
	if slices.Contains(a.While, string(r.State)) {
		pause, _ := a.every()
		return handlers.Snooze(fmt.Errorf("request %s is still %s", r.ID, r.State), pause)
	}
	actions, err := c.valid(ctx, s, calls[1])
	if err != nil {
		return err
	}
	return handlers.Report(ctx, Got{r.request(), actions})
}

// ListArgs are a search, in the words of mod-rs: Term is looked for in the fields of Match, and Filters narrow the result
// down, each as "state.code==REQ_SHIPPED" or "isRequester==true".
type ListArgs struct {
	Term    string   `json:"term,omitempty"`
	Match   []string `json:"match,omitempty"`
	Filters []string `json:"filters,omitempty"`
	Sort    []string `json:"sort,omitempty"`    // as "dateCreated;desc"
	Page    int      `json:"page,omitempty"`    // 1 is the first
	PerPage int      `json:"perPage,omitempty"` // 10 unless given, at most 100
}

// Listed answers list-requests.
type Listed struct {
	Total    int       `json:"total"` // of all pages
	Requests []Request `json:"requests"`
}

func (a ListArgs) plan(string) ([]call, error) {
	var errs []error
	if (a.Term == "") != (len(a.Match) == 0) {
		errs = append(errs, errors.New("term: goes together with match"))
	}
	if a.Page < 0 {
		errs = append(errs, errors.New("page: is negative"))
	}
	if a.PerPage < 0 || a.PerPage > maxPage {
		errs = append(errs, fmt.Errorf("perPage: is not between 1 and %d", maxPage))
	}
	if len(errs) > 0 {
		return nil, handlers.Permanent(errors.Join(errs...))
	}
	query := url.Values{"stats": {"true"}}
	for name, values := range map[string][]string{"match": a.Match, "filters": a.Filters, "sort": a.Sort} {
		if len(values) > 0 {
			query[name] = values
		}
	}
	if a.Term != "" {
		query.Set("term", a.Term)
	}
	for name, n := range map[string]int{"page": a.Page, "perPage": a.PerPage} {
		if n > 0 {
			query.Set(name, strconv.Itoa(n))
		}
	}
	return []call{{method: http.MethodGet, path: pathRequests, query: query}}, nil
}

// list runs a list-requests job.
func (c *client) list(ctx context.Context, s *session, _ ListArgs, calls []call) error {
	body, err := c.send(ctx, s, calls[0])
	if err != nil {
		return err
	}
	records, total, err := decodePage(body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", calls[0].method, calls[0].path, err)
	}
	answer := Listed{Total: total, Requests: make([]Request, len(records))}
	for i, r := range records {
		answer.Requests[i] = r.request()
	}
	return handlers.Report(ctx, answer)
}
