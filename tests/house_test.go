package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// maxLines is where a file has more than one idea.
const maxLines = 600

// sourceFile is a parsed Go file, test or not.
type sourceFile struct {
	path string // from the module's root
	src  string
	tree *ast.File
	fset *token.FileSet
}

func (f sourceFile) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

func (f sourceFile) line(n ast.Node) int { return f.fset.Position(n.Pos()).Line }

func sourceFiles(t *testing.T) []sourceFile {
	t.Helper()
	var all []sourceFile
	for _, p := range packages(t) {
		names, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			src, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			fset := token.NewFileSet()
			tree, err := parser.ParseFile(fset, name, src, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, sourceFile{filepath.Join(p.own(), filepath.Base(name)), string(src), tree, fset})
		}
	}
	if len(all) < 50 {
		t.Fatalf("found only %d files", len(all))
	}
	return all
}

func TestFiles_are_short(t *testing.T) {
	t.Parallel()
	for _, f := range sourceFiles(t) {
		if n := strings.Count(f.src, "\n"); n > maxLines {
			t.Errorf("%s has %d lines, more than %d", f.path, n, maxLines)
		}
	}
}

func TestPackages_say_what_they_are_for(t *testing.T) {
	t.Parallel()
	documented := map[string]string{}
	for _, f := range sourceFiles(t) {
		if f.tree.Doc != nil && !f.isTest() {
			documented[filepath.Dir(f.path)] = filepath.Base(f.path)
		}
	}
	for _, p := range packages(t) {
		where := documented[filepath.Clean(p.own())]
		small := where != "" && len(p.GoFiles) <= 2 // where the comment is not hard to find
		if len(p.GoFiles) > 0 && where != "doc.go" && !small {
			t.Errorf("%s has no doc.go with a package comment", p.own())
		}
	}
}

// sqlPattern finds statements, not English: a verb with what must follow it.
var sqlPattern = regexp.MustCompile(`(?is)^\s*(select\s.*\sfrom\s|insert\s+into\s|update\s+\S+\s+set\s|delete\s+from\s|` +
	`with\s+\w+\s+as\s|(create|alter|drop)\s+(table|index|schema|database|sequence)\s)`)

// sqlPlaces may have statements of their own: the stores, test tools, and programs that show a user's own tables.
var sqlPlaces = []string{"schema/postgres", "schema/sqlite", "internal/testkit", "internal/demo", "examples", "tests"}

func TestSQL_stands_only_in_the_stores(t *testing.T) {
	t.Parallel()
	inStores := 0
	for _, f := range sourceFiles(t) {
		if f.isTest() {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			switch {
			case err != nil || !sqlPattern.MatchString(text):
			case underAny(f.path, sqlPlaces):
				inStores++
			default:
				t.Errorf("%s:%d has SQL: %.60q", f.path, f.line(lit), text)
			}
			return true
		})
	}
	if inStores < 20 {
		t.Errorf("the pattern finds only %d statements in the stores", inStores)
	}
}

// forbidden calls and declarations, with what to do instead.
var forbiddenCalls = map[string]string{
	"time.Sleep": "wait for what is awaited: select with a deadline",
	"t.Skip":     "start the missing service, or fail and say how",
	"t.Skipf":    "start the missing service, or fail and say how",
	"t.SkipNow":  "start the missing service, or fail and say how",
}

func TestCode_keeps_the_house_rules(t *testing.T) {
	t.Parallel()
	for _, f := range sourceFiles(t) {
		ast.Inspect(f.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok {
					if instead, bad := forbiddenCalls[x.Name+"."+n.Sel.Name]; bad {
						t.Errorf("%s:%d uses %s.%s: %s", f.path, f.line(n), x.Name, n.Sel.Name, instead)
					}
				}
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					t.Errorf("%s:%d has an init function: what a package needs, its caller makes", f.path, f.line(n))
				}
			}
			return true
		})
		for _, group := range f.tree.Comments {
			if open := unfinished.FindString(group.Text()); open != "" {
				t.Errorf("%s:%d says %s: do it or file it", f.path, f.line(group), open)
			}
		}
	}
}

var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XXX)\b`)
