package scaffold

import (
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// errNoBuilders reports a registry that is not as it was generated.
var errNoBuilders = errors.New(`has no variable "builders" that is a map literal from target names to functions`)

// entry is one line of the registry.
type entry struct {
	name string
	pkg  string // the name the package is imported by
	node *ast.KeyValueExpr
}

// registry is the parsed file with the map of builders.
type registry struct {
	fset    *token.FileSet
	file    *ast.File
	lit     *ast.CompositeLit
	entries []entry
}

func parseRegistry(src []byte) (registry, error) {
	r := registry{fset: token.NewFileSet()}
	var err error
	if r.file, err = parser.ParseFile(r.fset, "", src, parser.ParseComments); err != nil {
		return r, fmt.Errorf("is not Go: %w", err)
	}
	ast.Inspect(r.file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || spec.Names[0].Name != "builders" || len(spec.Values) != 1 {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.CompositeLit); ok {
			r.lit = lit
		}
		return false
	})
	if r.lit == nil {
		return r, errNoBuilders
	}
	for _, elt := range r.lit.Elts {
		kv, ok := elt.(*ast.KeyValueExpr)
		if !ok {
			return r, errNoBuilders
		}
		e := entry{node: kv}
		if key, ok := kv.Key.(*ast.BasicLit); ok {
			e.name, _ = strconv.Unquote(key.Value)
		} else if sel, ok := kv.Key.(*ast.SelectorExpr); ok { // crm.Target
			e.name = "" // known once its package is read
			if x, ok := sel.X.(*ast.Ident); ok {
				e.pkg = x.Name
			}
		}
		if sel, ok := kv.Value.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				e.pkg = x.Name
			}
		}
		r.entries = append(r.entries, e)
	}
	return r, nil
}

// imports maps the names that packages are imported by to their paths.
func (r registry) imports() map[string]string {
	m := map[string]string{}
	for _, spec := range r.file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := p[strings.LastIndexByte(p, '/')+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		m[name] = p
	}
	return m
}

// edit is text that is put in at an offset.
type edit struct {
	at   int
	text string
}

// register returns the source with one more entry and import. Everything else stays as it was written.
func register(src []byte, target, pkg, importPath string) ([]byte, error) {
	r, err := parseRegistry(src)
	if err != nil {
		return nil, fmt.Errorf("%w; add the target there by hand, or move the file away", err)
	}
	for _, e := range r.entries {
		if e.name == target {
			return nil, fmt.Errorf("the target %q %w", target, ErrExists)
		}
	}
	if p, clash := r.imports()[pkg]; clash && p != importPath {
		return nil, fmt.Errorf("the name %q is that of another package there: %s", pkg, p)
	}
	edits := []edit{r.newEntry(target, pkg)}
	if _, there := r.imports()[pkg]; !there {
		edits = append(edits, r.newImport(importPath))
	}
	out := string(src)
	for _, e := range edits { // the later one first: offsets stay right
		out = out[:e.at] + e.text + out[e.at:]
	}
	text, err := format.Source([]byte(out))
	if err != nil {
		return nil, fmt.Errorf("add the target %q: %w", target, err)
	}
	return text, nil
}

func (r registry) offset(p token.Pos) int { return r.fset.Position(p).Offset }

// newEntry comes before the first entry whose name is greater.
func (r registry) newEntry(target, pkg string) edit {
	line := fmt.Sprintf("%q: %s.Build,\n", target, pkg)
	for _, e := range r.entries {
		if e.name > target {
			return edit{r.offset(e.node.Pos()), line}
		}
	}
	if n := len(r.entries); n > 0 && r.fset.Position(r.entries[n-1].node.End()).Line == r.fset.Position(r.lit.Rbrace).Line {
		return edit{r.offset(r.entries[n-1].node.End()), ",\n" + line} // all on one line
	}
	if r.fset.Position(r.lit.Lbrace).Line == r.fset.Position(r.lit.Rbrace).Line {
		line = "\n" + line
	}
	return edit{r.offset(r.lit.Rbrace), line}
}

// newImport joins the imports of other targets, or is the last of all.
func (r registry) newImport(importPath string) edit {
	line := strconv.Quote(importPath)
	var last *ast.GenDecl
	for _, d := range r.file.Decls {
		gen, ok := d.(*ast.GenDecl)
		if !ok || gen.Tok != token.IMPORT {
			break
		}
		last = gen
		for _, spec := range gen.Specs {
			imp := spec.(*ast.ImportSpec)
			if p, _ := strconv.Unquote(imp.Path.Value); gen.Lparen.IsValid() && strings.HasPrefix(p, importPath[:strings.LastIndexByte(importPath, '/')+1]) {
				return edit{r.offset(imp.Pos()), line + "\n"}
			}
		}
	}
	switch {
	case last == nil:
		return edit{r.offset(r.file.Name.End()), "\n\nimport " + line + "\n"}
	case !last.Lparen.IsValid():
		return edit{r.offset(last.End()), "\nimport " + line + "\n"}
	}
	return edit{r.offset(last.Rparen), "\n" + line + "\n"}
}
