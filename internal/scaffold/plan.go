package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/internal/spelling"
	"github.com/millbridge/millbridge/schema"
)

//go:embed templates
var templateFiles embed.FS

// Options describe the target that is wanted.
type Options struct {
	Target  string
	Actions []string // at least one
	// Fake makes the target use a fake client, because the other system cannot be reached yet.
	Fake bool
	// Force replaces files that are there.
	Force bool
}

// What is done with a file.
const (
	Create  = "create"
	Extend  = "extend"
	Replace = "replace"
)

// A Change is what is done with one file.
type Change struct {
	Path string // from the module's root, with slashes
	What string
	text []byte
}

// ErrExists reports files that are there already.
var ErrExists = errors.New("is there already")

// data is what the templates see.
type data struct {
	Module  string   // import path of the user's module
	Target  string   // crm
	Package string   // crm
	Prefix  string   // MILLBRIDGE_CRM: how the names of its variables begin
	Alias   string   // SHOP_CRM: another beginning
	Others  []string // targets whose variables begin in the same way
	Actions []action
	First   action
	Fake    bool
	Ours    string
}

// Plan returns what has to be done for a new target, without doing it. It refuses to touch files of the target that are
// there already, by name, unless it is forced to.
func Plan(m Module, o Options) ([]Change, error) {
	if err := schema.CheckTarget(o.Target); err != nil {
		return nil, fmt.Errorf("new handler: %w", err)
	}
	if strings.HasPrefix(o.Target, "mb-") {
		return nil, fmt.Errorf("new handler: target %q: names that start with mb- are ours", o.Target)
	}
	actions, err := actionsOf(o.Target, o.Actions)
	if err != nil {
		return nil, fmt.Errorf("new handler: %w", err)
	}
	d := data{
		Module: m.Path, Target: o.Target, Package: packageName(o.Target), Actions: actions, First: actions[0], Fake: o.Fake, Ours: Ours,
		Prefix: "MILLBRIDGE_" + spelling.Capitals(o.Target), Alias: m.app() + "_" + spelling.Capitals(o.Target),
	}
	if _, err := configgroup.Describe[struct{}](o.Target); err != nil { // the name is a word of Millbridge's own settings
		d.Prefix, d.Alias = d.Alias, ""
	}
	if d.Others, err = m.others(d.Prefix); err != nil {
		return nil, fmt.Errorf("new handler: %w", err)
	}
	p := planner{module: m, data: d, force: o.Force}
	dir := targetsDir + "/" + d.Package + "/"
	p.file("target.go.tmpl", dir+d.Package+".go")
	p.file("client.go.tmpl", dir+"client.go")
	p.file("config.go.tmpl", dir+"config.go")
	p.file("flow.go.tmpl", dir+"flow.go")
	p.file("test.go.tmpl", dir+d.Package+"_test.go")
	if o.Fake {
		p.file("fake.go.tmpl", dir+"fake.go")
	}
	p.file("decision.md.tmpl", decisionsDir+"/target-"+o.Target+".md")
	p.registry()
	p.section("targets.md.tmpl", targetsDoc, targetsHead)
	if o.Fake {
		p.section("gap.md.tmpl", gapsDoc, gapsHead)
	}
	if err := errors.Join(p.faults...); err != nil {
		return nil, err
	}
	return p.changes, nil
}

// Apply does what was planned.
func Apply(m Module, changes []Change) error {
	for _, c := range changes {
		name := filepath.Join(m.Root, filepath.FromSlash(c.Path))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fmt.Errorf("write %s: %w", c.Path, err)
		}
		if err := write(name, c); err != nil {
			return fmt.Errorf("write %s: %w", c.Path, err)
		}
	}
	return nil
}

func write(name string, c Change) error {
	if c.What != Create {
		return os.WriteFile(name, c.text, 0o644)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) // somebody may have made it since
	if err != nil {
		return err
	}
	_, err = f.Write(c.text)
	return errors.Join(err, f.Close())
}

type planner struct {
	module  Module
	data    data
	force   bool
	changes []Change
	faults  []error
}

func (p *planner) fault(err error) { p.faults = append(p.faults, err) }

// file plans a file of the target's own.
func (p *planner) file(tmpl, name string) {
	text, err := p.render(tmpl)
	if err != nil {
		p.fault(err)
		return
	}
	what := Create
	switch _, err := os.Stat(filepath.Join(p.module.Root, filepath.FromSlash(name))); {
	case err == nil && !p.force:
		p.fault(fmt.Errorf("%s %w", name, ErrExists))
		return
	case err == nil:
		what = Replace
	case !errors.Is(err, fs.ErrNotExist):
		p.fault(err)
		return
	}
	p.changes = append(p.changes, Change{name, what, text})
}

func (p *planner) render(tmpl string) ([]byte, error) {
	t, err := template.New(tmpl).ParseFS(templateFiles, "templates/"+tmpl)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, p.data); err != nil {
		return nil, fmt.Errorf("fill template: %w", err)
	}
	if !strings.HasSuffix(tmpl, ".go.tmpl") {
		return b.Bytes(), nil
	}
	text, err := format.Source(b.Bytes())
	if err != nil {
		return nil, fmt.Errorf("format %s: %w", tmpl, err)
	}
	return text, nil
}

// registry plans the entry in the registry, which is made when there is none.
func (p *planner) registry() {
	old, err := p.module.read(registryFile)
	if err != nil {
		p.fault(err)
		return
	}
	if old == nil {
		text, err := p.render("registry.go.tmpl")
		if err != nil {
			p.fault(err)
			return
		}
		p.changes = append(p.changes, Change{registryFile, Create, text})
		return
	}
	text, err := register(old, p.data.Target, p.data.Package, p.data.Module+"/"+targetsDir+"/"+p.data.Package)
	switch {
	case errors.Is(err, ErrExists) && p.force: // the entry stays
	case err != nil:
		p.fault(fmt.Errorf("%s: %w", registryFile, err))
	default:
		p.changes = append(p.changes, Change{registryFile, Extend, text})
	}
}

// section plans the target's section of a page, which is made when there is none.
func (p *planner) section(tmpl, name, head string) {
	text, err := p.render(tmpl)
	if err != nil {
		p.fault(err)
		return
	}
	old, err := p.module.read(name)
	switch {
	case err != nil:
		p.fault(err)
	case old == nil:
		p.changes = append(p.changes, Change{name, Create, []byte(head + "\n" + string(text))})
	case hasSection(string(old), p.data.Target) && p.force: // what was written there by hand stays
	case hasSection(string(old), p.data.Target):
		p.fault(fmt.Errorf("%s: the section %q %w", name, p.data.Target, ErrExists))
	default:
		p.changes = append(p.changes, Change{name, Extend, []byte(strings.TrimRight(string(old), "\n") + "\n\n" + string(text))})
	}
}

const targetsHead = `# Targets

What this program asks other systems for. ` + "`millbridge new handler <target>`" + ` adds a section, ` + "`millbridge new --check`" + `
compares all of them with the code: names, actions and variables.
`

const gapsHead = `# Known gaps

What looks as if it worked and does not yet.
`
