package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxBlock is how many values a block may have; aliases can make it larger than its text.
const maxBlock = 10_000

// blockJSON writes a node as JSON.
func blockJSON(node *yaml.Node) (string, error) {
	var b strings.Builder
	left := maxBlock
	err := writeJSON(&b, node, 0, &left)
	return b.String(), err
}

func writeJSON(b *strings.Builder, node *yaml.Node, depth int, left *int) error {
	node = resolve(node)
	if *left--; *left < 0 || depth > 2*maxDepth {
		return errors.New("is too large or too deep")
	}
	switch node.Kind {
	case yaml.ScalarNode:
		return writeScalar(b, node)
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, item := range node.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, item, depth+1, left); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case yaml.MappingNode:
		b.WriteByte('{')
		seen := map[string]bool{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := resolve(node.Content[i])
			switch {
			case key.Tag == "!!merge":
				return fmt.Errorf("line %d: %w", key.Line, errMerge)
			case key.Kind != yaml.ScalarNode:
				return fmt.Errorf("line %d: a key is a plain word", key.Line)
			case seen[key.Value]:
				return fmt.Errorf("line %d: %s is set twice", key.Line, quote(key.Value))
			case i > 0:
				b.WriteByte(',')
			}
			seen[key.Value] = true
			writeString(b, key.Value)
			b.WriteByte(':')
			if err := writeJSON(b, node.Content[i+1], depth+1, left); err != nil {
				return err
			}
		}
		b.WriteByte('}')
		return nil
	}
	return errors.New("cannot be read")
}

func writeScalar(b *strings.Builder, node *yaml.Node) error {
	var v any
	switch node.Tag {
	case "!!null", "!!bool", "!!int", "!!float":
		if err := node.Decode(&v); err != nil {
			return fmt.Errorf("line %d: %s cannot be read", node.Line, quote(node.Value))
		}
	default:
		writeString(b, node.Value)
		return nil
	}
	text, err := json.Marshal(v)
	if err != nil { // infinity, not a number
		return fmt.Errorf("line %d: %s cannot be read", node.Line, quote(node.Value))
	}
	b.Write(text)
	return nil
}

func writeString(b *strings.Builder, s string) {
	text, _ := json.Marshal(s) // strings always can be
	b.Write(text)
}
