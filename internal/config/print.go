package config

import (
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millbridge/millbridge/handlers/configgroup"
)

// Print writes the effective configuration as a file that could be read again, secrets masked, each value with its
// origin as a comment.
func (c *Config) Print(w io.Writer) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range c.settings() {
		value := &yaml.Node{}
		if err := value.Encode(plain(s.field)); err != nil {
			return fmt.Errorf("print %s: %w", s.key, err)
		}
		if value.Kind == yaml.SequenceNode {
			value.Style = yaml.FlowStyle
		}
		value.LineComment = c.Origin(s.key)
		place(root, strings.Split(s.key, "."), value)
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	return enc.Close()
}

// A Value is one effective setting, masked.
type Value struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"`
}

// Values lists all settings, secrets masked.
func (c *Config) Values() []Value {
	var list []Value
	for _, s := range c.settings() {
		list = append(list, Value{s.key, plain(s.field), c.Origin(s.key)})
	}
	return list
}

// plain returns what a field is printed as.
func plain(field any) any {
	switch f := field.(type) {
	case configgroup.Setting:
		return shown(f)
	case *[]string:
		return append([]string{}, *f...)
	case *[]Secret:
		return printed(*f)
	case *[]URL:
		return printed(*f)
	case *string:
		return *f
	case *bool:
		return *f
	case *int:
		return *f
	case *float64:
		return *f
	case fmt.Stringer: // durations, secrets and addresses
		return f.String()
	}
	return fmt.Sprintf("(%T)", field)
}

func printed[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.String()
	}
	return out
}

// place puts value into the tree below root.
func place(root *yaml.Node, path []string, value *yaml.Node) {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == path[0] && len(path) > 1 {
			place(root.Content[i+1], path[1:], value)
			return
		}
	}
	key := &yaml.Node{Kind: yaml.ScalarNode, Value: path[0]}
	if len(path) == 1 {
		if value.Kind == yaml.MappingNode { // a block's comment stands behind its key
			key.LineComment, value.LineComment = value.LineComment, ""
		}
		root.Content = append(root.Content, key, value)
		return
	}
	section := &yaml.Node{Kind: yaml.MappingNode}
	root.Content = append(root.Content, key, section)
	place(section, path[1:], value)
}
