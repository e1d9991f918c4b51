package kind

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

//go:embed builtin/*.yaml
var builtinFiles embed.FS

const (
	baseHost    = "host"
	rootKind    = "default" // the built-in kind that every other one ends at
	maxExtends  = 16
	builtinMark = "builtin:"
)

// Builtins lists the built-in kinds by name.
func Builtins() []string {
	es, err := builtinFiles.ReadDir("builtin")
	if err != nil { // the files are part of the program
		panic(err)
	}
	var names []string
	for _, e := range es {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// BuiltinSource returns the YAML of a built-in kind.
func BuiltinSource(name string) ([]byte, error) {
	b, err := builtinFiles.ReadFile(path.Join("builtin", name+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("no built-in kind %q: there are %s", name, strings.Join(Builtins(), ", "))
	}
	return b, nil
}

// Load reads a kind by the name of a built-in one, or by the path of a file, and all that it extends. Faults in
// the files are [Problems].
func Load(ref string) (*Kind, error) { return loadKind(ref, "") }

// loadKind resolves ref as written in a file in dir (empty: the command line).
func loadKind(ref, dir string) (*Kind, error) {
	if len(ref) == 0 {
		ref = rootKind
	}
	l := &kindLoader{}
	tree := l.load(ref, dir, nil, nil)
	if err := l.d.probs.Err(); err != nil {
		return nil, err
	}
	if l.err != nil {
		return nil, l.err
	}
	k := &Kind{}
	d := decoder{}
	d.decode(tree, reflect.ValueOf(k).Elem(), field{})
	if err := d.probs.Err(); err != nil {
		return nil, err
	}
	k.sources, k.tree = l.sources, tree
	return k, nil
}

// Sources are the files that made the kind, base first.
func (k *Kind) Sources() []FileDigest { return k.sources }

// Problem is a fault that shows only to whoever knows more than this package, with the file and line where the value
// stands that the path leads to: keys, and the numbers of list items. Where it leads nowhere, as far as it leads.
func (k *Kind) Problem(msg string, path ...string) Problem {
	n := k.tree
	for _, key := range path {
		var next *node
		if i, err := strconv.Atoi(key); err == nil && n.kind == listNode && i >= 0 && i < len(n.items) {
			next = n.items[i]
		} else if n.kind == mapNode {
			next = n.get(key)
		}
		if next == nil {
			break
		}
		n = next
	}
	return n.problem("%s: %s", strings.Join(path, "."), msg)
}

type kindLoader struct {
	d       decoder
	sources []FileDigest
	err     error
}

// load reads ref and what it extends, checks each file by itself, and returns the merged tree.
func (l *kindLoader) load(ref, dir string, from *node, chain []string) *node {
	data, src, id, err := openKind(ref, dir)
	if err != nil {
		if from != nil {
			l.d.fail(from, "extends: %v", err)
		} else {
			l.err = err
		}
		return nil
	}
	for _, c := range chain {
		if c == id {
			l.d.fail(from, "extends: %s extends itself, by way of %s", ref, strings.Join(chain, ", "))
			return nil
		}
	}
	if len(chain) >= maxExtends {
		l.d.fail(from, "extends: more than %d kinds in a row", maxExtends)
		return nil
	}
	tree, probs := parseYAML(data, src)
	l.d.probs = append(l.d.probs, probs...)
	if len(probs) > 0 {
		return nil
	}
	if tree == nil {
		l.d.probs = append(l.d.probs, Problem{File: src.name, Line: 1, Msg: "the file is empty: want at least name"})
		return nil
	}
	l.d.decode(tree, reflect.ValueOf(&Kind{}).Elem(), field{})
	sum := sha256.Sum256(data)
	self := FileDigest{Path: id, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data))}
	if id == builtinMark+rootKind {
		l.sources = append(l.sources, self)
		return tree
	}
	baseRef, at := rootKind, tree
	if e := tree.get("extends"); e != nil && e.kind == textNode && e.text != "" {
		baseRef, at = e.text, e
	}
	base := l.load(baseRef, src.dir, at, append(chain, id))
	l.sources = append(l.sources, self)
	if base == nil || tree.kind != mapNode {
		return tree
	}
	return mergeKinds(base, tree)
}

// openKind finds a kind's bytes. id names the file uniquely.
func openKind(ref, dir string) (data []byte, src *source, id string, err error) {
	isPath := strings.ContainsAny(ref, "/\\") || strings.HasSuffix(ref, ".yaml") || strings.HasSuffix(ref, ".yml")
	if !isPath {
		data, err := BuiltinSource(ref)
		if err == nil {
			return data, &source{name: builtinMark + ref}, builtinMark + ref, nil
		}
		msg := fmt.Sprintf("no kind %s: built-in kinds are %s; a file is written with its path, as ./%s.yaml", quote(ref), strings.Join(Builtins(), ", "), ref)
		if near := Nearest(ref, Builtins()); near != "" {
			msg = fmt.Sprintf("no kind %s: did you mean %s?", quote(ref), near)
		}
		return nil, nil, "", errors.New(msg)
	}
	p := ref
	if !filepath.IsAbs(p) && dir != "" {
		p = filepath.Join(dir, p)
	}
	abs, err := filepath.Abs(p)
	if err != nil {
		return nil, nil, "", fmt.Errorf("finding kind file %s: %w", ref, err)
	}
	data, err = readFile(abs, maxFile)
	if err != nil {
		return nil, nil, "", fmt.Errorf("reading kind file %s: %w%s", ref, cause(err), beside(p))
	}
	return data, &source{name: filepath.Clean(p), dir: filepath.Dir(abs)}, abs, nil
}

// readFile reads a regular file of at most limit bytes. It doesn't block on a pipe or device.
func readFile(name string, limit int64) ([]byte, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("not a regular file")}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("it has more than %d bytes", limit)}
	}
	return data, nil
}

// mergeKinds lays a kind over the one that it extends. Name, extends and description are each kind's own.
func mergeKinds(base, over *node) *node {
	own := &node{kind: mapNode, src: base.src, line: base.line, col: base.col}
	for _, e := range base.entries {
		switch e.key {
		case "name", "extends", "description":
		default:
			own.entries = append(own.entries, e)
		}
	}
	return merge(own, over)
}

// merge lays over on base: maps key by key, everything else replaces; +key adds to a list; nothing (null) takes a
// key away. Nodes are not changed: they may be shared.
func merge(base, over *node) *node {
	if base == nil || base.kind != mapNode || over.kind != mapNode {
		return over
	}
	out := &node{kind: mapNode, src: over.src, line: over.line, col: over.col}
	out.entries = append(out.entries, base.entries...)
	index := make(map[string]int, len(base.entries))
	for i, e := range base.entries {
		index[e.key] = i
	}
	for _, e := range over.entries {
		key, appends := strings.CutPrefix(e.key, "+")
		i, ok := index[key]
		if !ok {
			i = len(out.entries)
			index[key] = i
			out.entries = append(out.entries, entry{key: key, line: e.line, col: e.col, val: &node{src: e.val.src, line: e.line, col: e.col}})
		}
		at := &out.entries[i]
		old := at.val
		at.line, at.col = e.line, e.col
		switch {
		case appends && old.kind == listNode && e.val.kind == listNode:
			items := append(append([]*node(nil), old.items...), e.val.items...)
			at.val = &node{kind: listNode, items: items, src: e.val.src, line: e.val.line, col: e.val.col}
		default:
			at.val = merge(old, e.val)
		}
	}
	return out
}

// YAML writes the kind as it is after merging, for people. Paths outside are absolute in it.
func (k *Kind) YAML() ([]byte, error) {
	js, err := json.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("writing kind %s: %w", k.Name, err)
	}
	out, err := yaml.JSONToYAML(js)
	if err != nil {
		return nil, fmt.Errorf("writing kind %s: %w", k.Name, err)
	}
	return out, nil
}
