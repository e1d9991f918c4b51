package model

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Options are what a server needs beside its script.
type Options struct {
	// Log gets one JSON object a line for each request ([Record]); nil keeps no log. Its errors are returned by Serve.
	Log io.Writer
}

// Record is one request as the log has it.
type Record struct {
	Time         time.Time `json:"time"`
	Session      string    `json:"session,omitempty"` // what stands before the API's path in the URL
	API          string    `json:"api"`               // responses, chat, messages, gemini, models, count, unknown
	Path         string    `json:"path"`
	Model        string    `json:"model,omitempty"`
	Stream       bool      `json:"stream,omitempty"`
	Tools        []string  `json:"tools,omitempty"`
	Conversation string    `json:"conversation,omitempty"` // "" for a stock reply
	Turn         int       `json:"turn,omitempty"`         // the model's turn, from 1
	Line         int       `json:"line,omitempty"`         // of the script
	LastOutput   string    `json:"last_output,omitempty"`  // of the last tool call, cut at 64 KiB
	Answer       string    `json:"answer"`                 // text, call, stock, error, drop, stall, misfit, list
	Calls        []string  `json:"calls,omitempty"`        // "tool arguments" of each call
	Status       int       `json:"status,omitempty"`       // HTTP status; 0 where the connection was dropped
	Error        string    `json:"error,omitempty"`        // why a request was a misfit
}

// Server plays a script. It is an [http.Handler] and safe for concurrent use.
type Server struct {
	script *Script
	log    io.Writer
	counts counts

	mu      sync.Mutex
	logErr  error
	total   int
	misfits []Record
}

// New makes a server for a script that [Parse] or [Load] returned.
func New(s *Script, o Options) *Server { return &Server{script: s, log: o.Log} }

// Misfits returns the records of the requests that had no place in the script, at most the first 100.
func (s *Server) Misfits() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Record(nil), s.misfits...)
}

// Requests returns how many requests were answered.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Serve answers on ln until ctx ends. It returns nil then, unless the log could not be written.
func Serve(ctx context.Context, ln net.Listener, script *Script, o Options) error {
	return New(script, o).Serve(ctx, ln)
}

// Serve answers on ln until ctx ends. It returns nil then, unless the log could not be written.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 30 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if srv.Shutdown(late) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(ln)
	if !stop() {
		<-done
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve scripted model on %s: %w", ln.Addr(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logErr != nil {
		return fmt.Errorf("write the model's log: %w", s.logErr)
	}
	return nil
}

// maxBody is the largest request that is read.
const maxBody = 64 << 20

// dialect is one API: how its requests are read and its answers written.
type dialect struct {
	name     string
	idPrefix string // of tool call ids
	// decode reads a request. url is the path after the session.
	decode func(url string, body []byte) (*request, error)
	// encode makes the answer's body, and its events where the answer streams.
	encode func(r *request, a answer, id string, number int) (body any, events []event)
	// failure makes the body of an HTTP error.
	failure func(status int, message string) any
}

// event is one server-sent event.
type event struct {
	name string // "" leaves the event line out
	data any    // a string is written as it is
}

// route finds the API for a path. The session is whatever stands before the part that the API defines.
func route(path string) (d *dialect, session, rest string) {
	for _, r := range []struct {
		mark string
		d    *dialect
	}{
		{"/responses", &responsesAPI}, {"/chat/completions", &chatAPI}, {"/messages", &messagesAPI},
	} {
		if head, ok := strings.CutSuffix(path, r.mark); ok {
			return r.d, sessionOf(head), r.mark
		}
	}
	if i := strings.LastIndex(path, "/models/"); i >= 0 && strings.HasSuffix(strings.ToLower(path), "generatecontent") {
		return &geminiAPI, sessionOf(path[:i]), path[i:]
	}
	return nil, "", path
}

func sessionOf(head string) string {
	for _, version := range []string{"/v1beta", "/v1", "/v1alpha"} {
		if s, ok := strings.CutSuffix(head, version); ok {
			return strings.Trim(s, "/")
		}
	}
	return strings.Trim(head, "/")
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := Record{Time: time.Now().UTC(), Path: r.URL.Path}
	defer func() { s.record(rec) }()
	d, session, rest := route(r.URL.Path)
	rec.Session = session
	if d == nil || r.Method != http.MethodPost {
		s.other(w, r, &rec)
		return
	}
	rec.API = d.name
	body, err := readBody(r)
	if err != nil {
		s.misfit(w, d, &rec, err)
		return
	}
	req, err := d.decode(rest, body)
	if err != nil {
		s.misfit(w, d, &rec, fmt.Errorf("read %s request: %w", d.name, err))
		return
	}
	req.API, req.Session, req.Bytes = d.name, session, len(body)
	rec.Model, rec.Stream = req.Model, req.Stream
	for _, t := range req.Tools {
		rec.Tools = append(rec.Tools, t.full())
	}
	s.answer(w, r, d, req, &rec)
}

// answer finds the request's place in the script and plays the turn.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, d *dialect, req *request, rec *Record) {
	h := req.read()
	rec.LastOutput = cut(h.before[len(h.before)-1], 64<<10)
	cv, err := s.script.find(req, h)
	if err != nil {
		s.misfit(w, d, rec, err)
		return
	}
	if cv == nil {
		rec.Answer = "stock"
		s.send(w, r, d, req, answer{Text: s.stock(req)}, place{conversation: "stock", number: h.turns + 1}, rec)
		return
	}
	p, err := cv.walk(req, h, &s.counts)
	rec.Conversation, rec.Turn = cv.Name, p.number
	if err != nil {
		s.misfit(w, d, rec, err)
		return
	}
	rec.Line = p.turn.line
	if p.turn.fails() {
		s.fail(w, r, d, req, p, rec)
		return
	}
	a, err := p.answer(req.Tools, d.idPrefix)
	if err != nil {
		s.misfit(w, d, rec, err)
		return
	}
	rec.Answer = "text"
	for _, c := range a.Calls {
		rec.Answer = "call"
		args := c.Input
		if !c.Tool.Custom {
			args = c.argsJSON()
		}
		rec.Calls = append(rec.Calls, cut(c.Tool.full()+" "+args, 4<<10))
	}
	if !wait(r.Context(), p.turn.Delay) {
		rec.Error = "the client left during the delay"
		return
	}
	s.send(w, r, d, req, a, p, rec)
}

// stock is the reply to a request that offers no tools.
func (s *Server) stock(req *request) string {
	if !req.JSON || json.Valid([]byte(s.script.Stock)) {
		return s.script.Stock
	}
	b, _ := json.Marshal(map[string]string{"text": s.script.Stock})
	return string(b)
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, d *dialect, req *request, a answer, p place, rec *Record) {
	id := callID("gen", p.conversation, p.number, 0)
	body, events := d.encode(req, a, id, p.number)
	rec.Status = http.StatusOK
	if !req.Stream {
		writeJSON(w, http.StatusOK, body)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	for _, e := range events {
		if err := writeEvent(w, e); err != nil {
			rec.Error = "the client left: " + err.Error()
			return
		}
	}
}

// fail plays a turn that is no answer.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, d *dialect, req *request, p place, rec *Record) {
	t := p.turn
	switch {
	case t.Error != nil:
		if !wait(r.Context(), t.Delay) {
			return
		}
		rec.Answer, rec.Status = "error", t.Error.Status
		if t.Error.RetryAfter > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(t.Error.RetryAfter))
		}
		msg := t.Error.Message
		if msg == "" {
			msg = http.StatusText(t.Error.Status)
		}
		writeJSON(w, t.Error.Status, d.failure(t.Error.Status, msg))
	case t.Stall > 0:
		rec.Answer = "stall"
		wait(r.Context(), t.Stall)
		panic(http.ErrAbortHandler)
	case t.Drop == "middle" && req.Stream:
		rec.Answer = "drop"
		_, events := d.encode(req, answer{Text: "This answer will not end."}, callID("gen", p.conversation, p.number, 0), p.number)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events[:max(1, len(events)/2)] {
			if writeEvent(w, e) != nil {
				break
			}
		}
		panic(http.ErrAbortHandler)
	default:
		rec.Answer = "drop"
		panic(http.ErrAbortHandler)
	}
}

// misfit refuses a request that has no place in the script. The status is one that clients don't retry.
func (s *Server) misfit(w http.ResponseWriter, d *dialect, rec *Record, err error) {
	rec.Answer, rec.Status, rec.Error = "misfit", http.StatusBadRequest, err.Error()
	writeJSON(w, rec.Status, d.failure(rec.Status, "model script: "+err.Error()))
}

// other answers what isn't a generation: model lists, token counts, and paths that no API has.
func (s *Server) other(w http.ResponseWriter, r *http.Request, rec *Record) {
	p := strings.TrimSuffix(r.URL.Path, "/")
	switch {
	case r.Method == http.MethodGet && strings.HasSuffix(p, "/models"):
		rec.API, rec.Answer, rec.Status = "models", "list", http.StatusOK
		writeJSON(w, http.StatusOK, map[string]any{
			"object": "list",
			"data":   []any{map[string]any{"id": s.script.Model, "object": "model", "created": 0, "owned_by": "bodycam"}},
			"models": []any{},
		})
	case r.Method == http.MethodPost && (strings.HasSuffix(p, "/messages/count_tokens") || strings.HasSuffix(p, ":countTokens")):
		body, err := readBody(r)
		if err != nil {
			rec.API, rec.Answer, rec.Status, rec.Error = "count", "misfit", http.StatusBadRequest, err.Error()
			writeJSON(w, rec.Status, map[string]any{"error": map[string]any{"message": err.Error()}})
			return
		}
		n := tokens(len(body))
		rec.API, rec.Answer, rec.Status = "count", "list", http.StatusOK
		writeJSON(w, http.StatusOK, map[string]any{"input_tokens": n, "totalTokens": n})
	default:
		rec.API, rec.Answer, rec.Status = "unknown", "misfit", http.StatusNotFound
		rec.Error = fmt.Sprintf("%s %s is not part of an API that the scripted model speaks", r.Method, cut(r.URL.Path, 300))
		writeJSON(w, http.StatusNotFound, map[string]any{"error": map[string]any{"message": rec.Error, "type": "not_found"}})
	}
}

// record writes the log's line.
func (s *Server) record(rec Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total++
	if rec.Answer == "misfit" && len(s.misfits) < 100 {
		s.misfits = append(s.misfits, rec)
	}
	if s.log == nil || s.logErr != nil {
		return
	}
	b, err := json.Marshal(rec)
	if err == nil {
		_, err = s.log.Write(append(b, '\n'))
	}
	s.logErr = err
}

func readBody(r *http.Request) ([]byte, error) {
	var in io.Reader = http.MaxBytesReader(nil, r.Body, maxBody)
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("read request: %w", err)
		}
		in = io.LimitReader(z, maxBody+1)
	default:
		return nil, fmt.Errorf("read request: content encoding %q isn't supported: send it plain or with gzip", enc)
	}
	body, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("read request: it is larger than %d MiB", maxBody>>20)
	}
	return body, nil
}

// wait returns false where the client left first.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may have left
}

func writeEvent(w http.ResponseWriter, e event) error {
	var b bytes.Buffer
	if e.name != "" {
		fmt.Fprintf(&b, "event: %s\n", e.name)
	}
	data, ok := e.data.(string)
	if !ok {
		j, err := marshal(e.data)
		if err != nil {
			return err
		}
		data = string(j)
	}
	fmt.Fprintf(&b, "data: %s\n\n", data)
	if _, err := w.Write(b.Bytes()); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

// marshal is JSON without the escapes that are meant for HTML, as models write it.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// tokens guesses how many tokens so many bytes are.
func tokens(bytes int) int { return bytes/4 + 1 }

// pieces cuts text as a streaming model would, at rune boundaries.
func pieces(s string) []string {
	const size = 256
	var out []string
	for len(s) > size {
		n := size
		for n > 0 && s[n]&0xc0 == 0x80 {
			n--
		}
		if n == 0 {
			n = size
		}
		out, s = append(out, s[:n]), s[n:]
	}
	if s != "" || out == nil {
		out = append(out, s)
	}
	return out
}
