package trace

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/internal/trust"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// server starts a real MLflow tracking server: the program that $BODYCAM_MLFLOW names, that of scripts/mlflow.sh, or mlflow
// in PATH.
func server(t *testing.T) string {
	t.Helper()
	prog := os.Getenv("BODYCAM_MLFLOW")
	if prog == "" {
		ours, err := filepath.Abs("../../../.harness/venv/bin/mlflow")
		if err != nil {
			t.Fatal(err)
		}
		if prog, err = exec.LookPath(ours); err != nil {
			prog, err = exec.LookPath("mlflow")
		}
		if err != nil {
			t.Skip("mlflow is not installed: sh scripts/mlflow.sh")
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	l.Close()
	dir := t.TempDir()
	cmd := exec.Command(prog, "server", "--host", "127.0.0.1", "--port", fmt.Sprint(addr.Port), "--backend-store-uri", "sqlite:///"+filepath.Join(dir, "m.db"), "--workers", "1")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false", "PATH="+filepath.Dir(prog)+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	url := "http://" + addr.String()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(300 * time.Millisecond) {
		resp, err := http.Get(url + "/health")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == 200 {
				return url
			}
		}
		if time.Now().After(end) {
			b, _ := os.ReadFile(log.Name())
			t.Fatalf("MLflow didn't start: %s", b)
		}
	}
}

// Traces that a real server ingested are found, joined by the trace id that we minted, and take an assessment.
func TestMLflowServer(t *testing.T) {
	url := server(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := &MLflow{URL: url, Experiment: "agents"}
	if err := m.Check(ctx); err == nil {
		t.Error("an experiment that isn't there was found")
	}
	var made struct {
		ID string `json:"experiment_id"`
	}
	if err := m.call(ctx, http.MethodPost, "/api/2.0/mlflow/experiments/create", map[string]string{"name": "agents"}, &made); err != nil {
		t.Fatal(err)
	}
	const id = "00112233445566778899aabbccddeeff"
	trace, _ := hex.DecodeString(id)
	began := time.Now()
	kv := func(k, v string) *common.KeyValue {
		return &common.KeyValue{Key: k, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: v}}}
	}
	span := func(n, parent byte, name string, a ...*common.KeyValue) *tracepb.Span {
		s := &tracepb.Span{TraceId: trace, SpanId: bytes.Repeat([]byte{n}, 8), Name: name, StartTimeUnixNano: uint64(began.UnixNano()), EndTimeUnixNano: uint64(began.Add(time.Second).UnixNano()), Attributes: a}
		if parent != 0 {
			s.ParentSpanId = bytes.Repeat([]byte{parent}, 8)
		}
		return s
	}
	raw, err := proto.Marshal(&coltrace.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{
		span(1, 0, "agent", kv("gen_ai.operation.name", "invoke_agent")), span(2, 1, "execute_tool get_weather", kv("gen_ai.operation.name", "execute_tool"), kv("gen_ai.tool.name", "get_weather"))}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/traces", bytes.NewReader(raw))
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("X-Mlflow-Experiment-Id", made.ID)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v %v", resp, err)
	}
	resp.Body.Close()
	p := &trust.Probe{ID: "a", Text: "what is the weather"}
	x := &trust.Exchange{Probe: "a", Trace: id, Started: began, Ended: began.Add(time.Second)}
	got, err := Wait(ctx, m, map[string]*trust.Probe{"a": p}, []*trust.Exchange{x}, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	c := got["a"]
	if c.Method != trust.ByTraceparent || !c.Complete || len(c.Calls) != 1 || c.Calls[0].Tool != "get_weather" {
		t.Errorf("%+v", c)
	}
	if err := m.Assess(ctx, id, "bodycam.trust", "fine", "did what it declares"); err != nil {
		t.Fatal(err)
	}
	var a struct {
		Trace struct {
			Info json.RawMessage `json:"trace_info"`
		} `json:"trace"`
	}
	if err := m.call(ctx, http.MethodGet, "/api/3.0/mlflow/traces/get?trace_id=tr-"+id, nil, &a); err != nil || !bytes.Contains(a.Trace.Info, []byte("bodycam.trust")) {
		t.Errorf("%v %s", err, a.Trace.Info)
	}
}
