package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// applyYAML applies the text of a file. It walks the document itself, so that every fault has its line and a value is
// parsed the same way wherever it comes from.
func (c *Config) applyYAML(name string, data []byte) []error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) { // nothing but comments
			return nil
		}
		return []error{fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))}
	}
	l := newLayer(c)
	w := walker{layer: l, name: name, leaves: map[string]bool{}}
	for _, key := range Keys() {
		w.leaves[key] = true
	}
	if root := doc.Content[0]; !(root.Kind == yaml.ScalarNode && root.Tag == "!!null") {
		w.walk("", root, 0)
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		l.faults = append(l.faults, fmt.Errorf("%s: has more than one document", name))
	}
	return l.finish()
}

type walker struct {
	layer  *layer
	name   string
	leaves map[string]bool
}

// maxDepth is more than any key has; aliases can make a document deeper than its text.
const maxDepth = 8

func (w *walker) walk(path string, node *yaml.Node, depth int) {
	origin := fmt.Sprintf("%s:%d", w.name, node.Line)
	node = resolve(node)
	if w.leaves[pattern(path)] {
		values, err := scalars(node)
		if err != nil {
			w.layer.fault(origin, path, "%v", err)
			return
		}
		w.layer.apply(origin, path, values)
		return
	}
	switch {
	case !w.isSection(path):
		w.layer.fault(origin, "unknown key "+quote(path), "%s", suggest(path))
		return
	case node.Kind == yaml.ScalarNode && node.Tag == "!!null":
		return // a section with nothing in it
	case node.Kind != yaml.MappingNode || depth > maxDepth:
		if path == "" {
			path = "the file"
		}
		w.layer.fault(origin, path, "wants keys and values below it")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		k := node.Content[i]
		line := fmt.Sprintf("%s:%d", w.name, k.Line)
		if k.Kind != yaml.ScalarNode || k.Value == "" || strings.Contains(k.Value, ".") {
			w.layer.fault(line, "unknown key "+quote(join(path, k.Value)), "a key is a plain word")
			continue
		}
		if seen[k.Value] {
			w.layer.fault(line, join(path, k.Value), "is set twice")
			continue
		}
		seen[k.Value] = true
		if path == "webhooks" {
			w.layer.declareWebhook("webhooks." + k.Value + ".")
		}
		value := *resolve(node.Content[i+1])
		value.Line = k.Line // where the reader looks
		w.walk(join(path, k.Value), &value, depth+1)
	}
}

// isSection reports whether keys exist below path.
func (w *walker) isSection(path string) bool {
	if path == "" {
		return true
	}
	for leaf := range w.leaves {
		if strings.HasPrefix(leaf, pattern(path)+".") {
			return true
		}
	}
	return false
}

// pattern writes "<name>" for the name of a webhook.
func pattern(path string) string {
	rest, ok := strings.CutPrefix(path, "webhooks.")
	if !ok {
		return path
	}
	if _, below, found := strings.Cut(rest, "."); found {
		return "webhooks.<name>." + below
	}
	return "webhooks.<name>"
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// resolve follows an alias; the parser refuses circular ones.
func resolve(node *yaml.Node) *yaml.Node {
	for range maxDepth {
		if node.Kind != yaml.AliasNode {
			break
		}
		node = node.Alias
	}
	return node
}

// scalars returns the texts of a scalar or of a list of scalars.
func scalars(node *yaml.Node) ([]string, error) {
	switch node.Kind {
	case yaml.ScalarNode:
		if node.Tag == "!!null" {
			return nil, errors.New("has no value")
		}
		return []string{node.Value}, nil
	case yaml.SequenceNode:
		values := make([]string, 0, len(node.Content))
		for _, item := range node.Content {
			if item = resolve(item); item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
				return nil, errors.New("wants a list of plain values")
			}
			values = append(values, item.Value)
		}
		return values, nil
	}
	return nil, errors.New("wants a plain value")
}
