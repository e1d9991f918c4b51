package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

func kv(k, v string) *common.KeyValue {
	return &common.KeyValue{Key: k, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: v}}}
}

func request() *coltrace.ExportTraceServiceRequest {
	trace := bytes.Repeat([]byte{0xab}, 16)
	now := uint64(time.Now().UnixNano())
	span := func(id, parent byte, name string, a ...*common.KeyValue) *tracepb.Span {
		s := &tracepb.Span{TraceId: trace, SpanId: bytes.Repeat([]byte{id}, 8), Name: name, Kind: 1, StartTimeUnixNano: now, EndTimeUnixNano: now + 1e6, Attributes: a}
		if parent != 0 {
			s.ParentSpanId = bytes.Repeat([]byte{parent}, 8)
		}
		return s
	}
	list := &common.KeyValue{Key: "l", Value: &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: &common.ArrayValue{Values: []*common.AnyValue{
		{Value: &common.AnyValue_IntValue{IntValue: -3}}, {Value: &common.AnyValue_BoolValue{BoolValue: true}}, {Value: &common.AnyValue_DoubleValue{DoubleValue: .5}},
		{Value: &common.AnyValue_KvlistValue{KvlistValue: &common.KeyValueList{Values: []*common.KeyValue{kv("x", "y")}}}}}}}}}
	bad := span(4, 1, "execute_tool search", kv("gen_ai.operation.name", "execute_tool"), kv("gen_ai.tool.name", "search"), kv("gen_ai.tool.call.id", "c1"))
	bad.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "boom"}
	return &coltrace.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{kv("service.name", "weather")}},
		ScopeSpans: []*tracepb.ScopeSpans{{Scope: &common.InstrumentationScope{Name: "test"}, Spans: []*tracepb.Span{
			span(1, 0, "agent", kv("gen_ai.operation.name", "invoke_agent"), kv("gen_ai.conversation.id", "s-1"), kv("input.value", "what is the weather"), list,
				kv("gen_ai.tool.definitions", `[{"type":"function","function":{"name":"get_weather","description":"d","parameters":{"type":"object"}}},{"name":"run_shell","input_schema":{}}]`)),
			span(2, 1, "weather", kv("mlflow.spanType", `"TOOL"`), kv("tool.name", "get_weather")),
			span(3, 2, "weather inner", kv("openinference.span.kind", "TOOL"), kv("tool.name", "get_weather")),
			bad,
			span(5, 1, "execute_tool search", kv("gen_ai.operation.name", "execute_tool"), kv("gen_ai.tool.name", "search"), kv("gen_ai.tool.call.id", "c1")),
			span(6, 1, "other", kv("gen_ai.operation.name", "invoke_agent"), kv("gen_ai.agent.name", "helper")),
			span(7, 1, "chat", kv("gen_ai.operation.name", "chat"), kv("gen_ai.tool.name", "not a call")),
		}}}}}}
}

type received struct {
	sync.Mutex
	spans []Span
	logs  []Log
}

func (r *received) sink(s []Span, l []Log) {
	r.Lock()
	defer r.Unlock()
	r.spans, r.logs = append(r.spans, s...), append(r.logs, l...)
}

func check(t *testing.T, r *received) {
	t.Helper()
	r.Lock()
	defer r.Unlock()
	if len(r.spans) != 7 {
		t.Fatalf("%d spans", len(r.spans))
	}
	s := r.spans[0]
	got, _ := json.Marshal(s.Attrs["l"])
	if s.Resource["service.name"] != "weather" || s.Scope != "test" || string(got) != `[-3,true,0.5,{"x":"y"}]` || s.Start.IsZero() {
		t.Errorf("span: %+v, l = %s", s, got)
	}
	a := Read(r.spans, nil)
	type c struct {
		tool          string
		failed, agent bool
	}
	want := []c{{"get_weather", false, false}, {"search", true, false}, {"helper", false, true}}
	if len(a.Calls) != len(want) {
		t.Fatalf("calls: %+v", a.Calls)
	}
	for i, w := range want {
		if got := (c{a.Calls[i].Tool, a.Calls[i].Failed, a.Calls[i].Agent}); got != w {
			t.Errorf("call %d: got %+v, want %+v", i, got, w)
		}
	}
	if !HasRoot(r.spans, "") || HasRoot(r.spans[1:], "") || !HasRoot(r.spans[1:2], r.spans[1].Parent) || len(a.Sessions) != 1 || a.Sessions[0] != "s-1" || len(a.Offered) != 2 || a.Offered[1].Name != "run_shell" || len(a.Texts) != 1 {
		t.Errorf("account: %+v", a)
	}
}

func TestReceiver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var r received
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, r.sink) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	raw, err := proto.Marshal(request())
	if err != nil {
		t.Fatal(err)
	}
	js, err := protojson.Marshal(request())
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(raw)
	z.Close()
	post := func(t *testing.T, kind, enc string, body []byte) {
		req, _ := http.NewRequest("POST", "http://"+l.Addr().String()+"/v1/traces", bytes.NewReader(body))
		req.Header.Set("Content-Type", kind)
		req.Header.Set("Content-Encoding", enc)
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", resp, err)
		}
		resp.Body.Close()
	}
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, c := range []struct {
		name string
		send func(t *testing.T)
	}{
		{"http protobuf", func(t *testing.T) { post(t, "application/x-protobuf", "", raw) }},
		{"http gzip", func(t *testing.T) { post(t, "application/x-protobuf", "gzip", zipped.Bytes()) }},
		{"http json", func(t *testing.T) { post(t, "application/json", "", js) }},
		{"grpc", func(t *testing.T) {
			if _, err := coltrace.NewTraceServiceClient(conn).Export(t.Context(), request()); err != nil {
				t.Fatal(err)
			}
		}},
		{"grpc gzip", func(t *testing.T) {
			if _, err := coltrace.NewTraceServiceClient(conn).Export(t.Context(), request(), grpc.UseCompressor("gzip")); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.Lock()
			r.spans = nil
			r.Unlock()
			c.send(t)
			check(t, &r)
		})
	}
	_, err = collogs.NewLogsServiceClient(conn).Export(t.Context(), &collogs.ExportLogsServiceRequest{ResourceLogs: []*logspb.ResourceLogs{{
		ScopeLogs: []*logspb.ScopeLogs{{LogRecords: []*logspb.LogRecord{{EventName: "gemini_cli.tool_call", TraceId: bytes.Repeat([]byte{1}, 16),
			Attributes: []*common.KeyValue{kv("function_name", "run_shell_command"), kv("success", "false"), kv("session.id", "s")}}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if a := Read(nil, r.logs); len(a.Calls) != 1 || a.Calls[0].Tool != "run_shell_command" || !a.Calls[0].Failed {
		t.Errorf("logs: %+v", a.Calls)
	}
}

// Every entry of the table is known when a span has it and nothing else.
func TestDialects(t *testing.T) {
	for _, s := range table().Tool {
		v := s.Value
		if v == "" {
			v = "x"
		}
		a := Read([]Span{{ID: "1", Name: "execute_tool it", Attrs: map[string]any{s.Attr: v}}}, nil)
		if len(a.Calls) != 1 || a.Calls[0].Rule != s.Rule {
			t.Errorf("%s: %+v", s.Attr, a.Calls)
		}
	}
}

func TestMLflowSpans(t *testing.T) {
	spans, err := SpansJSON([]byte(`[{"trace_id":"q6urq6urq6urq6urq6urqw==","span_id":"AQEBAQEBAQE=","parent_span_id":"","name":"t","start_time_unix_nano":1700000000000000000,"end_time_unix_nano":"1700000000000000001",
		"status":{"code":"STATUS_CODE_ERROR"},"attributes":{"mlflow.spanType":"\"TOOL\"","gen_ai.tool.name":"x"}},
		{"traceId":"abababababababababababababababab","spanId":"0202020202020202","status":{"code":2},"attributes":[{"key":"gen_ai.operation.name","value":{"string_value":"execute_tool"}}]}]`))
	if err != nil || len(spans) != 2 || spans[0].Trace != spans[1].Trace || spans[0].ID != "0101010101010101" || !spans[0].Failed || !spans[1].Failed {
		t.Fatalf("%v %+v", err, spans)
	}
	if a := Read(spans, nil); len(a.Calls) != 2 {
		t.Errorf("%+v", a.Calls)
	}
}

func FuzzDecode(f *testing.F) {
	raw, err := proto.Marshal(request())
	if err != nil {
		f.Fatal(err)
	}
	js, err := protojson.Marshal(request())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(js)
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := DecodeTraces(b); err == nil {
			Read(s, nil)
		}
		if l, err := DecodeLogs(b); err == nil {
			Read(nil, l)
		}
		if s, err := DecodeTracesJSON(b); err == nil {
			Read(s, nil)
		}
		if l, err := DecodeLogsJSON(b); err == nil {
			Read(nil, l)
		}
		_, _ = SpansJSON(b)
	})
}
