package export

import (
	"encoding/hex"
	"io"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// OpenTelemetry spans in OTLP's JSON, with the attributes of the GenAI conventions: one span invoke_agent for the run,
// one execute_tool for every action. Trace and span ids follow from the ledger.

type otlpTraces struct {
	ResourceSpans []otlpResource `json:"resourceSpans"`
}

type otlpResource struct {
	Resource   otlpAttributes `json:"resource"`
	ScopeSpans []otlpScope    `json:"scopeSpans"`
}

type otlpAttributes struct {
	Attributes []otlpKey `json:"attributes"`
}

type otlpScope struct {
	Scope struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	} `json:"scope"`
	Spans []otlpSpan `json:"spans"`
}

type otlpSpan struct {
	TraceID    string     `json:"traceId"`
	SpanID     string     `json:"spanId"`
	ParentID   string     `json:"parentSpanId,omitempty"`
	Name       string     `json:"name"`
	Kind       int        `json:"kind"` // 1: internal
	Start      string     `json:"startTimeUnixNano"`
	End        string     `json:"endTimeUnixNano"`
	Attributes []otlpKey  `json:"attributes"`
	Status     otlpStatus `json:"status"`
}

type otlpStatus struct {
	Code    int    `json:"code,omitempty"` // 2: error
	Message string `json:"message,omitempty"`
}

type otlpKey struct {
	Key   string         `json:"key"`
	Value map[string]any `json:"value"`
}

func text(key, v string) otlpKey {
	return otlpKey{key, map[string]any{"stringValue": strings.ToValidUTF8(v, "\uFFFD")}}
}
func whole(key string, v uint64) otlpKey {
	return otlpKey{key, map[string]any{"intValue": strconv.FormatUint(v, 10)}}
}
func truth(key string, v bool) otlpKey { return otlpKey{key, map[string]any{"boolValue": v}} }

// OTel writes the spans.
func OTel(w io.Writer, s *Source) error {
	name, version := s.agent()
	trace := hex.EncodeToString(s.Log[:16])
	root := otlpSpan{TraceID: trace, SpanID: hex.EncodeToString(s.Log[16:24]), Name: "invoke_agent " + name, Kind: 1,
		Start: nano(s.Info.Started.UnixNano()), End: nano(max(s.Info.Started.UnixNano(), s.Info.Ended.UnixNano())),
		Attributes: []otlpKey{text("gen_ai.operation.name", "invoke_agent"), text("gen_ai.agent.name", name), text("gen_ai.agent.version", version),
			text("gen_ai.conversation.id", s.Info.ID)}}
	if s.Info.Agent.Model != "" {
		root.Attributes = append(root.Attributes, text("gen_ai.request.model", s.Info.Agent.Model))
	}
	root.Attributes = append(root.Attributes, text("bodycam.ledger.id", s.logID()), text("bodycam.ledger.head", s.Head), truth("bodycam.complete", s.Info.Complete.Complete))
	if s.Info.Error != "" {
		root.Status = otlpStatus{2, bodycam.Printable(s.Info.Error)}
	}
	scope := otlpScope{Spans: []otlpSpan{root}}
	scope.Scope.Name, scope.Scope.Version = monitorType, s.Info.Tool.Version
	for i := range s.Actions {
		scope.Spans = append(scope.Spans, s.Actions[i].span(trace, root.SpanID))
	}
	res := otlpResource{ScopeSpans: []otlpScope{scope}}
	res.Resource.Attributes = []otlpKey{text("service.name", name), text("service.version", version)}
	return writeJSON(w, &otlpTraces{[]otlpResource{res}})
}

func nano(n int64) string { return strconv.FormatInt(max(n, 0), 10) }

func (a *Action) span(trace, parent string) otlpSpan {
	from, to := a.times()
	s := otlpSpan{TraceID: trace, SpanID: hex.EncodeToString(a.Record.Digest[:8]), ParentID: parent, Name: "execute_tool " + a.Intent.Tool, Kind: 1, Start: nano(from), End: nano(to)}
	s.Attributes = []otlpKey{text("gen_ai.operation.name", "execute_tool"), text("gen_ai.tool.name", a.Intent.Tool),
		text("gen_ai.tool.call.id", hex.EncodeToString(a.Record.ID[:]))}
	if a.Intent.Args != nil {
		s.Attributes = append(s.Attributes, text("gen_ai.tool.call.arguments", string(a.Intent.Args)))
	}
	if a.Effects.Return != "" {
		s.Attributes = append(s.Attributes, text("gen_ai.tool.call.result", a.Effects.Return))
	}
	s.Attributes = append(s.Attributes, whole("bodycam.record", a.Record.Seq), text("bodycam.record.digest", hex.EncodeToString(a.Record.Digest[:])))
	if a.Context.Environment != "" {
		s.Attributes = append(s.Attributes, text("bodycam.environment", a.Context.Environment))
	}
	if failed, why := a.failed(); failed {
		s.Status = otlpStatus{2, bodycam.Printable(why)}
		s.Attributes = append(s.Attributes, text("error.type", bodycam.Printable(why)))
	}
	return s
}
