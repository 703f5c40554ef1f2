package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mutant is one guard, how to remove it, and the test that must notice.
type mutant struct {
	Name    string `yaml:"name"`    // short, unique
	Guard   string `yaml:"guard"`   // what breaks without it, for a reader
	File    string `yaml:"file"`    // from the module's root
	Old     string `yaml:"old"`     // occurs exactly once in the file
	New     string `yaml:"new"`     // replaces it; may be empty
	Package string `yaml:"package"` // of the test, as ./router
	Run     string `yaml:"run"`     // as of go test
}

func (m mutant) validate() error {
	for field, value := range map[string]string{
		"name": m.Name, "guard": m.Guard, "file": m.File, "old": m.Old, "package": m.Package, "run": m.Run,
	} {
		if strings.TrimSpace(value) == "" {
			return fmt.Errorf("mutant %q has no %s", m.Name, field)
		}
	}
	if m.Old == m.New {
		return fmt.Errorf("mutant %q changes nothing", m.Name)
	}
	return nil
}

// mutate returns the file's text without the guard.
func (m mutant) mutate(root string) ([]byte, error) {
	src, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(src, []byte(m.Old)); n != 1 {
		return nil, fmt.Errorf("the text to replace occurs %d times in %s, want once", n, m.File)
	}
	return bytes.Replace(src, []byte(m.Old), []byte(m.New), 1), nil
}

// load reads all registry files, in the order of their names.
func load(dir fs.FS) ([]mutant, error) {
	files, err := fs.Glob(dir, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list the registry: %w", err)
	}
	var all []mutant
	var faults error
	for _, file := range files {
		text, err := fs.ReadFile(dir, file)
		if err != nil {
			return nil, fmt.Errorf("read the registry: %w", err)
		}
		var some []mutant
		dec := yaml.NewDecoder(bytes.NewReader(text))
		dec.KnownFields(true)
		if err := dec.Decode(&some); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		for _, m := range some {
			if err := m.validate(); err != nil {
				faults = errors.Join(faults, fmt.Errorf("%s: %w", file, err))
			}
			if slices.ContainsFunc(all, func(other mutant) bool { return other.Name == m.Name }) {
				faults = errors.Join(faults, fmt.Errorf("%s: two mutants are called %q", file, m.Name))
			}
			all = append(all, m)
		}
	}
	return all, faults
}
