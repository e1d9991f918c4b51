package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam/internal/otlp"
)

// maxMLflow bounds one answer of a tracking server, in bytes.
const maxMLflow = 128 << 20

// MLflow reads traces from an MLflow 3 tracking server.
type MLflow struct {
	URL        string // of the tracking server
	Experiment string // name, or id where it is a number and no experiment has it as its name
	HTTP       *http.Client

	mu    sync.Mutex
	id    string                  // the experiment's, once known
	known map[string]Conversation // complete traces, which don't change any more
}

// Name says where its traces come from.
func (m *MLflow) Name() string { return "mlflow" }

func (m *MLflow) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding a request to MLflow: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(m.URL, "/")+path, body)
	if err != nil {
		return fmt.Errorf("the MLflow server's URL: %w", err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	client := m.HTTP
	if client == nil {
		client = &http.Client{Timeout: 30 * time.Second}
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("asking MLflow: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxMLflow+1))
	if err != nil {
		return fmt.Errorf("asking MLflow: %w", err)
	}
	if len(data) > maxMLflow {
		return fmt.Errorf("MLflow's answer to %s is longer than %d bytes", path, maxMLflow)
	}
	if resp.StatusCode/100 != 2 {
		return &mlflowError{resp.StatusCode, string(data[:min(len(data), 300)])}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("MLflow's answer to %s: %w", path, err)
	}
	return nil
}

type mlflowError struct {
	status int
	body   string
}

func (e *mlflowError) Error() string { return fmt.Sprintf("MLflow answered %d: %s", e.status, e.body) }

// Check finds the experiment.
func (m *MLflow) Check(ctx context.Context) error { _, err := m.experiment(ctx); return err }

func (m *MLflow) experiment(ctx context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.id != "" {
		return m.id, nil
	}
	var a struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		} `json:"experiment"`
	}
	err := m.call(ctx, http.MethodGet, "/api/2.0/mlflow/experiments/get-by-name?experiment_name="+url.QueryEscape(m.Experiment), nil, &a)
	var me *mlflowError
	if errors.As(err, &me) && me.status == http.StatusNotFound {
		err = m.call(ctx, http.MethodGet, "/api/2.0/mlflow/experiments/get?experiment_id="+url.QueryEscape(m.Experiment), nil, &a)
	}
	if err != nil {
		return "", fmt.Errorf("finding the experiment %q: %w", m.Experiment, err)
	}
	if a.Experiment.ID == "" {
		return "", fmt.Errorf("the MLflow server has no experiment %q", m.Experiment)
	}
	m.id = a.Experiment.ID
	return m.id, nil
}

// traceInfo is what a search gives of a trace.
type traceInfo struct {
	TraceID        string            `json:"trace_id"`
	RequestTime    string            `json:"request_time"`
	RequestPreview string            `json:"request_preview"`
	State          string            `json:"state"`
	Metadata       map[string]string `json:"trace_metadata"`
	Tags           map[string]string `json:"tags"`
}

// Conversations fetches the experiment's traces that began since then.
func (m *MLflow) Conversations(ctx context.Context, since time.Time) ([]Conversation, error) {
	id, err := m.experiment(ctx)
	if err != nil {
		return nil, err
	}
	var infos []traceInfo
	for token := ""; ; {
		var page struct {
			Traces []traceInfo `json:"traces"`
			Next   string      `json:"next_page_token"`
		}
		// A bare id in locations would be answered with an empty list, silently.
		in := map[string]any{"locations": []any{map[string]any{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": map[string]string{"experiment_id": id}}},
			"filter": fmt.Sprintf("trace.timestamp_ms >= %d", since.UnixMilli()), "max_results": 100, "page_token": token}
		if err := m.call(ctx, http.MethodPost, "/api/3.0/mlflow/traces/search", in, &page); err != nil {
			return nil, fmt.Errorf("searching traces: %w", err)
		}
		infos = append(infos, page.Traces...)
		if page.Next == "" || page.Next == token {
			break
		}
		if len(infos) > mostTraces {
			return nil, fmt.Errorf("the experiment has more than %d traces since %s: use one of its own for an audit", mostTraces, since.Format(time.RFC3339))
		}
		token = page.Next
	}
	m.mu.Lock()
	if m.known == nil {
		m.known = map[string]Conversation{}
	}
	m.mu.Unlock()
	var out []Conversation
	for _, i := range infos {
		c, err := m.trace(ctx, i)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// trace fetches the spans of one trace.
func (m *MLflow) trace(ctx context.Context, i traceInfo) (Conversation, error) {
	m.mu.Lock()
	c, ok := m.known[i.TraceID]
	m.mu.Unlock()
	if ok {
		return c, nil
	}
	var a struct {
		Trace struct {
			Spans json.RawMessage `json:"spans"`
		} `json:"trace"`
	}
	if err := m.call(ctx, http.MethodGet, "/api/3.0/mlflow/traces/get?allow_partial=true&trace_id="+url.QueryEscape(i.TraceID), nil, &a); err != nil {
		return c, fmt.Errorf("fetching trace %s: %w", i.TraceID, err)
	}
	c = Conversation{ID: strings.TrimPrefix(i.TraceID, "tr-"), Texts: []string{i.RequestPreview}}
	if t, err := time.Parse(time.RFC3339Nano, i.RequestTime); err == nil {
		c.Start = t
	}
	for _, tags := range []map[string]string{i.Metadata, i.Tags} {
		for _, k := range []string{"mlflow.trace.session", "session.id", "contextId", "a2a.context_id"} {
			if v := tags[k]; v != "" {
				c.Sessions = append(c.Sessions, v)
			}
		}
	}
	if len(a.Trace.Spans) > 0 {
		var err error
		if c.Spans, err = otlp.SpansJSON(a.Trace.Spans); err != nil {
			return c, fmt.Errorf("trace %s: %w", i.TraceID, err)
		}
	}
	if i.State == "OK" && otlp.HasRoot(c.Spans, "") && time.Since(c.Start) > 30*time.Second {
		m.mu.Lock()
		m.known[i.TraceID] = c
		m.mu.Unlock()
	}
	return c, nil
}

// Assess writes a verdict back to a trace as an assessment.
func (m *MLflow) Assess(ctx context.Context, trace, name, value, why string) error {
	id := trace
	if !strings.HasPrefix(id, "tr-") {
		id = "tr-" + id
	}
	in := map[string]any{"assessment": map[string]any{"assessment_name": name, "trace_id": id, "source": map[string]string{"source_type": "CODE", "source_id": "bodycam probe"},
		"feedback": map[string]any{"value": value}, "rationale": why}}
	if err := m.call(ctx, http.MethodPost, "/api/3.0/mlflow/traces/"+url.PathEscape(id)+"/assessments", in, nil); err != nil {
		return fmt.Errorf("writing the assessment of trace %s: %w", id, err)
	}
	return nil
}
