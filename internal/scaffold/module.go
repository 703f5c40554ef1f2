package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// Where things are in the user's module, from its root.
const (
	targetsDir   = "targets"
	registryFile = "targets/targets.go"
	targetsDoc   = "docs/targets.md"
	gapsDoc      = "docs/known-gaps.md"
	decisionsDir = "docs/decisions"
)

// Ours is the path of the module whose packages the generated code imports.
const Ours = "github.com/millbridge/millbridge"

// ErrNoModule reports a directory that is in no Go module.
var ErrNoModule = errors.New("there is no go.mod here or above")

// A Module is a Go module on disk.
type Module struct {
	Root string // the directory of its go.mod
	Path string // its import path
	// Requires tells whether its go.mod names ours.
	Requires bool
}

var (
	modulePath = regexp.MustCompile(`(?m)^module[ \t]+"?([^\s"]+)"?`)
	requires   = regexp.MustCompile(`(?m)^\s*(require\s+)?"?` + regexp.QuoteMeta(Ours) + `"?\s+v`)
)

// FindModule returns the module that dir is in.
func FindModule(dir string) (Module, error) {
	at, err := filepath.Abs(dir)
	if err != nil {
		return Module{}, fmt.Errorf("find the module: %w", err)
	}
	if _, err := os.Stat(at); err != nil {
		return Module{}, fmt.Errorf("find the module: %w", err)
	}
	for {
		text, err := os.ReadFile(filepath.Join(at, "go.mod"))
		switch {
		case err == nil:
			m := modulePath.FindSubmatch(text)
			if m == nil {
				return Module{}, fmt.Errorf("%s names no module", filepath.Join(at, "go.mod"))
			}
			return Module{Root: at, Path: string(m[1]), Requires: string(m[1]) == Ours || requires.Match(text)}, nil
		case !errors.Is(err, fs.ErrNotExist):
			return Module{}, fmt.Errorf("find the module: %w", err)
		case filepath.Dir(at) == at:
			return Module{}, fmt.Errorf("%s: %w", dir, ErrNoModule)
		}
		at = filepath.Dir(at)
	}
}

// app is what the module is called in names of environment variables.
func (m Module) app() string {
	name := path.Base(m.Path)
	if majorVersion.MatchString(name) {
		name = path.Base(path.Dir(m.Path))
	}
	return strings.ToUpper(strings.Join(words(name), "_"))
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// read returns a file of the module; a file that is not there is empty.
func (m Module) read(name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(m.Root, filepath.FromSlash(name)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}
