// Package otlp receives traces and logs in OpenTelemetry's protocol, over gRPC and over HTTP in protobuf or JSON on one
// port, and reads out of them which tools an agent called.
//
// The few messages of the protocol are decoded here, from the wire format, because what is wanted is small and the
// sender isn't trusted: the generated types and the gRPC server would be sixty times the code. Numbers are those of
// opentelemetry-proto 1.11.
//
// How frameworks say "this span is a tool call" differs and changes: it is data, in dialects.yaml.
package otlp

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Span is one span.
type Span struct {
	Trace    string         `json:"trace"` // 32 hex digits
	ID       string         `json:"id"`    // 16 hex digits
	Parent   string         `json:"parent,omitempty"`
	Name     string         `json:"name"`
	Kind     int            `json:"kind,omitempty"` // 1 internal, 2 server, 3 client, 4 producer, 5 consumer
	Start    time.Time      `json:"start"`
	End      time.Time      `json:"end,omitzero"`
	Failed   bool           `json:"failed,omitempty"` // status ERROR
	Status   string         `json:"status,omitempty"` // the status's message
	Attrs    map[string]any `json:"attrs,omitempty"`
	Events   []Event        `json:"events,omitempty"`
	Resource map[string]any `json:"resource,omitempty"`
	Scope    string         `json:"scope,omitempty"`
}

// Event is something that happened within a span.
type Event struct {
	Name  string         `json:"name"`
	Time  time.Time      `json:"time,omitzero"`
	Attrs map[string]any `json:"attrs,omitempty"`
}

// Log is one log record.
type Log struct {
	Trace    string         `json:"trace,omitempty"`
	Span     string         `json:"span,omitempty"`
	Name     string         `json:"name,omitempty"` // of the event
	Time     time.Time      `json:"time,omitzero"`
	Body     any            `json:"body,omitempty"`
	Attrs    map[string]any `json:"attrs,omitempty"`
	Resource map[string]any `json:"resource,omitempty"`
}

// maxDepth bounds how deep attribute values may be nested.
const maxDepth = 32

var errDepth = errors.New("attribute values are nested too deep")

// field is one field of a protobuf message.
type field struct {
	num protowire.Number
	v   uint64 // varint, fixed32, fixed64
	b   []byte // length-delimited
}

// fields calls f with each field of a message.
func fields(b []byte, f func(field) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		x := field{num: num}
		switch typ {
		case protowire.VarintType:
			x.v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			x.v, n = protowire.ConsumeFixed64(b)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(b)
			x.v = uint64(v)
		case protowire.BytesType:
			x.b, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := f(x); err != nil {
			return err
		}
	}
	return nil
}

// DecodeTraces reads an ExportTraceServiceRequest in protobuf.
func DecodeTraces(b []byte) ([]Span, error) {
	var out []Span
	err := groups(b, func(resource map[string]any, scope string, f field) error {
		s := Span{Resource: resource, Scope: scope}
		if err := s.decode(f.b); err != nil {
			return err
		}
		out = append(out, s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading traces: %w", err)
	}
	return out, nil
}

// DecodeLogs reads an ExportLogsServiceRequest in protobuf.
func DecodeLogs(b []byte) ([]Log, error) {
	var out []Log
	err := groups(b, func(resource map[string]any, _ string, f field) error {
		l := Log{Resource: resource}
		if err := l.decode(f.b); err != nil {
			return err
		}
		out = append(out, l)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading logs: %w", err)
	}
	return out, nil
}

// groups walks the two levels that traces and logs share: resource, scope, then what item is called with.
func groups(b []byte, item func(resource map[string]any, scope string, f field) error) error {
	return fields(b, func(r field) error {
		if r.num != 1 {
			return nil
		}
		resource := map[string]any{}
		err := fields(r.b, func(f field) error {
			if f.num == 1 {
				return fields(f.b, func(a field) error {
					if a.num == 1 {
						return keyValue(resource, a.b, 0)
					}
					return nil
				})
			}
			return nil
		})
		if err != nil {
			return err
		}
		return fields(r.b, func(s field) error {
			if s.num != 2 {
				return nil
			}
			scope := ""
			return fields(s.b, func(f field) error {
				switch f.num {
				case 1:
					return fields(f.b, func(n field) error {
						if n.num == 1 {
							scope = string(n.b)
						}
						return nil
					})
				case 2:
					return item(resource, scope, f)
				}
				return nil
			})
		})
	})
}

func (s *Span) decode(b []byte) error {
	s.Attrs = map[string]any{}
	return fields(b, func(f field) error {
		switch f.num {
		case 1:
			s.Trace = hex.EncodeToString(f.b)
		case 2:
			s.ID = hex.EncodeToString(f.b)
		case 4:
			s.Parent = hex.EncodeToString(f.b)
		case 5:
			s.Name = string(f.b)
		case 6:
			s.Kind = int(f.v)
		case 7:
			s.Start = nano(f.v)
		case 8:
			s.End = nano(f.v)
		case 9:
			return keyValue(s.Attrs, f.b, 0)
		case 11:
			e := Event{Attrs: map[string]any{}}
			err := fields(f.b, func(g field) error {
				switch g.num {
				case 1:
					e.Time = nano(g.v)
				case 2:
					e.Name = string(g.b)
				case 3:
					return keyValue(e.Attrs, g.b, 0)
				}
				return nil
			})
			s.Events = append(s.Events, e)
			return err
		case 15:
			return fields(f.b, func(g field) error {
				switch g.num {
				case 2:
					s.Status = string(g.b)
				case 3:
					s.Failed = g.v == 2
				}
				return nil
			})
		}
		return nil
	})
}

func (l *Log) decode(b []byte) error {
	l.Attrs = map[string]any{}
	return fields(b, func(f field) error {
		var err error
		switch f.num {
		case 1:
			l.Time = nano(f.v)
		case 5:
			l.Body, err = anyValue(f.b, 0)
		case 6:
			return keyValue(l.Attrs, f.b, 0)
		case 9:
			l.Trace = hex.EncodeToString(f.b)
		case 10:
			l.Span = hex.EncodeToString(f.b)
		case 11:
			if l.Time.IsZero() {
				l.Time = nano(f.v)
			}
		case 12:
			l.Name = string(f.b)
		}
		return err
	})
}

func keyValue(m map[string]any, b []byte, depth int) error {
	var key string
	var val any
	err := fields(b, func(f field) error {
		var err error
		switch f.num {
		case 1:
			key = string(f.b)
		case 2:
			val, err = anyValue(f.b, depth)
		}
		return err
	})
	if err == nil && key != "" {
		m[key] = val
	}
	return err
}

func anyValue(b []byte, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	var out any
	err := fields(b, func(f field) error {
		switch f.num {
		case 1:
			out = string(f.b)
		case 2:
			out = f.v != 0
		case 3:
			out = int64(f.v)
		case 4:
			out = math.Float64frombits(f.v)
		case 5:
			list := []any{}
			err := fields(f.b, func(g field) error {
				v, err := anyValue(g.b, depth+1)
				list = append(list, v)
				return err
			})
			out = list
			return err
		case 6:
			m := map[string]any{}
			out = m
			return fields(f.b, func(g field) error { return keyValue(m, g.b, depth+1) })
		case 7:
			out = hex.EncodeToString(f.b)
		}
		return nil
	})
	return out, err
}

func nano(v uint64) time.Time {
	if v == 0 || v > math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(0, int64(v)).UTC()
}
