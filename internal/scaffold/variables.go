package scaffold

import (
	"go/ast"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/millbridge/millbridge/internal/spelling"
)

// group is what the source says about a target's variables.
type group struct {
	config *ast.StructType // the type Config
	prefix string          // given in place of MILLBRIDGE_<TARGET>
	others []string        // targets that are named as beginning in the same way
}

// readCall takes what a call of configgroup's options says.
func (g *group) readCall(call *ast.CallExpr) {
	fn, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return
	}
	if x, ok := fn.X.(*ast.Ident); !ok || x.Name != "configgroup" {
		return
	}
	switch fn.Sel.Name {
	case "Prefix":
		g.prefix = strings.TrimSuffix(literal(call.Args[0]), "_")
	case "Others":
		for _, arg := range call.Args {
			g.others = append(g.others, literal(arg))
		}
	}
}

// variablesPrefix is how the names of a target's variables begin, without the last "_".
func (p pack) variablesPrefix() string {
	if p.group.prefix != "" {
		return p.group.prefix
	}
	return "MILLBRIDGE_" + spelling.Capitals(p.target)
}

// variables returns the names of the variables that the target reads.
func (p pack) variables() []string {
	var names []string
	if p.group.config == nil {
		return nil
	}
	for _, field := range p.group.config.Fields.List {
		tag := ""
		if field.Tag != nil {
			tag, _ = strconv.Unquote(field.Tag.Value)
		}
		env := reflect.StructTag(tag).Get("env")
		for _, name := range field.Names {
			if env == "-" || !name.IsExported() {
				continue
			}
			part := env
			if part == "" {
				part = spelling.Variable(name.Name)
			}
			names = append(names, p.variablesPrefix()+"_"+part)
		}
	}
	return names
}

// others returns the targets of the module whose variables begin with a prefix and more.
func (m Module) others(prefix string) ([]string, error) {
	packs, err := m.packs()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range packs {
		if strings.HasPrefix(p.variablesPrefix(), prefix+"_") {
			names = append(names, p.target)
		}
	}
	slices.Sort(names)
	return names, nil
}
