package reshare

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

const pathRequests = "/rs/patronrequests"

// Reference is the patronReference of the request that a create-request job with this idempotency key makes. It is what
// makes a repeat harmless: it is looked for before anything is made.
func Reference(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "mb-" + hex.EncodeToString(sum[:16])
}

// CreateArgs are the fields of a patron request, with the names that mod-rs gives them. PatronIdentifier is required,
// and a Title or a SystemInstanceIdentifier. There is no patronReference: it holds the [Reference] of the job.
type CreateArgs struct {
	// Who wants it.
	PatronIdentifier string `json:"patronIdentifier"` // as the library's own system knows the patron
	PatronSurname    string `json:"patronSurname,omitempty"`
	PatronGivenName  string `json:"patronGivenName,omitempty"`
	PatronType       string `json:"patronType,omitempty"`
	PatronEmail      string `json:"patronEmail,omitempty"`
	PatronNote       string `json:"patronNote,omitempty"`
	SendToPatron     bool   `json:"sendToPatron,omitempty"`

	// What is wanted.
	SystemInstanceIdentifier   string `json:"systemInstanceIdentifier,omitempty"` // in the shared index; without it staff review the request
	BibliographicRecordID      string `json:"bibliographicRecordId,omitempty"`
	SupplierUniqueRecordID     string `json:"supplierUniqueRecordId,omitempty"`
	Title                      string `json:"title,omitempty"`
	Subtitle                   string `json:"subtitle,omitempty"`
	Author                     string `json:"author,omitempty"`
	Edition                    string `json:"edition,omitempty"`
	Publisher                  string `json:"publisher,omitempty"`
	PlaceOfPublication         string `json:"placeOfPublication,omitempty"`
	PublicationDate            string `json:"publicationDate,omitempty"`
	PublicationType            string `json:"publicationType,omitempty"` // reference data: Book, Journal, ...
	SponsoringBody             string `json:"sponsoringBody,omitempty"`
	Volume                     string `json:"volume,omitempty"`
	Issue                      string `json:"issue,omitempty"`
	StartPage                  string `json:"startPage,omitempty"`
	NumberOfPages              string `json:"numberOfPages,omitempty"`
	PagesRequested             string `json:"pagesRequested,omitempty"`
	TitleOfComponent           string `json:"titleOfComponent,omitempty"`
	AuthorOfComponent          string `json:"authorOfComponent,omitempty"`
	PublicationDateOfComponent string `json:"publicationDateOfComponent,omitempty"`
	Sponsor                    string `json:"sponsor,omitempty"`
	InformationSource          string `json:"informationSource,omitempty"`
	ISBN                       string `json:"isbn,omitempty"`
	ISSN                       string `json:"issn,omitempty"`
	EISSN                      string `json:"eissn,omitempty"`
	DOI                        string `json:"doi,omitempty"`
	OCLCNumber                 string `json:"oclcNumber,omitempty"`

	// How, and by when.
	ServiceType               string      `json:"serviceType,omitempty"`    // reference data: Loan, Copy, CopyOrLoan; mod-rs takes Loan for none
	ServiceLevel              string      `json:"serviceLevel,omitempty"`   // reference data
	CopyrightType             string      `json:"copyrightType,omitempty"`  // reference data
	DeliveryMethod            string      `json:"deliveryMethod,omitempty"` // reference data: Courier, Mail, URL, ...
	DeliveryAddress           string      `json:"deliveryAddress,omitempty"`
	ReturnAddress             string      `json:"returnAddress,omitempty"`
	PickupLocation            string      `json:"pickupLocation,omitempty"`
	PickupLocationCode        string      `json:"pickupLocationCode,omitempty"`
	PickupLocationSlug        string      `json:"pickupLocationSlug,omitempty"`
	PickupURL                 string      `json:"pickupURL,omitempty"`
	NeededBy                  string      `json:"neededBy,omitempty"` // a day: 2027-01-31
	MaximumCostsMonetaryValue json.Number `json:"maximumCostsMonetaryValue,omitempty"`
	MaximumCostsCurrencyCode  string      `json:"maximumCostsCurrencyCode,omitempty"` // reference data

	RequestingInstitutionSymbol string   `json:"requestingInstitutionSymbol,omitempty"` // as ISIL:US-ABC; the tenant's default for none
	LocalNote                   string   `json:"localNote,omitempty"`
	Tags                        []string `json:"tags,omitempty"`
}

// Created answers create-request.
type Created struct {
	Request
	Existing bool `json:"existing"` // an earlier run of the job had made it
}

// plan returns the requests that are made.
func (a CreateArgs) plan(key string) ([]call, error) {
	var errs []error
	if a.PatronIdentifier == "" {
		errs = append(errs, errors.New("patronIdentifier: is missing"))
	}
	if a.Title == "" && a.SystemInstanceIdentifier == "" {
		errs = append(errs, errors.New("title: is missing, and so is systemInstanceIdentifier"))
	}
	if a.NeededBy != "" && !isDay(a.NeededBy) {
		errs = append(errs, errors.New("neededBy: is no day such as 2027-01-31"))
	}
	if len(errs) > 0 {
		return nil, handlers.Permanent(errors.Join(errs...))
	}
	body, err := json.Marshal(struct {
		CreateArgs
		PatronReference string `json:"patronReference"`
		IsRequester     bool   `json:"isRequester"`
	}{a, Reference(key), true})
	if err != nil {
		return nil, handlers.Permanent(fmt.Errorf("encode the patron request: %w", err))
	}
	return []call{
		lookUp(Reference(key)),
		{method: http.MethodPost, path: pathRequests, body: body, when: "the look-up finds nothing"},
	}, nil
}

// isDay reports whether s is a date without a time.
func isDay(s string) bool {
	_, err := time.Parse(time.DateOnly, s)
	return err == nil
}

// lookUp asks for the requests with a patronReference, the oldest first: a re-request has the reference of the first.
func lookUp(reference string) call {
	return call{method: http.MethodGet, path: pathRequests, query: url.Values{
		"match": {"patronReference"}, "term": {reference}, "filters": {"isRequester==true"}, "sort": {"dateCreated;asc"}, "perPage": {"10"},
	}}
}

// find makes the look-up and returns the request that has exactly this reference, if there is one.
func (c *client) find(ctx context.Context, s *session, look call) (found record, ok bool, err error) {
	body, err := c.send(ctx, s, look)
	if err != nil {
		return record{}, false, err
	}
	list, err := decodeRecords(body)
	if err != nil {
		return record{}, false, fmt.Errorf("%s %s: %w", look.method, look.path, err)
	}
	for _, r := range list {
		if string(r.PatronReference) == look.query.Get("term") && bool(r.IsRequester) {
			return r, true, nil
		}
	}
	return record{}, false, nil
}

// create runs a create-request job.
func (c *client) create(ctx context.Context, s *session, _ CreateArgs, calls []call) error {
	look, post := calls[0], calls[1]
	unlock, err := c.lock(ctx, "reference "+s.tenant+" "+look.query.Get("term"))
	if err != nil {
		return err
	}
	defer unlock()
	r, existing, err := c.find(ctx, s, look)
	if err != nil {
		return err
	}
	if !existing {
		body, err := c.send(ctx, s, post)
		if err != nil {
			return err
		}
		if r, err = decodeRecord(body); err != nil {
			return fmt.Errorf("%s %s: %w", post.method, post.path, err)
		}
		if string(r.PatronReference) != look.query.Get("term") {
			return handlers.Permanent(fmt.Errorf("ReShare has made request %s without its reference: it cannot be found again", schema.OneLine(string(r.ID))))
		}
	}
	return handlers.Report(ctx, Created{r.request(), existing})
}
