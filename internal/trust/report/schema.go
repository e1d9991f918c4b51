package report

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
)

// JSONSchema returns the JSON Schema (draft 2020-12) of a report, made from the types that write it.
func JSONSchema() []byte {
	b := schemaBuilder{defs: map[string]any{}}
	root := b.object(reflect.TypeFor[Report]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$id"] = "https://bodycam.dev/schema/trust.json"
	root["title"] = "bodycam trust audit"
	root["description"] = "Report of a trust audit: see docs/TRUST.md."
	root["$defs"] = b.defs
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil { // maps and strings only
		panic(err)
	}
	return append(out, '\n')
}

type schemaBuilder struct{ defs map[string]any }

func (b *schemaBuilder) of(t reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return map[string]any{}
	case reflect.TypeFor[bodycam.Severity]():
		return map[string]any{"enum": []string{"info", "low", "medium", "high", "critical"}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.of(t.Elem())
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float64, reflect.Float32:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": []string{"array", "null"}, "items": b.of(t.Elem())}
	case reflect.Array:
		return map[string]any{"type": "array", "items": b.of(t.Elem()), "minItems": t.Len(), "maxItems": t.Len()}
	case reflect.Map:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": b.of(t.Elem())}
	case reflect.Struct:
		if _, ok := b.defs[t.Name()]; !ok {
			b.defs[t.Name()] = true // it may refer to itself
			b.defs[t.Name()] = b.object(t)
		}
		return map[string]any{"$ref": "#/$defs/" + t.Name()}
	}
	return map[string]any{"type": "integer"}
}

// object describes a struct: what isn't left out where empty is required.
func (b *schemaBuilder) object(t reflect.Type) map[string]any {
	props, required := map[string]any{}, []string{}
	b.fields(t, props, &required)
	return map[string]any{"type": "object", "properties": props, "required": required, "additionalProperties": false}
}

func (b *schemaBuilder) fields(t reflect.Type, props map[string]any, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			e := f.Type
			if e.Kind() == reflect.Pointer {
				e = e.Elem()
			}
			b.fields(e, props, required)
			continue
		}
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || name == "" {
			continue
		}
		props[name] = b.of(f.Type)
		if !strings.Contains(opts, "omit") {
			*required = append(*required, name)
		}
	}
}
