package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// A Drift is one thing that does not fit another.
type Drift struct {
	Target string `json:"target"`
	File   string `json:"file"` // where it is to be put right, from the module's root
	What   string `json:"what"`
}

// Check compares the registry of targets with their packages, their tests and the pages about them, in both directions.
// It reads source only, and knows what the scaffold writes: targets that are built in another way are not judged.
func Check(m Module) ([]Drift, error) {
	src, err := m.read(registryFile)
	if err != nil {
		return nil, err
	}
	if src == nil {
		return nil, fmt.Errorf("%s: %w", registryFile, fs.ErrNotExist)
	}
	reg, err := parseRegistry(src)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", registryFile, err)
	}
	c := checker{module: m, registered: map[string]bool{}}
	if err := c.readPages(); err != nil {
		return nil, err
	}
	dirs, err := c.registry(reg)
	if err != nil {
		return nil, err
	}
	if err := c.unregistered(dirs); err != nil {
		return nil, err
	}
	c.pages()
	slices.SortStableFunc(c.found, func(a, b Drift) int { return strings.Compare(a.Target, b.Target) })
	return c.found, nil
}

type checker struct {
	module     Module
	docs, gaps []section
	registered map[string]bool
	found      []Drift
}

func (c *checker) drift(target, file, format string, args ...any) {
	c.found = append(c.found, Drift{target, file, fmt.Sprintf(format, args...)})
}

func (c *checker) readPages() error {
	for _, page := range []struct {
		name string
		to   *[]section
	}{{targetsDoc, &c.docs}, {gapsDoc, &c.gaps}} {
		text, err := c.module.read(page.name)
		if err != nil {
			return err
		}
		*page.to = sections(string(text))
	}
	return nil
}

// registry judges each registered target, and returns the directories of their packages.
func (c *checker) registry(reg registry) (dirs map[string]bool, err error) {
	dirs = map[string]bool{}
	imports := reg.imports()
	for _, e := range reg.entries {
		dir, ours := strings.CutPrefix(imports[e.pkg], c.module.Path+"/")
		if !ours {
			if e.name != "" {
				c.registered[e.name] = true
				c.document(e.name)
			}
			continue
		}
		dirs[dir] = true
		p, err := readPackage(c.module, dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			c.drift(e.name, registryFile, "the package %s is not there", dir)
			continue
		case err != nil:
			return nil, err
		}
		name := e.name
		if name == "" {
			name = p.target
		}
		c.registered[name] = true
		if p.target != "" && p.target != name {
			c.drift(name, registryFile, "is registered as %q, and its package calls it %q", name, p.target)
		}
		c.tests(name, dir, p)
		if s := c.document(name); s != nil {
			if len(p.jobs) > 0 {
				c.compare(name, "action", p.actions, s.actions)
			}
			c.compare(name, "variable", p.variables(), s.variables)
		}
		noted := slices.ContainsFunc(c.gaps, func(s section) bool { return s.name == name })
		switch {
		case p.fake && !noted:
			c.drift(name, gapsDoc, "its client is a fake, and no section %q says so", name)
		case !p.fake && noted:
			c.drift(name, gapsDoc, "is said to be a fake, and is none")
		}
	}
	return dirs, nil
}

// document returns what the page says about a target; that it says nothing is a drift.
func (c *checker) document(name string) *section {
	i := slices.IndexFunc(c.docs, func(s section) bool { return s.name == name })
	if i < 0 {
		c.drift(name, targetsDoc, "has no section %q", name)
		return nil
	}
	return &c.docs[i]
}

// compare finds what only one of code and page knows.
func (c *checker) compare(target, what string, code, page []string) {
	for _, name := range code {
		if !slices.Contains(page, name) {
			c.drift(target, targetsDoc, "the %s %s is missing", what, name)
		}
	}
	for _, name := range page {
		if !slices.Contains(code, name) {
			c.drift(target, targetsDoc, "the %s %s is not in the code", what, name)
		}
	}
}

// tests wants a test that names each job.
func (c *checker) tests(target, dir string, p pack) {
	if !p.hasTests {
		c.drift(target, dir, "has no test")
		return
	}
	for _, job := range p.jobs {
		if !p.tested[job] {
			c.drift(target, dir, "no test names the job %s", job)
		}
	}
}

// unregistered finds packages of targets that are in no registry, and variables that one target would take for misspelt
// ones of its own.
func (c *checker) unregistered(dirs map[string]bool) error {
	packs, err := c.module.packs()
	if err != nil {
		return err
	}
	for _, p := range packs {
		if !dirs[p.dir] {
			c.drift(p.target, registryFile, "the package %s is not registered", p.dir)
		}
		for _, other := range packs {
			if strings.HasPrefix(other.variablesPrefix(), p.variablesPrefix()+"_") && !slices.Contains(p.group.others, other.target) {
				c.drift(p.target, p.dir, "the variables of %q begin like its own: configgroup.Load needs configgroup.Others(%q)", other.target, other.target)
			}
		}
	}
	return nil
}

// pages finds sections about targets that are not registered.
func (c *checker) pages() {
	for _, page := range []struct {
		name     string
		sections []section
	}{{targetsDoc, c.docs}, {gapsDoc, c.gaps}} {
		for _, s := range page.sections {
			if !c.registered[s.name] {
				c.drift(s.name, page.name, "the section %q is about no registered target", s.name)
			}
		}
	}
}
