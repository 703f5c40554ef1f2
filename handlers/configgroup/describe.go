package configgroup

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// A Variable is one setting of a group, for documents and for checks that they are up to date.
type Variable struct {
	Name     string
	Key      string   // of the setting in a file, as "tls.ca_file"
	File     string   // secrets: the variable that names a file in its place
	Aliases  []string // other names of the same
	Type     string   // url, duration, secret, secrets, list, block (JSON), or the type in Go
	Required bool
	Default  string
	Doc      string
}

// Describe lists the settings that [Load] reads with the same arguments, in the order of the fields.
func Describe[T any](target string, opts ...Option) ([]Variable, error) {
	g, err := newGroup(target, opts)
	if err != nil {
		return nil, schema.WithKind(schema.Permanent, err)
	}
	fields, err := fieldsOf(reflect.TypeFor[T]())
	if err != nil {
		return nil, schema.WithKind(schema.Permanent, fmt.Errorf("settings of target %q: %w", target, err))
	}
	list := make([]Variable, len(fields))
	for i, f := range fields {
		v := Variable{Name: g.prefix + f.name, Key: f.key, Type: f.typeName(), Required: f.required, Default: f.def, Doc: f.doc}
		if f.secret() {
			v.File = v.Name + fileSuffix
		}
		for _, prefix := range g.aliases {
			v.Aliases = append(v.Aliases, f.names(prefix)...)
		}
		list[i] = v
	}
	return list, nil
}

func (f field) typeName() string {
	switch f.kind {
	case secretType:
		return "secret"
	case urlType:
		return "url"
	case durationType:
		return "duration"
	case secretsType:
		return "secrets"
	}
	switch {
	case f.list():
		return "list"
	case f.block():
		return "block"
	}
	return f.kind.String()
}

// Markdown returns the settings as a table.
func Markdown(list []Variable) string {
	var b strings.Builder
	b.WriteString("| Variable | Type | Default | Meaning |\n|---|---|---|---|\n")
	cell := func(s string) string { return strings.ReplaceAll(schema.OneLine(s), "|", `\|`) }
	for _, v := range list {
		names := "`" + v.Name + "`"
		if v.File != "" {
			names += ", `" + v.File + "`"
		}
		for _, alias := range v.Aliases {
			names += ", `" + alias + "`"
		}
		def := ""
		switch {
		case v.Required:
			def = "required"
		case v.Default != "":
			def = "`" + cell(v.Default) + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", names, v.Type, def, cell(v.Doc))
	}
	return b.String()
}
