package kind

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

const schemaID = "https://bodycam.dev/schema/kind.json"

// Schema returns the JSON Schema (draft 2020-12) of a kind file, made from the types that read it.
func Schema() []byte {
	return schemaOf(reflect.TypeFor[Kind](), schemaID, "bodycam kind", "Execution kind of bodycam: see docs/KINDS.md.")
}

// TaskSchema returns the JSON Schema of a task.yaml.
func TaskSchema() []byte {
	return schemaOf(reflect.TypeFor[taskFile](), "https://bodycam.dev/schema/task.json", "bodycam task", "Task in bodycam's own form: see docs/KINDS.md.")
}

func schemaOf(t reflect.Type, id, title, description string) []byte {
	b := schemaBuilder{defs: map[string]any{}}
	b.ref(t)
	root := b.defs[t.Name()].(map[string]any)
	delete(b.defs, t.Name())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$id"] = id
	root["title"] = title
	root["description"] = description
	root["$defs"] = b.defs
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil { // maps and strings only
		panic(err)
	}
	return append(out, '\n')
}

type schemaBuilder struct{ defs map[string]any }

func (b *schemaBuilder) ref(t reflect.Type) map[string]any {
	if _, ok := b.defs[t.Name()]; !ok {
		b.defs[t.Name()] = nil // a type may hold itself
		b.defs[t.Name()] = b.object(t)
	}
	return map[string]any{"$ref": "#/$defs/" + t.Name()}
}

func (b *schemaBuilder) object(t reflect.Type) map[string]any {
	props := map[string]any{}
	var required []string
	for _, f := range fieldsOf(t) {
		ft := t.Field(f.index).Type
		p := b.value(ft, f)
		if !f.required {
			p = nullable(p)
		}
		p["description"] = f.doc
		props[f.key] = p
		if ft.Kind() == reflect.Slice && ft != rawType {
			add := b.value(ft, f)
			add["description"] = "Added to the inherited list. " + f.doc
			props["+"+f.key] = add
		}
		if f.required {
			required = append(required, f.key)
		}
	}
	o := map[string]any{"type": "object", "properties": props, "additionalProperties": false}
	if required != nil {
		o["required"] = required
	}
	if t == reflect.TypeFor[Step]() {
		o["oneOf"] = []any{map[string]any{"required": []string{"run"}}, map[string]any{"required": []string{"copy"}}}
	}
	return o
}

// nullable lets a key be given as nothing, which takes an inherited value away.
func nullable(p map[string]any) map[string]any {
	return map[string]any{"anyOf": []any{p, map[string]any{"type": "null"}}}
}

const (
	durationPattern = `^\s*(\d+(\.\d*)?|\.\d+|\d+d)?((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))*\s*$`
	sizePattern     = `^\s*(\d+(\.\d*)?|\.\d+)\s*([kKmMgGtT]([iI]?[bB])?|[bB])?\s*$`
)

func anyOf(of ...map[string]any) map[string]any {
	list := make([]any, len(of))
	for i, o := range of {
		list[i] = o
	}
	return map[string]any{"anyOf": list}
}

func (b *schemaBuilder) value(t reflect.Type, f field) map[string]any {
	text := map[string]any{"type": "string", "minLength": 1}
	switch t {
	case reflect.TypeFor[Duration]():
		return anyOf(map[string]any{"type": "number", "minimum": 0}, map[string]any{"type": "string", "pattern": durationPattern})
	case reflect.TypeFor[Size]():
		return anyOf(map[string]any{"type": "number", "minimum": 0}, map[string]any{"type": "string", "pattern": sizePattern})
	case reflect.TypeFor[Date]():
		return map[string]any{"type": "string", "pattern": `^\d{4}-\d{2}-\d{2}$`}
	case reflect.TypeFor[HostPath](), reflect.TypeFor[BasePath]():
		return text
	case reflect.TypeFor[Command]():
		scalar := map[string]any{"type": []string{"string", "number", "boolean"}}
		return anyOf(text, map[string]any{"type": "array", "items": scalar, "minItems": 1})
	case reflect.TypeFor[ExitSet]():
		code := map[string]any{"type": "integer", "minimum": 0, "maximum": 255}
		return anyOf(map[string]any{"const": "any"}, code, map[string]any{"type": "array", "items": code})
	case reflect.TypeFor[Analysis](), reflect.TypeFor[taskSkill]():
		return anyOf(text, b.ref(t))
	case rawType:
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.String:
		return textSchema(f)
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		p := map[string]any{"type": "integer"}
		if f.check == "port" {
			p["minimum"], p["maximum"] = 1, 65535
		}
		if f.check == "count" {
			p["minimum"] = 0
		}
		return p
	case reflect.Float64:
		p := map[string]any{"type": "number", "minimum": 0}
		if f.check == "cpus" {
			p["maximum"] = maxCPUs
		}
		return p
	case reflect.Slice:
		return map[string]any{"type": "array", "items": b.value(t.Elem(), f)}
	case reflect.Map:
		el := b.value(t.Elem(), f)
		if t.Elem() != rawType {
			el = nullable(el)
		}
		return map[string]any{"type": "object", "additionalProperties": el}
	case reflect.Struct:
		return b.ref(t)
	case reflect.Pointer:
		return b.value(t.Elem(), f)
	}
	panic("kind: type without a schema: " + t.String()) // a fault in this package, found by its tests
}

func textSchema(f field) map[string]any {
	p := map[string]any{"type": "string"}
	if f.number {
		p["type"] = []string{"string", "number"}
	}
	if len(f.enum) > 0 {
		p = map[string]any{"enum": f.enum}
	}
	return p
}

var allPaths = sync.OnceValue(func() map[string][]string {
	m := map[string][]string{}
	var walk func(t reflect.Type, path []string)
	walk = func(t reflect.Type, path []string) {
		for t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || len(path) > 3 {
			return
		}
		for _, f := range fieldsOf(t) {
			p := append(path[:len(path):len(path)], f.key)
			m[f.key] = append(m[f.key], strings.Join(p, "."))
			walk(t.Field(f.index).Type, p)
		}
	}
	walk(reflect.TypeFor[Kind](), nil)
	return m
})

// keyPaths finds where in a kind file a key of that name may stand; at most three places.
func keyPaths(key string) []string {
	ps := allPaths()[key]
	if len(ps) > 3 {
		return nil
	}
	return ps
}
