package ncip

import (
	"encoding/xml"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millbridge/millbridge/handlers"
)

// Namespace is that of NCIP 2, and Version what the attribute of the same name says in each message.
const (
	Namespace = "http://www.niso.org/2008/ncip"
	Version   = "http://www.niso.org/schemas/ncip/v2_02/ncip_v2_02.xsd"
)

// element is a part of a message. One with neither text nor children is left out, unless it is a flag.
type element struct {
	name     string
	text     string
	flag     bool
	children []element
}

func text(name, value string) element { return element{name: name, text: value} }

func texts(name string, values []string) []element {
	list := make([]element, len(values))
	for i, v := range values {
		list[i] = text(name, v)
	}
	return list
}

func flag(name string, set bool) element { return element{name: name, flag: set} }

func group(name string, children ...element) element {
	return element{name: name, children: children}
}

// date is written in UTC, to the second: what every xs:dateTime of a library can read.
func date(name string, t *time.Time) element {
	if t == nil {
		return element{name: name}
	}
	return text(name, t.UTC().Format("2006-01-02T15:04:05Z"))
}

func join(lists ...[]element) []element {
	var all []element
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func (e element) empty() bool {
	for _, c := range e.children {
		if !c.empty() {
			return false
		}
	}
	return e.text == "" && !e.flag
}

// document writes a message. Elements have no prefix, because there are responders that look for NCIPMessage as it is;
// attributes have one, because the schema wants them in the namespace.
func document(service element, schemes map[string]string) ([]byte, error) {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>` + "\n")
	b.WriteString(`<NCIPMessage xmlns="` + Namespace + `" xmlns:ncip="` + Namespace + `" ncip:version="` + Version + `">`)
	if err := service.write(&b, schemes, true); err != nil {
		return nil, handlers.Permanent(err)
	}
	b.WriteString("</NCIPMessage>\n")
	return []byte(b.String()), nil
}

// write leaves out what is empty; keep is for the service itself.
func (e element) write(b *strings.Builder, schemes map[string]string, keep bool) error {
	if !keep && e.empty() {
		return nil
	}
	b.WriteString("<" + e.name)
	if scheme := schemes[e.name]; scheme != "" {
		b.WriteString(` ncip:Scheme="`)
		if err := xml.EscapeText(b, []byte(scheme)); err != nil {
			return err
		}
		b.WriteString(`"`)
	}
	b.WriteString(">")
	if !isText(e.text) {
		return fmt.Errorf("%s has a character that XML cannot carry", e.name)
	}
	if err := xml.EscapeText(b, []byte(e.text)); err != nil {
		return err
	}
	for _, c := range e.children {
		if err := c.write(b, schemes, false); err != nil {
			return err
		}
	}
	b.WriteString("</" + e.name + ">")
	return nil
}

// isText reports whether s can be the content of an XML 1.0 element. xml.EscapeText would replace what cannot.
func isText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff
	})
}
