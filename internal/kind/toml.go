package kind

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// parseTOML reads a document into nodes. A value inside an inline table or a list has the place of its key.
func parseTOML(data []byte, src *source) (n *node, probs Problems) {
	if probs := tooLarge(data, src); probs != nil {
		return nil, probs
	}
	defer func() {
		if r := recover(); r != nil { // a parser that isn't ours, on a stranger's bytes
			n, probs = nil, Problems{{File: src.name, Msg: fmt.Sprintf("not valid TOML: the parser gave up: %v", r)}}
		}
	}()
	var m map[string]any
	if err := toml.Unmarshal(data, &m); err != nil {
		p := Problem{File: src.name, Msg: "not valid TOML: " + strings.TrimPrefix(err.Error(), "toml: ")}
		var de *toml.DecodeError
		if errors.As(err, &de) {
			p.Line, p.Column = de.Position()
		}
		return nil, Problems{p}
	}
	t := tomlTree{src: src, places: tomlPlaces(data)}
	return t.build(m, nil, [2]int{1, 1}, 0), t.probs
}

type tomlTree struct {
	src    *source
	places map[string][2]int
	probs  Problems
}

const pathSep = "\x00"

// tomlPlaces finds the line and column of every key that is written on its own.
func tomlPlaces(data []byte) map[string][2]int {
	places := map[string][2]int{}
	counts := map[string]int{}
	var table []string
	var p unstable.Parser
	p.Reset(data)
	note := func(at []string, it unstable.Iterator) []string {
		for it.Next() {
			if len(at) > maxDepth {
				break // build refuses it
			}
			k := it.Node()
			at = append(at, string(k.Data))
			key := strings.Join(at, pathSep)
			if c, ok := counts[key]; ok {
				at = append(at, strconv.Itoa(c-1))
			}
			if _, ok := places[key]; !ok {
				pos := p.Shape(k.Raw).Start
				places[key] = [2]int{pos.Line, pos.Column}
			}
		}
		return at
	}
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table:
			table = note(nil, e.Key())
		case unstable.ArrayTable:
			at := note(nil, e.Key())
			var names []string
			for it := e.Key(); it.Next(); {
				names = append(names, string(it.Node().Data))
			}
			full := at
			if _, err := strconv.Atoi(at[len(at)-1]); err == nil && len(at) > len(names) {
				full = at[:len(at)-1] // the index of the element before
			}
			key := strings.Join(full, pathSep)
			counts[key]++
			table = append(full[:len(full):len(full)], strconv.Itoa(counts[key]-1))
			places[strings.Join(table, pathSep)] = places[key]
		case unstable.KeyValue:
			note(table[:len(table):len(table)], e.Key())
		}
	}
	return places
}

func (t *tomlTree) build(v any, path []string, at [2]int, depth int) *node {
	if pl, ok := t.places[strings.Join(path, pathSep)]; ok {
		at = pl
	}
	n := &node{src: t.src, line: at[0], col: at[1]}
	if depth > maxDepth {
		t.probs = append(t.probs, n.problem("nested deeper than %d levels", maxDepth))
		return n
	}
	switch x := v.(type) {
	case map[string]any:
		n.kind = mapNode
		for _, k := range slices.Sorted(maps.Keys(x)) {
			val := t.build(x[k], append(path[:len(path):len(path)], k), at, depth+1)
			n.entries = append(n.entries, entry{key: k, line: val.line, col: val.col, val: val})
		}
	case []any:
		n.kind = listNode
		for i, it := range x {
			n.items = append(n.items, t.build(it, append(path[:len(path):len(path)], strconv.Itoa(i)), at, depth+1))
		}
	case string:
		n.kind, n.text = textNode, x
	case bool:
		n.kind, n.text = boolNode, strconv.FormatBool(x)
	case int64:
		n.kind, n.text = intNode, strconv.FormatInt(x, 10)
	case float64:
		n.kind, n.text = floatNode, strconv.FormatFloat(x, 'g', -1, 64)
	default: // dates and times
		n.kind, n.text = textNode, fmt.Sprint(x)
	}
	return n
}
