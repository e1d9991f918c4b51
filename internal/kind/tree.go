package kind

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds on what is read.
const (
	maxFile  = 1 << 20 // bytes of a kind, task or Dockerfile
	maxLines = 10_000  // of YAML and TOML: the parsers' time grows with the square of the lines
	maxNodes = 100_000 // values in a file once its aliases are followed
	maxDepth = 64      // of nesting
)

type nodeKind uint8

const (
	nullNode nodeKind = iota
	boolNode
	intNode
	floatNode
	textNode
	listNode
	mapNode
)

var nodeKindNames = [...]string{"nothing", "a truth value", "a whole number", "a number", "text", "a list", "a map"}

func (k nodeKind) String() string { return nodeKindNames[k] }

// source is a file that nodes came from.
type source struct {
	name string // for messages: as the caller named it
	dir  string // absolute directory that relative paths in it start from; empty for built-in kinds
	// confined: paths in the file mustn't lead out of dir. A task comes from a stranger.
	confined bool
}

// node is a value in a file, whatever the file's syntax, with its place.
type node struct {
	kind      nodeKind
	text      string // scalars: as written; text: the value
	items     []*node
	entries   []entry
	src       *source
	line, col int
}

type entry struct {
	key       string
	line, col int
	val       *node
}

func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	for _, e := range n.entries {
		if e.key == key {
			return e.val
		}
	}
	return nil
}

func (n *node) problem(format string, args ...any) Problem {
	return Problem{File: n.src.name, Line: n.line, Column: n.col, Msg: fmt.Sprintf(format, args...)}
}

// show is a scalar as it is put in messages.
func (n *node) show() string {
	switch n.kind {
	case listNode, mapNode, nullNode:
		return n.kind.String()
	case textNode:
		return quote(n.text)
	}
	return n.text
}

func quote(s string) string {
	if len(s) > 60 {
		s = s[:57] + "..."
	}
	return fmt.Sprintf("%q", s)
}

// parseYAML reads one document. The result is nil where the document is empty.
func parseYAML(data []byte, src *source) (n *node, probs Problems) {
	if probs := tooLarge(data, src); probs != nil {
		return nil, probs
	}
	defer func() {
		// The YAML parser has paniced on hostile input before. Its state is local to this call.
		if r := recover(); r != nil {
			n, probs = nil, Problems{{File: src.name, Msg: fmt.Sprintf("not valid YAML: the parser gave up: %v", r)}}
		}
	}()
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, Problems{yamlProblem(err, src)}
	}
	var body ast.Node
	for _, doc := range f.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			l, c := place(doc.Body.GetToken())
			return nil, Problems{{src.name, l, c, "a second document: a file holds one"}}
		}
		body = doc.Body
	}
	b := treeBuilder{src: src, anchors: map[string]ast.Node{}, open: map[string]bool{}}
	if body != nil {
		n = b.build(body, 0)
	}
	return n, b.probs
}

// tooLarge refuses what the parsers, which aren't ours, would take too long or too much stack for.
func tooLarge(data []byte, src *source) Problems {
	if len(data) > maxFile {
		return Problems{{File: src.name, Msg: fmt.Sprintf("the file has %d bytes: at most %d are read", len(data), maxFile)}}
	}
	if n := bytes.Count(data, []byte("\n")) + bytes.Count(data, []byte("\r")); n > maxLines {
		return Problems{{File: src.name, Msg: fmt.Sprintf("the file has %d lines: at most %d are read", n, maxLines)}}
	}
	if line, ok := tooDeep(data); ok {
		return Problems{{File: src.name, Line: line, Msg: fmt.Sprintf("nested deeper than %d levels", maxDepth)}}
	}
	return nil
}

// tooDeep guards the parser's recursion: brackets and indentation are the only ways to nest.
func tooDeep(data []byte) (line int, deep bool) {
	line = 1
	depth, indent, atStart, dashes := 0, 0, true, 0
	for i, c := range data {
		switch c {
		case '\n':
			line++
			indent, atStart, dashes = 0, true, 0
		case '[', '{':
			depth++
			atStart = false
		case ']', '}':
			depth = max(0, depth-1)
			atStart = false
		case ' ':
			if atStart {
				indent++
			}
		case '-', '?', ':':
			if atStart && i+1 < len(data) && (data[i+1] == ' ' || data[i+1] == '\n') {
				dashes++
			}
		default:
			atStart = false
		}
		if depth > 4*maxDepth || indent > 1<<14 || dashes > 4*maxDepth {
			return line, true
		}
	}
	return 0, false
}

func place(t *token.Token) (line, col int) {
	if t == nil || t.Position == nil {
		return 0, 0
	}
	return t.Position.Line, t.Position.Column
}

func yamlProblem(err error, src *source) Problem {
	var ye yaml.Error
	if errors.As(err, &ye) {
		l, c := place(ye.GetToken())
		return Problem{src.name, l, c, "not valid YAML: " + ye.GetMessage()}
	}
	return Problem{File: src.name, Msg: "not valid YAML: " + err.Error()}
}

// treeBuilder turns the parser's tree into ours, follows aliases and refuses what would grow without bound.
type treeBuilder struct {
	src     *source
	anchors map[string]ast.Node
	open    map[string]bool // aliases being followed
	count   int
	probs   Problems
}

func (b *treeBuilder) fail(at ast.Node, format string, args ...any) *node {
	l, c := place(at.GetToken())
	b.probs = append(b.probs, Problem{b.src.name, l, c, fmt.Sprintf(format, args...)})
	return &node{src: b.src, line: l, col: c}
}

func (b *treeBuilder) build(a ast.Node, depth int) *node {
	b.count++
	if b.count > maxNodes {
		if b.count == maxNodes+1 {
			b.fail(a, "more than %d values, aliases included", maxNodes)
		}
		return &node{src: b.src}
	}
	if depth > maxDepth {
		return b.fail(a, "nested deeper than %d levels", maxDepth)
	}
	l, c := place(a.GetToken())
	n := &node{src: b.src, line: l, col: c}
	switch v := a.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		n.kind, n.text = boolNode, fmt.Sprint(v.Value)
	case *ast.IntegerNode:
		n.kind, n.text = intNode, v.Token.Value
	case *ast.FloatNode:
		n.kind, n.text = floatNode, v.Token.Value
	case *ast.InfinityNode, *ast.NanNode:
		n.kind, n.text = floatNode, a.GetToken().Value
	case *ast.StringNode:
		n.kind, n.text = textNode, v.Value
	case *ast.LiteralNode:
		n.kind, n.text = textNode, v.Value.Value
	case *ast.SequenceNode:
		n.kind = listNode
		for _, item := range v.Values {
			n.items = append(n.items, b.build(item, depth+1))
		}
	case *ast.MappingNode:
		n.kind = mapNode
		if len(v.Values) > 0 && !v.IsFlowStyle {
			n.line, n.col = place(v.Values[0].Key.GetToken())
		}
		lines := make(map[string]int, len(v.Values))
		for _, mv := range v.Values {
			b.addEntry(n, mv, depth, lines)
		}
	case *ast.MappingValueNode:
		n.kind = mapNode
		n.line, n.col = place(v.Key.GetToken())
		b.addEntry(n, v, depth, map[string]int{})
	case *ast.AnchorNode:
		if name := v.Name.GetToken().Value; v.Value != nil {
			b.anchors[name] = v.Value
			return b.build(v.Value, depth)
		}
	case *ast.AliasNode:
		return b.alias(v, depth)
	case *ast.TagNode:
		return b.fail(a, "YAML tags (%s) mean nothing here", v.Start.Value)
	default:
		return b.fail(a, "%s can't stand here", strings.ToLower(a.Type().String()))
	}
	return n
}

func (b *treeBuilder) alias(v *ast.AliasNode, depth int) *node {
	name := v.Value.GetToken().Value
	target, ok := b.anchors[name]
	switch {
	case !ok:
		return b.fail(v, "alias *%s: there is no anchor &%s before it", name, name)
	case b.open[name]:
		return b.fail(v, "alias *%s stands inside its own anchor", name)
	}
	b.open[name] = true
	defer delete(b.open, name)
	return b.build(target, depth+1)
}

// addEntry adds a key and its value to a map; lines are those of the keys before it.
func (b *treeBuilder) addEntry(n *node, mv *ast.MappingValueNode, depth int, lines map[string]int) {
	if mv.Key.IsMergeKey() {
		b.fail(mv.Key, "merge keys (<<) aren't supported: use extends, or repeat the keys")
		return
	}
	var key string
	switch k := mv.Key.(type) {
	case *ast.StringNode:
		key = k.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		key = k.GetToken().Value
	default:
		b.fail(mv.Key, "a key is text, not %s", strings.ToLower(mv.Key.Type().String()))
		return
	}
	l, c := place(mv.Key.GetToken())
	if first, ok := lines[key]; ok {
		b.fail(mv.Key, "key %s is given twice, first on line %d", key, first)
		return
	}
	lines[key] = l
	val := &node{src: b.src, line: l, col: c}
	if mv.Value != nil {
		val = b.build(mv.Value, depth+1)
	}
	n.entries = append(n.entries, entry{key: key, line: l, col: c, val: val})
}
