package scaffold

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// pack is what the source of a target's package says.
type pack struct {
	dir      string
	target   string   // the constant Target
	jobs     []string // Go names of its job types
	actions  []string // their actions
	group    group
	fake     bool // it makes a fake client
	hasTests bool
	tested   map[string]bool // names that its tests use
}

// packs reads the packages below the registry that are those of targets.
func (m Module) packs() ([]pack, error) {
	list, err := os.ReadDir(filepath.Join(m.Root, targetsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", targetsDir, err)
	}
	var packs []pack
	for _, d := range list {
		if !d.IsDir() {
			continue
		}
		p, err := readPackage(m, targetsDir+"/"+d.Name())
		if err != nil {
			return nil, err
		}
		if p.target != "" {
			packs = append(packs, p)
		}
	}
	return packs, nil
}

// readPackage reads a package of the module without compiling it.
func readPackage(m Module, dir string) (pack, error) {
	p := pack{dir: dir, tested: map[string]bool{}}
	list, err := os.ReadDir(filepath.Join(m.Root, filepath.FromSlash(dir)))
	if err != nil {
		return p, fmt.Errorf("read package %s: %w", dir, err)
	}
	for _, f := range list {
		if f.IsDir() || !strings.HasSuffix(f.Name(), ".go") {
			continue
		}
		name := dir + "/" + f.Name()
		src, err := m.read(name)
		if err != nil {
			return p, err
		}
		tree, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
		if err != nil {
			return p, fmt.Errorf("read package %s: %w", dir, err)
		}
		if strings.HasSuffix(f.Name(), "_test.go") {
			p.readTest(tree)
		} else {
			p.readCode(tree)
		}
	}
	slices.Sort(p.actions)
	return p, nil
}

func (p *pack) readTest(tree *ast.File) {
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			p.hasTests = p.hasTests || n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test") && n.Name.Name != "TestMain"
		case *ast.SelectorExpr:
			p.tested[n.Sel.Name] = true
		case *ast.Ident:
			p.tested[n.Name] = true
		}
		return true
	})
}

func (p *pack) readCode(tree *ast.File) {
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i < len(n.Values) {
					p.readValue(name.Name, n.Values[i])
				}
			}
		case *ast.TypeSpec:
			if s, ok := n.Type.(*ast.StructType); ok && n.Name.Name == "Config" {
				p.group.config = s
			}
		case *ast.CallExpr:
			if fn, ok := n.Fun.(*ast.Ident); ok && fn.Name == "NewFake" {
				p.fake = true
			}
			p.group.readCall(n)
		}
		return true
	})
}

// readValue takes the target's name and its job types.
func (p *pack) readValue(name string, value ast.Expr) {
	if name == "Target" {
		p.target = literal(value)
	}
	lit, ok := value.(*ast.CompositeLit)
	if !ok || typeName(lit.Type) != "JobType" {
		return
	}
	p.jobs = append(p.jobs, name)
	for _, elt := range lit.Elts {
		if kv, ok := elt.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Action" {
				p.actions = append(p.actions, literal(kv.Value))
			}
		}
	}
}

// typeName is the last part of a generic type's name.
func typeName(e ast.Expr) string {
	if index, ok := e.(*ast.IndexExpr); ok {
		e = index.X
	}
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func literal(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return s
}
