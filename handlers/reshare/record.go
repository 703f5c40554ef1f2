package reshare

import (
	"encoding/json"
	"errors"

	"github.com/millbridge/millbridge/schema"
)

// A Request is a patron request as ReShare has it. The names are mod-rs's own; state is the code of the status.
type Request struct {
	ID                          string `json:"id"`
	HRID                        string `json:"hrid,omitempty"` // for people; given soon after the request was made
	PatronReference             string `json:"patronReference,omitempty"`
	IsRequester                 bool   `json:"isRequester"`
	State                       string `json:"state"`
	NeedsAttention              bool   `json:"needsAttention,omitempty"`
	Title                       string `json:"title,omitempty"`
	Author                      string `json:"author,omitempty"`
	PatronIdentifier            string `json:"patronIdentifier,omitempty"`
	RequestingInstitutionSymbol string `json:"requestingInstitutionSymbol,omitempty"`
	SupplyingInstitutionSymbol  string `json:"supplyingInstitutionSymbol,omitempty"`
	SelectedItemBarcode         string `json:"selectedItemBarcode,omitempty"`
	DueDateRS                   string `json:"dueDateRS,omitempty"`
	DateCreated                 string `json:"dateCreated,omitempty"`
	LastUpdated                 string `json:"lastUpdated,omitempty"`
}

// text is a text in an answer. A number or a boolean in its place is kept as it is written, anything else as nothing:
// how a date is written must not decide whether a request is found again.
type text string

// UnmarshalJSON never fails.
func (t *text) UnmarshalJSON(data []byte) error {
	var s string
	switch {
	case json.Unmarshal(data, &s) == nil:
		*t = text(s)
	case len(data) > 0 && data[0] != '{' && data[0] != '[':
		*t = text(data)
	}
	return nil
}

// flag is a boolean in an answer; anything else is false.
type flag bool

// UnmarshalJSON never fails.
func (f *flag) UnmarshalJSON(data []byte) error {
	*f = string(data) == "true"
	return nil
}

// named is a status or an enumeration, which views render as an object or as a bare name.
type named string

// UnmarshalJSON never fails.
func (n *named) UnmarshalJSON(data []byte) error {
	var form struct {
		Code text `json:"code"`
		Name text `json:"name"`
	}
	if err := json.Unmarshal(data, &form); err == nil {
		*n = named(form.Code + form.Name)
		return nil
	}
	var bare text
	_ = bare.UnmarshalJSON(data)
	*n = named(bare)
	return nil
}

// record is a patron request as the answer has it.
type record struct {
	ID                          text    `json:"id"`
	HRID                        text    `json:"hrid"`
	PatronReference             text    `json:"patronReference"`
	IsRequester                 flag    `json:"isRequester"`
	State                       named   `json:"state"`
	NetworkStatus               named   `json:"networkStatus"`
	NeedsAttention              flag    `json:"needsAttention"`
	Title                       text    `json:"title"`
	Author                      text    `json:"author"`
	PatronIdentifier            text    `json:"patronIdentifier"`
	RequestingInstitutionSymbol text    `json:"requestingInstitutionSymbol"`
	SupplyingInstitutionSymbol  text    `json:"supplyingInstitutionSymbol"`
	SelectedItemBarcode         text    `json:"selectedItemBarcode"`
	DueDateRS                   text    `json:"dueDateRS"`
	DateCreated                 text    `json:"dateCreated"`
	LastUpdated                 text    `json:"lastUpdated"`
	Audit                       []audit `json:"audit"`
}

// audit is an entry in a request's history.
type audit struct {
	Message    text  `json:"message"`
	FromStatus named `json:"fromStatus"`
	ToStatus   named `json:"toStatus"`
}

// request is the record as it is reported.
func (r record) request() Request {
	return Request{
		string(r.ID), string(r.HRID), string(r.PatronReference), bool(r.IsRequester), string(r.State), bool(r.NeedsAttention), string(r.Title),
		string(r.Author), string(r.PatronIdentifier), string(r.RequestingInstitutionSymbol), string(r.SupplyingInstitutionSymbol),
		string(r.SelectedItemBarcode), string(r.DueDateRS), string(r.DateCreated), string(r.LastUpdated),
	}
}

// isBusy reports whether a message to the other library is on its way, while which mod-rs takes no action.
func (r record) isBusy() bool { return r.NetworkStatus == "Waiting" || r.NetworkStatus == "Retry" }

// An answer that cannot be read is temporary: it may be a proxy's, and what was asked for is looked for before it is
// asked for again.
func unreadable(what string) error {
	return schema.WithKind(schema.Temporary, errors.New("the answer is no "+what))
}

// decodeRecord reads one request. It has an id that can stand in a path.
func decodeRecord(body []byte) (record, error) {
	var r record
	if json.Unmarshal(body, &r) != nil || !isName(string(r.ID)) {
		return record{}, unreadable("patron request")
	}
	return r, nil
}

// decodeRecords reads a list of requests.
func decodeRecords(body []byte) ([]record, error) {
	var list []record
	if json.Unmarshal(body, &list) != nil || list == nil {
		return nil, unreadable("list of patron requests")
	}
	for _, r := range list {
		if !isName(string(r.ID)) {
			return nil, unreadable("list of patron requests")
		}
	}
	return list, nil
}

// decodePage reads a list of requests with its total.
func decodePage(body []byte) (list []record, total int, err error) {
	var form struct {
		Results json.RawMessage `json:"results"`
		Total   int             `json:"total"`
	}
	if json.Unmarshal(body, &form) != nil || form.Results == nil {
		return nil, 0, unreadable("page of patron requests")
	}
	list, err = decodeRecords(form.Results)
	return list, form.Total, err
}

// decodeActions reads the codes of the actions that are valid.
func decodeActions(body []byte) ([]string, error) {
	var form struct {
		Actions []string `json:"actions"`
	}
	if json.Unmarshal(body, &form) != nil || form.Actions == nil {
		return nil, unreadable("list of actions")
	}
	return form.Actions, nil
}
