package ncip

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// An ID names a user, an item or a request. What Type and Agency must be, if anything, the responder says.
type ID struct {
	Value  string `json:"value"`            // UserIdentifierValue, ItemIdentifierValue or RequestIdentifierValue: often a barcode
	Type   string `json:"type,omitempty"`   // UserIdentifierType and so on
	Agency string `json:"agency,omitempty"` // AgencyId
}

// element writes an ID as one of its kind: User, Item or Request.
func (id ID) element(kind string) element {
	return group(kind+"Id", text("AgencyId", id.Agency), text(kind+"IdentifierType", id.Type), text(kind+"IdentifierValue", id.Value))
}

func (id *ID) optional(kind string) element {
	if id == nil {
		return element{name: kind + "Id"}
	}
	return id.element(kind)
}

func readID(n *node, kind string) *ID {
	if n = n.child(kind + "Id"); n == nil {
		return nil
	}
	return &ID{n.value(kind + "IdentifierValue"), n.value(kind + "IdentifierType"), n.value("AgencyId")}
}

// is compares the value alone: responders put different types and agencies to what they were asked for.
func (id *ID) is(other ID) bool { return id != nil && id.Value != "" && id.Value == other.Value }

// isOf is is, but agencies must not contradict each other: two of them may have a request with the same number.
func (id *ID) isOf(other ID) bool {
	return id.is(other) && (id.Agency == "" || other.Agency == "" || strings.EqualFold(id.Agency, other.Agency))
}

// A BibliographicID names a title: a record of a catalogue, or an item by a public number such as an ISBN.
type BibliographicID struct {
	Record string `json:"record,omitempty"` // BibliographicRecordIdentifier
	Item   string `json:"item,omitempty"`   // BibliographicItemIdentifier
	Code   string `json:"code,omitempty"`   // what kind of number it is, as OCLC, LCCN or ISBN
	Agency string `json:"agency,omitempty"` // whose record it is, in place of a code
}

func (b BibliographicID) check() error {
	switch {
	case b.Record == "" == (b.Item == ""):
		return errors.New("wants either a record or an item")
	case b.Record != "" && b.Code == "" == (b.Agency == ""):
		return errors.New("a record wants either a code or an agency")
	case b.Item != "" && b.Agency != "":
		return errors.New("an item has no agency")
	}
	return nil
}

func (b BibliographicID) element() element {
	return group("BibliographicId",
		group("BibliographicItemId", text("BibliographicItemIdentifier", b.Item), text("BibliographicItemIdentifierCode", ifSet(b.Item, b.Code))),
		group("BibliographicRecordId", text("BibliographicRecordIdentifier", b.Record),
			text("AgencyId", b.Agency), text("BibliographicRecordIdentifierCode", ifSet(b.Record, b.Code))))
}

func ifSet(what, value string) string {
	if what == "" {
		return ""
	}
	return value
}

// A Description is what an item or a title is called: NCIP's BibliographicDescription, the call number added.
type Description struct {
	Title             string `json:"title,omitempty"`
	Author            string `json:"author,omitempty"`
	TitleOfComponent  string `json:"title_of_component,omitempty"`  // of an article or a chapter
	AuthorOfComponent string `json:"author_of_component,omitempty"` // likewise
	Identifier        string `json:"identifier,omitempty"`          // BibliographicItemIdentifier, as an ISBN
	IdentifierCode    string `json:"identifier_code,omitempty"`     // its kind, as "ISBN"
	Edition           string `json:"edition,omitempty"`
	Pagination        string `json:"pagination,omitempty"`
	PlaceOfPub        string `json:"place_of_publication,omitempty"`
	PublicationDate   string `json:"publication_date,omitempty"`
	Publisher         string `json:"publisher,omitempty"`
	Language          string `json:"language,omitempty"`
	MediumType        string `json:"medium_type,omitempty"`
	CallNumber        string `json:"call_number,omitempty"`
}

// optionalFields writes what is known of an item before anybody has it.
func (d *Description) optionalFields() element {
	if d == nil {
		return element{name: "ItemOptionalFields"}
	}
	return group("ItemOptionalFields",
		group("BibliographicDescription",
			text("Author", d.Author), text("AuthorOfComponent", d.AuthorOfComponent),
			group("BibliographicItemId", text("BibliographicItemIdentifier", d.Identifier), text("BibliographicItemIdentifierCode", ifSet(d.Identifier, d.IdentifierCode))),
			text("Edition", d.Edition), text("Pagination", d.Pagination), text("PlaceOfPublication", d.PlaceOfPub),
			text("PublicationDate", d.PublicationDate), text("Publisher", d.Publisher), text("Title", d.Title),
			text("TitleOfComponent", d.TitleOfComponent), text("Language", d.Language), text("MediumType", d.MediumType)),
		group("ItemDescription", text("CallNumber", d.CallNumber)))
}

// ItemFields is what a responder says of an item, as far as it was asked for.
type ItemFields struct {
	Description
	CopyNumber   string     `json:"copy_number,omitempty"`
	Status       string     `json:"circulation_status,omitempty"`
	HoldQueue    string     `json:"hold_queue_length,omitempty"`
	Restrictions []string   `json:"use_restrictions,omitempty"`
	Locations    []Location `json:"locations,omitempty"`
	DateDue      Date       `json:"date_due,omitempty"`
}

// A Location is where an item is, from the widest name to the narrowest.
type Location struct {
	Type  string         `json:"type,omitempty"`
	Names []LocationName `json:"names,omitempty"`
}

// A LocationName is one part of a [Location]. What a level means, the responder says.
type LocationName struct {
	Level string `json:"level,omitempty"`
	Value string `json:"value"`
}

func readItemFields(n *node) *ItemFields {
	fields := n.child("ItemOptionalFields")
	if fields == nil {
		return nil
	}
	bib, item := fields.child("BibliographicDescription"), fields.child("ItemDescription")
	f := &ItemFields{
		Description: Description{
			Title: bib.value("Title"), Author: bib.value("Author"), TitleOfComponent: bib.value("TitleOfComponent"), AuthorOfComponent: bib.value("AuthorOfComponent"),
			Identifier:     bib.value("BibliographicItemId", "BibliographicItemIdentifier"),
			IdentifierCode: bib.value("BibliographicItemId", "BibliographicItemIdentifierCode"),
			Edition:        bib.value("Edition"), Pagination: bib.value("Pagination"), PlaceOfPub: bib.value("PlaceOfPublication"),
			PublicationDate: bib.value("PublicationDate"), Publisher: bib.value("Publisher"), Language: bib.value("Language"), MediumType: bib.value("MediumType"),
			CallNumber: item.value("CallNumber"),
		},
		CopyNumber: item.value("CopyNumber"), Status: fields.value("CirculationStatus"), HoldQueue: fields.value("HoldQueueLength"),
		Restrictions: fields.values("ItemUseRestrictionType"), DateDue: Date(fields.value("DateDue")),
	}
	for _, l := range fields.all("Location") {
		loc := Location{Type: l.value("LocationType")}
		for _, name := range l.child("LocationName").all("LocationNameInstance") {
			loc.Names = append(loc.Names, LocationName{name.value("LocationNameLevel"), name.value("LocationNameValue")})
		}
		f.Locations = append(f.Locations, loc)
	}
	return f
}

// A Date is a time as a responder wrote it. It may lack a zone, and then only the responder knows in which it is meant,
// and the time of day.
type Date string

// Time reads a date. One without a zone is read in loc; nil is UTC.
func (d Date) Time(loc *time.Location) (time.Time, error) {
	t, _, err := d.read(loc)
	return t, err
}

func (d Date) read(loc *time.Location) (t time.Time, zoned bool, err error) {
	if loc == nil {
		loc = time.UTC
	}
	if t, err := time.Parse(time.RFC3339, string(d)); err == nil { // takes fractions of a second, too
		return t, true, nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, string(d), loc); err == nil {
			return t, false, nil
		}
	}
	return time.Time{}, false, fmt.Errorf("%.40q is no date such as 2026-11-30T12:00:00Z", string(d))
}

// after reports whether d is later than other. Dates of which only one has a zone cannot be compared.
func (d Date) after(other Date) bool {
	a, zonedA, errA := d.read(nil)
	b, zonedB, errB := other.read(nil)
	return errA == nil && errB == nil && zonedA == zonedB && a.After(b)
}

// missing says which argument there must be.
func missing(path string) error { return fmt.Errorf("field %q: is missing", path) }

func wrong(path string, err error) error { return fmt.Errorf("field %q: %w", path, err) }
