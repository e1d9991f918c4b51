package otlp

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// DecodeTracesJSON reads traces in JSON: the form of the protocol, and that of MLflow (names in snake case, ids in
// base64, a bare list of spans).
func DecodeTracesJSON(b []byte) ([]Span, error) {
	v, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("reading traces: %w", err)
	}
	var out []Span
	each(v, "resourceSpans", "scopeSpans", "spans", func(resource map[string]any, scope string, m map[string]any) {
		out = append(out, spanOf(m, resource, scope))
	})
	return out, nil
}

// DecodeLogsJSON reads logs in JSON.
func DecodeLogsJSON(b []byte) ([]Log, error) {
	v, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("reading logs: %w", err)
	}
	var out []Log
	each(v, "resourceLogs", "scopeLogs", "logRecords", func(resource map[string]any, _ string, m map[string]any) {
		l := Log{Trace: id(get(m, "traceId"), 16), Span: id(get(m, "spanId"), 8), Name: text(get(m, "eventName")), Resource: resource,
			Time: timeOf(get(m, "timeUnixNano")), Attrs: attrs(get(m, "attributes"), 0)}
		if l.Time.IsZero() {
			l.Time = timeOf(get(m, "observedTimeUnixNano"))
		}
		if b, ok := get(m, "body").(map[string]any); ok {
			l.Body = value(b, 0)
		}
		out = append(out, l)
	})
	return out, nil
}

// SpansJSON reads a list of spans as MLflow gives it within a trace.
func SpansJSON(b []byte) ([]Span, error) {
	v, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("reading spans: %w", err)
	}
	var out []Span
	for _, m := range objects(v) {
		out = append(out, spanOf(m, nil, ""))
	}
	return out, nil
}

func parse(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	return v, d.Decode(&v)
}

func each(v any, top, middle, leaf string, f func(map[string]any, string, map[string]any)) {
	m, ok := v.(map[string]any)
	if !ok {
		return
	}
	for _, r := range objects(get(m, top)) {
		resource := map[string]any{}
		if ro, ok := get(r, "resource").(map[string]any); ok {
			resource = attrs(get(ro, "attributes"), 0)
		}
		for _, s := range objects(get(r, middle)) {
			scope := ""
			if so, ok := get(s, "scope").(map[string]any); ok {
				scope = text(get(so, "name"))
			}
			for _, x := range objects(get(s, leaf)) {
				f(resource, scope, x)
			}
		}
	}
}

func spanOf(m, resource map[string]any, scope string) Span {
	s := Span{Trace: id(get(m, "traceId"), 16), ID: id(get(m, "spanId"), 8), Parent: id(get(m, "parentSpanId"), 8), Name: text(get(m, "name")),
		Start: timeOf(get(m, "startTimeUnixNano")), End: timeOf(get(m, "endTimeUnixNano")), Attrs: attrs(get(m, "attributes"), 0), Resource: resource, Scope: scope}
	switch k := get(m, "kind").(type) {
	case json.Number:
		n, err := k.Int64()
		if err == nil && n >= 0 && n <= 5 {
			s.Kind = int(n)
		}
	case string:
		for i, name := range []string{"UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"} {
			if strings.HasSuffix(strings.ToUpper(k), name) {
				s.Kind = i
			}
		}
	}
	if st, ok := get(m, "status").(map[string]any); ok {
		s.Status = text(get(st, "message"))
		switch c := get(st, "code").(type) {
		case json.Number:
			s.Failed = c.String() == "2"
		case string:
			s.Failed = strings.HasSuffix(strings.ToUpper(c), "ERROR")
		}
	}
	for _, e := range objects(get(m, "events")) {
		s.Events = append(s.Events, Event{Name: text(get(e, "name")), Time: timeOf(get(e, "timeUnixNano")), Attrs: attrs(get(e, "attributes"), 0)})
	}
	return s
}

// get reads a member by its name in camel or snake case.
func get(m map[string]any, name string) any {
	if v, ok := m[name]; ok {
		return v
	}
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return m[b.String()]
}

func objects(v any) []map[string]any {
	list, _ := v.([]any)
	var out []map[string]any
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func text(v any) string { s, _ := v.(string); return s }

// id reads an identifier of n bytes in hex or base64, as lower-case hex. All zeros is none.
func id(v any, n int) string {
	s := text(v)
	s = strings.TrimPrefix(strings.TrimPrefix(s, "tr-"), "0x")
	if len(s) != 2*n {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil || len(b) != n {
			return ""
		}
		s = hex.EncodeToString(b)
	}
	s = strings.ToLower(s)
	if strings.Trim(s, "0") == "" {
		return ""
	}
	if _, err := hex.DecodeString(s); err != nil {
		return ""
	}
	return s
}

func timeOf(v any) time.Time {
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case json.Number:
		s = v.String()
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return nano(n)
}

// attrs reads attributes as a list of key and value, or as MLflow's plain object.
func attrs(v any, depth int) map[string]any {
	out := map[string]any{}
	switch v := v.(type) {
	case []any:
		for _, kv := range objects(v) {
			k := text(kv["key"])
			if av, ok := kv["value"].(map[string]any); ok && k != "" {
				out[k] = value(av, depth)
			}
		}
	case map[string]any:
		for k, e := range v {
			out[k] = plain(e)
		}
	}
	return out
}

func value(m map[string]any, depth int) any {
	if depth > maxDepth {
		return nil
	}
	for _, name := range []string{"stringValue", "boolValue", "bytesValue"} {
		if v := get(m, name); v != nil {
			return v
		}
	}
	switch v := get(m, "intValue").(type) {
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
	}
	if v := get(m, "doubleValue"); v != nil {
		return plain(v)
	}
	if a, ok := get(m, "arrayValue").(map[string]any); ok {
		list := []any{}
		for _, e := range objects(a["values"]) {
			list = append(list, value(e, depth+1))
		}
		return list
	}
	if kv, ok := get(m, "kvlistValue").(map[string]any); ok {
		return attrs(kv["values"], depth+1)
	}
	return nil
}

func plain(v any) any {
	if n, ok := v.(json.Number); ok {
		if i, err := n.Int64(); err == nil {
			return i
		}
		if f, err := n.Float64(); err == nil && !math.IsInf(f, 0) {
			return f
		}
		return n.String()
	}
	return v
}
