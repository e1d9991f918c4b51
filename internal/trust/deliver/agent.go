// Package deliver sends probes to agents: over A2A, to OpenAI-compatible chat endpoints, through any command; several at
// once, with a rate limit, time-outs, and retries whose reasons are kept.
package deliver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/a2a"
	"github.com/bodycam-dev/bodycam/internal/trust"
)

// Message is one turn to an agent.
type Message struct {
	Text    string
	Header  http.Header // traceparent, User-Agent
	Stream  bool        // where the agent can
	Session string      // of the conversation: ours in the first turn, what the agent made of it later
	Task    string
	Before  []trust.Turn // earlier turns, for agents that keep no state
}

// Answer is what an agent answered.
type Answer struct {
	Text, State   string
	Session, Task string
	Calls         []trust.Call // tool calls that the answer itself shows
}

// Agent is a way to talk to one agent. It may be used by several goroutines.
type Agent interface {
	Say(ctx context.Context, m Message) (*Answer, error)
}

// A2A talks to an A2A agent.
type A2A struct {
	Unary, Streaming *a2a.Client // one of them may be nil
}

// NewA2A talks to the first of a card's interfaces that can be used.
func NewA2A(client *http.Client, card *a2a.Card) (*A2A, error) {
	for _, i := range card.Interfaces {
		switch i.Binding {
		case a2a.JSONRPC, a2a.REST, a2a.GRPC:
		default:
			continue
		}
		out := &A2A{Unary: &a2a.Client{HTTP: client, Interface: i, Form: card.Form}}
		if card.Streaming {
			out.Streaming = &a2a.Client{HTTP: client, Interface: i, Form: card.Form, Stream: true}
		}
		return out, nil
	}
	return nil, errors.New("the agent card names no interface over JSON-RPC, HTTP+JSON or gRPC")
}

// Over has gRPC endpoints reached in this way.
func (a *A2A) Over(d a2a.Dialling) *A2A {
	for _, c := range []*a2a.Client{a.Unary, a.Streaming} {
		if c != nil {
			c.GRPC = d
		}
	}
	return a
}

// Endpoint is where messages go.
func (a *A2A) Endpoint() string { return a.Unary.Interface.URL }

// Say sends a message. Where one of unary and streaming calls is refused, the other is tried: cards promise what agents
// don't keep.
func (a *A2A) Say(ctx context.Context, m Message) (*Answer, error) {
	msg := a2a.Message{Text: m.Text, Header: m.Header}
	if len(m.Before) > 0 {
		msg.Context, msg.Task = m.Session, m.Task
	}
	c := a.Unary
	if a.Streaming != nil && (m.Stream || c == nil) {
		c = a.Streaming
	}
	r, err := c.Send(ctx, msg)
	var rpc *a2a.RPCError
	if other := a.other(c); errors.As(err, &rpc) && other != nil {
		if r2, err2 := other.Send(ctx, msg); err2 == nil {
			r, err = r2, nil
		}
	}
	if err != nil {
		return nil, err
	}
	out := &Answer{Text: r.Text, State: r.State, Session: r.Context}
	if r.State == a2a.StateInputRequired {
		out.Task = r.Task
	}
	for _, t := range r.ToolCalls() {
		out.Calls = append(out.Calls, trust.Call{Tool: t.Tool, ID: t.ID, Args: t.Args, Failed: t.Failed, By: t.Rule})
	}
	switch r.State {
	case a2a.StateFailed, a2a.StateCanceled:
		if out.Text == "" {
			return nil, fmt.Errorf("the agent's task ended as %s", r.State)
		}
	case a2a.StateAuthRequired:
		return nil, &failure{is: isAuth, err: errors.New("the agent wants further authentication")}
	}
	return out, nil
}

func (a *A2A) other(c *a2a.Client) *a2a.Client {
	if c == a.Unary {
		return a.Streaming
	}
	return a.Unary
}

// Chat talks to an OpenAI-compatible chat endpoint.
type Chat struct {
	HTTP  *http.Client
	URL   string // base URL with its version part
	Model string
}

// Say sends the conversation so far.
func (c *Chat) Say(ctx context.Context, m Message) (*Answer, error) {
	type msg struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var list []msg
	for _, t := range m.Before {
		list = append(list, msg{"user", t.Prompt}, msg{"assistant", t.Reply})
	}
	list = append(list, msg{"user", m.Text})
	body, err := json.Marshal(map[string]any{"model": c.Model, "messages": list})
	if err != nil {
		return nil, fmt.Errorf("encoding the conversation: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.URL, "/")+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("the chat endpoint: %w", err)
	}
	for k, v := range m.Header {
		req.Header[k] = v
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, a2a.MaxReply))
	if err != nil {
		return nil, fmt.Errorf("reading the chat endpoint's answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, &a2a.HTTPError{Status: resp.StatusCode, Body: string(data[:min(len(data), 300)]), RetryAfter: resp.Header.Get("Retry-After")}
	}
	var a struct {
		ID      string
		Choices []struct {
			FinishReason string `json:"finish_reason"`
			Message      struct {
				Content   *string
				Refusal   *string
				ToolCalls []struct {
					ID       string
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
		}
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, fmt.Errorf("the chat endpoint's answer: %w", err)
	}
	if len(a.Choices) == 0 {
		return nil, errors.New("the chat endpoint's answer has no choice")
	}
	ch := a.Choices[0]
	out := &Answer{Session: m.Session, State: ch.FinishReason}
	for _, t := range []*string{ch.Message.Content, ch.Message.Refusal} {
		if t != nil {
			out.Text += *t
		}
	}
	for _, t := range ch.Message.ToolCalls {
		out.Calls = append(out.Calls, trust.Call{Tool: t.Function.Name, ID: t.ID, Args: t.Function.Arguments, By: "tool_calls"})
	}
	return out, nil
}

// Command talks to an agent through a command: one process a turn. It gets the prompt on standard input and prints the
// reply. TRACEPARENT, BODYCAM_SESSION and BODYCAM_TURN are in its environment.
type Command struct {
	Argv []string
	Env  []string // the whole environment beside these
	Dir  string
}

// Say runs the command.
func (c *Command) Say(ctx context.Context, m Message) (*Answer, error) {
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir = c.Dir
	cmd.Env = append(slices.Clone(c.Env), "BODYCAM_SESSION="+m.Session, fmt.Sprintf("BODYCAM_TURN=%d", len(m.Before)+1))
	if t := m.Header.Get("Traceparent"); t != "" {
		cmd.Env = append(cmd.Env, "TRACEPARENT="+t)
	}
	cmd.Stdin = strings.NewReader(m.Text)
	out, tail := &limited{n: a2a.MaxReply}, &limited{n: 2000}
	cmd.Stdout, cmd.Stderr = out, tail
	cmd.WaitDelay = 1e9
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("the command %s: %w: %s", c.Argv[0], err, strings.TrimSpace(tail.b.String()))
	}
	return &Answer{Text: strings.TrimRight(out.b.String(), "\n"), Session: m.Session}, nil
}

// limited keeps the first n bytes.
type limited struct {
	b bytes.Buffer
	n int
}

func (l *limited) Write(p []byte) (int, error) {
	l.b.Write(p[:min(len(p), max(0, l.n-l.b.Len()))])
	return len(p), nil
}
