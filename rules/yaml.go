package rules

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

type nodeKind uint8

const (
	scalarNode nodeKind = iota
	listNode
	mapNode
	nullNode
)

// node is what rules need of a YAML value: its text, its parts and where it stands.
type node struct {
	kind   nodeKind
	s      string // scalar: its value; numbers and booleans as they were written
	line   int
	col    int
	list   []*node
	keys   []*node // map: in the order of the file
	values []*node
}

func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	for i, k := range n.keys {
		if k.s == key {
			return n.values[i]
		}
	}
	return nil
}

const (
	maxDepth = 64      // of YAML nesting and of conditions
	maxNodes = 1 << 20 // of one file: aliases can multiply
)

// parseYAML reads a file of rules into the sequence of its items.
func parseYAML(src []byte) (items []*node, err *yamlError) {
	defer func() { // the parser is not ours, and rule files come from strangers
		if r := recover(); r != nil {
			err = &yamlError{1, 1, fmt.Sprintf("this is not YAML that can be read (%v)", r)}
		}
	}()
	f, perr := parser.ParseBytes(src, 0)
	if perr != nil {
		return nil, syntaxError(perr)
	}
	c := converter{anchors: map[string]ast.Node{}}
	for _, d := range f.Docs {
		if d == nil || d.Body == nil {
			continue
		}
		n := c.node(d.Body, 0)
		if c.err != nil {
			return nil, c.err
		}
		switch n.kind {
		case listNode:
			items = append(items, n.list...)
		case nullNode:
		default:
			return nil, &yamlError{n.line, n.col, "a rule file is a list of rules, macros and lists, each beginning with \"- \""}
		}
	}
	return items, nil
}

type yamlError struct {
	line, col int
	msg       string
}

// syntaxError takes line and column from goccy's error.
func syntaxError(err error) *yamlError {
	var t interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if te, ok := err.(interface {
		error
		GetToken() *token.Token
		GetMessage() string
	}); ok {
		t = te
	}
	if t == nil || t.GetToken() == nil || t.GetToken().Position == nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return &yamlError{1, 1, line}
	}
	p := t.GetToken().Position
	return &yamlError{p.Line, p.Column, t.GetMessage()}
}

type converter struct {
	anchors map[string]ast.Node
	count   int
	err     *yamlError
}

func (c *converter) fail(line, col int, format string, args ...any) *node {
	if c.err == nil {
		c.err = &yamlError{line, col, fmt.Sprintf(format, args...)}
	}
	return &node{kind: nullNode, line: line, col: col}
}

func (c *converter) node(a ast.Node, depth int) *node {
	line, col := 1, 1
	if a != nil {
		if t := a.GetToken(); t != nil && t.Position != nil {
			line, col = t.Position.Line, t.Position.Column
		}
	}
	if c.count++; c.count > maxNodes || depth > maxDepth {
		return c.fail(line, col, "the file is nested or repeated too deeply")
	}
	switch v := a.(type) {
	case nil, *ast.NullNode:
		return &node{kind: nullNode, line: line, col: col}
	case *ast.AnchorNode:
		c.anchors[v.Name.GetToken().Value] = v.Value
		return c.node(v.Value, depth+1)
	case *ast.AliasNode:
		target, ok := c.anchors[v.Value.GetToken().Value]
		if !ok {
			return c.fail(line, col, "alias *%s has no anchor", v.Value.GetToken().Value)
		}
		return c.node(target, depth+1)
	case *ast.TagNode:
		return c.node(v.Value, depth+1)
	case *ast.SequenceNode:
		n := &node{kind: listNode, line: line, col: col}
		for _, e := range v.Values {
			n.list = append(n.list, c.node(e, depth+1))
		}
		return n
	case *ast.MappingValueNode:
		n := &node{kind: mapNode, line: line, col: col}
		c.pair(n, v, depth)
		return n
	case *ast.MappingNode:
		n := &node{kind: mapNode, line: line, col: col}
		for _, e := range v.Values {
			c.pair(n, e, depth)
		}
		if len(n.keys) > 0 {
			n.line, n.col = n.keys[0].line, n.keys[0].col
		}
		return n
	case *ast.StringNode:
		return &node{s: v.Value, line: line, col: col}
	case *ast.LiteralNode:
		// The token stands at the indicator; the value begins on the next line.
		return &node{s: v.Value.Value, line: line + 1, col: 1}
	case ast.ScalarNode:
		return &node{s: v.GetToken().Value, line: line, col: col}
	}
	return c.fail(line, col, "this kind of YAML value (%s) has no meaning in a rule file", a.Type())
}

func (c *converter) pair(n *node, v *ast.MappingValueNode, depth int) {
	k := c.node(v.Key, depth+1)
	if k.kind != scalarNode {
		c.fail(k.line, k.col, "a key must be a plain word")
		return
	}
	n.keys = append(n.keys, k)
	n.values = append(n.values, c.node(v.Value, depth+1))
	if n.line == 1 && n.col == 1 {
		n.line, n.col = k.line, k.col
	}
}
