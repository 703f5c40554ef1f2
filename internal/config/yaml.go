package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
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
	w := walker{layer: l, name: name}
	if root := doc.Content[0]; !(root.Kind == yaml.ScalarNode && root.Tag == "!!null") {
		w.walk("", root, 0)
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		l.faults = append(l.faults, fmt.Errorf("%s: has more than one document", name))
	}
	return l.finish()
}

var errMerge = errors.New("maps are not merged; an alias (*name) stands for a whole value")

type walker struct {
	layer *layer
	name  string
}

// maxDepth is more than any key has; aliases can make a document deeper than its text.
const maxDepth = 8

func (w *walker) walk(path string, node *yaml.Node, depth int) {
	origin := fmt.Sprintf("%s:%d", w.name, node.Line)
	node = resolve(node)
	if field, ok := w.leaf(path); ok {
		values, err := texts(field, node)
		if err != nil {
			w.layer.fault(origin, path, "%v", err)
			return
		}
		inside := map[string]string{}
		if isBlock(field) {
			w.places(path, node, inside)
		}
		w.layer.apply(origin, path, values, inside)
		return
	}
	if path != "" {
		w.layer.config.place[path] = origin
	}
	switch {
	case !w.isSection(path):
		w.layer.unknown(origin, path)
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
		if k.Tag == "!!merge" {
			w.layer.fault(line, join(path, k.Value), "%v", errMerge)
			continue
		}
		if k.Kind != yaml.ScalarNode || k.Value == "" || strings.Contains(k.Value, ".") {
			w.layer.fault(line, "unknown key "+quote(join(path, k.Value)), "a key is a plain word")
			continue
		}
		if seen[k.Value] {
			w.layer.fault(line, join(path, k.Value), "is set twice")
			continue
		}
		seen[k.Value] = true
		if path == "targets" {
			w.declareTarget(k.Value, resolve(node.Content[i+1]))
		}
		if path+"." == peersPrefix {
			w.layer.declarePeer(k.Value)
		}
		value := *resolve(node.Content[i+1])
		value.Line = k.Line // where the reader looks
		w.walk(join(path, k.Value), &value, depth+1)
	}
}

// declareTarget makes room for a target and gives it its type, if it has one: the type brings keys.
func (w *walker) declareTarget(name string, node *yaml.Node) {
	w.layer.declareTarget(name)
	if node.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if v := resolve(node.Content[i+1]); node.Content[i].Value == "type" && v.Kind == yaml.ScalarNode {
			w.layer.setType(fmt.Sprintf("%s:%d", w.name, node.Content[i].Line), name, v.Value)
			return
		}
	}
}

// places notes where the parts of a block are written. Its size has been checked.
func (w *walker) places(path string, node *yaml.Node, into map[string]string) {
	node = resolve(node)
	for i, item := range node.Content {
		name := strconv.Itoa(i)
		line := item.Line
		if node.Kind == yaml.MappingNode {
			if i%2 == 0 {
				continue
			}
			name, line = resolve(node.Content[i-1]).Value, node.Content[i-1].Line
		}
		into[join(path, name)] = fmt.Sprintf("%s:%d", w.name, line)
		w.places(join(path, name), item, into)
	}
}

// leaf returns the field that a path sets.
func (w *walker) leaf(path string) (field any, ok bool) {
	for _, s := range w.layer.config.settings() {
		if s.key == path {
			return s.field, true
		}
	}
	return nil, false
}

// isSection reports whether keys exist below path.
func (w *walker) isSection(path string) bool {
	if path == "" || path == "targets" || path+"." == peersPrefix {
		return true
	}
	for _, s := range w.layer.config.settings() {
		if strings.HasPrefix(s.key, path+".") {
			return true
		}
	}
	return false
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

// texts returns what a node says: the texts of a scalar or of a list of scalars, or a block as JSON.
func texts(field any, node *yaml.Node) ([]string, error) {
	if isBlock(field) {
		text, err := blockJSON(node)
		return []string{text}, err
	}
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
