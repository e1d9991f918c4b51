package a2a

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bodycam-dev/bodycam"
)

// MaxReply bounds what is read of one answer, in bytes.
const MaxReply = 32 << 20

// Client talks to one interface of an agent. It may be used by several goroutines.
type Client struct {
	HTTP      *http.Client
	Interface Interface
	Form      string // the card's form: what is tried first where the interface doesn't say its version
	Stream    bool   // use streaming calls
	GRPC      Dialling
	works     atomic.Pointer[wire]
}

// Message is one message to the agent.
type Message struct {
	Text          string
	Context, Task string      // of the conversation that it continues
	Header        http.Header // further header fields, traceparent for example
	Metadata      map[string]any
}

// HTTPError is an answer that isn't of the protocol.
type HTTPError struct {
	Status     int
	Body       string // its beginning
	RetryAfter string
}

func (e *HTTPError) Error() string {
	if e.Body == "" {
		return fmt.Sprintf("HTTP status %d", e.Status)
	}
	return fmt.Sprintf("HTTP status %d: %s", e.Status, bodycam.Printable(e.Body))
}

// wire is one generation of the protocol on the wire.
type wire struct {
	version      string
	send, stream string // methods
	get          string
	header       bool // A2A-Version is sent
	snake        bool // names in snake case, and the JSON-RPC form of a message, in the REST binding
	bare         bool // no /v1 before the REST binding's paths
}

var (
	wire10 = &wire{version: "1.0", send: "SendMessage", stream: "SendStreamingMessage", get: "GetTask", header: true, bare: true}
	wire03 = &wire{version: "0.3", send: "message/send", stream: "message/stream", get: "tasks/get"}
	// Servers of version 0.3's REST binding disagree on the form of a message and on the path.
	wire03Snake = &wire{version: "0.3", send: "message/send", stream: "message/stream", get: "tasks/get", snake: true}
	wire03Bare  = &wire{version: "0.3", send: "message/send", stream: "message/stream", get: "tasks/get", snake: true, bare: true}
	wire02      = &wire{version: "0.2", send: "tasks/send", stream: "tasks/sendSubscribe", get: "tasks/get"}
)

// wires are the generations to try, the likeliest first.
func (c *Client) wires() []*wire {
	if w := c.works.Load(); w != nil {
		return []*wire{w}
	}
	v := c.Interface.Version
	if v == "" {
		v = c.Form
	}
	switch {
	case strings.HasPrefix(v, "1") && c.Interface.Binding == REST: // a2a serve --protocol 0.3 says 1.0 on its card
		return []*wire{wire10, wire03, wire03Snake, wire03Bare}
	case strings.HasPrefix(v, "1"):
		return []*wire{wire10, wire03}
	case v == "0.1":
		return []*wire{wire02, wire03}
	}
	if c.Interface.Binding == REST {
		return []*wire{wire03, wire03Snake, wire03Bare, wire10}
	}
	return []*wire{wire03, wire10, wire02}
}

// Send sends a message and waits for the agent's answer, in a stream or not, and for the end of a task that goes on by
// itself. ctx bounds all of it.
func (c *Client) Send(ctx context.Context, m Message) (*Reply, error) {
	var first error
	for _, w := range c.wires() {
		r, err := c.sendAs(ctx, w, m)
		if err == nil {
			c.works.Store(w)
			return r, nil
		}
		if first == nil {
			first = err
		}
		if !unknownMethod(err) && !(c.Interface.Binding == REST && isStatus(err, http.StatusBadRequest)) {
			return nil, err
		}
	}
	return nil, first
}

// unknownMethod tells whether an error says that this generation of the protocol isn't spoken.
func unknownMethod(err error) bool {
	var rpc *RPCError
	if errors.As(err, &rpc) {
		return rpc.Code == -32601 || rpc.Code == -32009
	}
	return isStatus(err, http.StatusNotFound) || isStatus(err, http.StatusMethodNotAllowed)
}

func isStatus(err error, status int) bool {
	var h *HTTPError
	return errors.As(err, &h) && h.Status == status
}

func (c *Client) sendAs(ctx context.Context, w *wire, m Message) (*Reply, error) {
	if c.Interface.Binding == GRPC {
		return c.sendGRPC(ctx, m)
	}
	b := &builder{sent: newID()}
	body, err := c.sendRequest(w, m, b.sent)
	if err != nil {
		return nil, err
	}
	method := w.send
	if c.Stream {
		method = w.stream
	}
	if err := c.call(ctx, w, method, body, m.Header, b); err != nil {
		return nil, err
	}
	return c.finish(ctx, w, m, b)
}

// finish asks for the result of a task that goes on by itself until it doesn't.
func (c *Client) finish(ctx context.Context, w *wire, m Message, b *builder) (*Reply, error) {
	for wait := 200 * time.Millisecond; b.r.Waiting() && b.r.Task != ""; wait = min(2*wait, 2*time.Second) {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the task is still %s: %w", b.r.State, context.Cause(ctx))
		case <-time.After(wait):
		}
		if err := c.call(ctx, w, w.get, map[string]any{"id": b.r.Task}, m.Header, b); err != nil {
			return nil, fmt.Errorf("asking for the task: %w", err)
		}
	}
	return b.reply(), nil
}

// sendRequest is the params of a send call.
func (c *Client) sendRequest(w *wire, m Message, id string) (map[string]any, error) {
	part := map[string]any{"text": m.Text}
	msg := map[string]any{"messageId": id, "role": "user"}
	partsKey := "parts"
	switch {
	case w == wire10 || c.Interface.Binding == REST && !w.snake:
		msg["role"] = "ROLE_USER"
		if w == wire03 {
			partsKey = "content" // as version 0.3's REST binding has it
		}
	case w == wire03 || w.snake:
		part["kind"], msg["kind"] = "text", "message"
	default:
		part["type"] = "text"
	}
	msg[partsKey] = []any{part}
	if len(m.Metadata) > 0 {
		msg["metadata"] = m.Metadata
	}
	if w == wire02 {
		session := m.Context
		if session == "" {
			session = newID()
		}
		task := m.Task
		if task == "" {
			task = newID()
		}
		return map[string]any{"id": task, "sessionId": session, "message": msg}, nil
	}
	if m.Context != "" {
		msg["contextId"] = m.Context
	}
	if m.Task != "" {
		msg["taskId"] = m.Task
	}
	if w.snake {
		for to, from := range map[string]string{"message_id": "messageId", "context_id": "contextId", "task_id": "taskId"} {
			if v, ok := msg[from]; ok {
				msg[to] = v
				delete(msg, from)
			}
		}
	}
	params := map[string]any{"message": msg}
	if w == wire10 {
		params["configuration"] = map[string]any{"acceptedOutputModes": []string{"text/plain", "application/json"}}
		if c.Interface.Tenant != "" {
			params["tenant"] = c.Interface.Tenant
		}
	} else if c.Interface.Binding == JSONRPC {
		params["configuration"] = map[string]any{"acceptedOutputModes": []string{"text/plain", "application/json"}, "blocking": true}
	}
	return params, nil
}

// call makes one call and gives what comes back to the builder.
func (c *Client) call(ctx context.Context, w *wire, method string, params map[string]any, header http.Header, b *builder) error {
	req, err := c.request(ctx, w, method, params)
	if err != nil {
		return err
	}
	maps.Copy(req.Header, header)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("calling %s: %w", method, err)
	}
	defer resp.Body.Close()
	body := io.LimitReader(resp.Body, MaxReply+1)
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind = "" // nothing usable is said: the body tells
	}
	if kind == "text/event-stream" {
		n := b.r.Events
		if err := events(body, MaxReply, b.add); err != nil {
			return fmt.Errorf("reading the stream of %s: %w", method, err)
		}
		if b.r.Events == n {
			return fmt.Errorf("the stream of %s ended without a result: %w", method, io.ErrUnexpectedEOF)
		}
		return nil
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", method, err)
	}
	if len(data) > MaxReply {
		return fmt.Errorf("the answer of %s is longer than %d bytes", method, MaxReply)
	}
	if err := b.add(data); err != nil {
		var rpc *RPCError
		if resp.StatusCode/100 != 2 && (!errors.As(err, &rpc) || c.Interface.Binding == REST) {
			return &HTTPError{resp.StatusCode, string(data[:min(len(data), 300)]), resp.Header.Get("Retry-After")}
		}
		return err
	}
	return nil
}

func (c *Client) request(ctx context.Context, w *wire, method string, params map[string]any) (*http.Request, error) {
	url, verb, payload := c.Interface.URL, http.MethodPost, any(params)
	if c.Interface.Binding == REST {
		prefix := strings.TrimSuffix(url, "/")
		if !w.bare && !strings.HasSuffix(prefix, "/v1") {
			prefix += "/v1"
		}
		switch method {
		case w.send:
			url = prefix + "/message:send"
		case w.stream:
			url = prefix + "/message:stream"
		default:
			id, _ := params["id"].(string)
			url, verb, payload = prefix+"/tasks/"+strings.ReplaceAll(id, "/", "%2F"), http.MethodGet, nil
		}
	} else {
		payload = map[string]any{"jsonrpc": "2.0", "id": newID(), "method": method, "params": params}
	}
	var body io.Reader
	if payload != nil {
		b, err := json.Marshal(payload)
		if err != nil {
			return nil, fmt.Errorf("encoding the message: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, verb, url, body)
	if err != nil {
		return nil, fmt.Errorf("the agent's endpoint: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if method == w.stream {
		req.Header.Set("Accept", "text/event-stream, application/json")
	} else {
		req.Header.Set("Accept", "application/json, text/event-stream")
	}
	if w.header {
		req.Header.Set("A2A-Version", w.version)
	}
	return req, nil
}

// newID is a random identifier in the form of a UUID.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
