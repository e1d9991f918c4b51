// Package mcp talks to tool servers of the Model Context Protocol through the official SDK: over the standard streams of
// a command, or streamable HTTP. It reads what a server declares and calls its tools.
package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Target says how a server is reached: Command or URL, or Pipe.
type Target struct {
	Command []string // started with Env as its whole environment, spoken to on its standard streams
	Env     []string
	Dir     string
	URL     string       // streamable HTTP
	SSE     bool         // URL is one of the transport of 2024-11-05, which newer servers don't have
	HTTP    *http.Client // with credentials, where the server wants them
	// Pipe are the standard streams of a server that runs elsewhere, in a sandbox for example.
	Pipe io.ReadWriteCloser
	// Patience is how long the server may take to answer that it is there; 0: Patience.
	Patience time.Duration
}

// Server is what a server declares.
type Server struct {
	Name, Title, Version, Protocol string
	Instructions                   string
	Tools                          []Tool
	Prompts, Resources             int
	Deviations                     []Deviation
	Raw                            []byte // the tools as JSON, for a digest: sorted by the server, not by us
}

// Tool is a declared tool.
type Tool struct {
	Name, Title, Description string
	Schema                   json.RawMessage
	ReadOnly, Idempotent     *bool
	Destructive, OpenWorld   *bool
}

// Deviation is a departure from the specification.
type Deviation struct {
	Place, Rule, What string
	Severity          bodycam.Severity
}

// Session is a conversation with a server.
type Session struct {
	s   *sdk.ClientSession
	end context.CancelCauseFunc
}

// MaxTools bounds the tools that are read of a server.
const MaxTools = 5000

// Patience is how long a server may take to answer that it is there: as long as the protocol's other clients wait.
const Patience = time.Minute

// Connect begins a session. Close must be called. A server that doesn't answer within Patience is an error.
func Connect(ctx context.Context, t Target) (*Session, error) {
	var tr sdk.Transport
	switch {
	case t.URL != "" && t.SSE:
		tr = &sdk.SSEClientTransport{Endpoint: t.URL, HTTPClient: t.HTTP}
	case t.URL != "":
		tr = &sdk.StreamableClientTransport{Endpoint: t.URL, HTTPClient: t.HTTP, MaxRetries: 1}
	case t.Pipe != nil:
		tr = &sdk.IOTransport{Reader: t.Pipe, Writer: t.Pipe}
	case len(t.Command) > 0:
		cmd := exec.Command(t.Command[0], t.Command[1:]...)
		cmd.Env, cmd.Dir = t.Env, t.Dir
		if cmd.Env == nil {
			cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent"}
		}
		tr = &sdk.CommandTransport{Command: cmd, TerminateDuration: 2 * time.Second}
	default:
		return nil, errors.New("a tool server needs a command or a URL")
	}
	c := sdk.NewClient(&sdk.Implementation{Name: "bodycam", Version: "1"}, nil)
	ctx, end := context.WithCancelCause(ctx) // the connection lives as long as it does, so it has no deadline
	patience := cmp.Or(t.Patience, Patience)
	late := time.AfterFunc(patience, func() { end(fmt.Errorf("it didn't answer within %s", patience)) })
	s, err := c.Connect(ctx, tr, nil)
	if !late.Stop() || err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		end(nil)
		if s != nil {
			_ = s.Close()
		}
		return nil, fmt.Errorf("connecting to the tool server: %w", err)
	}
	return &Session{s, end}, nil
}

// Close ends the session and the command that was started for it.
func (s *Session) Close() error {
	defer s.end(nil)
	return s.s.Close()
}

// Describe reads what the server declares.
func (s *Session) Describe(ctx context.Context) (*Server, error) {
	init := s.s.InitializeResult()
	out := &Server{Protocol: init.ProtocolVersion, Instructions: init.Instructions}
	if init.ServerInfo != nil {
		out.Name, out.Title, out.Version = init.ServerInfo.Name, init.ServerInfo.Title, init.ServerInfo.Version
	}
	if out.Name == "" {
		out.deviate("serverInfo.name", "MCP 2025-06-18 Lifecycle, Initialization", "the server has no name")
	}
	var raw []*sdk.Tool
	if init.Capabilities == nil || init.Capabilities.Tools == nil {
		out.deviate("capabilities.tools", "MCP 2025-06-18 Tools, Capabilities", "the server doesn't declare the tools capability")
	}
	for t, err := range s.s.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("listing the server's tools: %w", err)
		}
		if len(raw) >= MaxTools {
			return nil, fmt.Errorf("the server lists more than %d tools", MaxTools)
		}
		raw = append(raw, t)
		out.tool(t, len(raw)-1)
	}
	var err error
	if out.Raw, err = json.Marshal(raw); err != nil {
		return nil, fmt.Errorf("keeping the server's declaration: %w", err)
	}
	return out, nil
}

func (s *Server) deviate(place, rule, what string) {
	s.Deviations = append(s.Deviations, Deviation{place, rule, what, bodycam.Low})
}

func (s *Server) tool(t *sdk.Tool, i int) {
	const rule = "MCP 2025-06-18 Tools, Tool"
	place := fmt.Sprintf("tools[%d]", i)
	o := Tool{Name: t.Name, Title: t.Title, Description: t.Description}
	if t.InputSchema == nil {
		s.deviate(place+".inputSchema", rule, "it is missing, and required")
	} else if b, err := json.Marshal(t.InputSchema); err == nil {
		o.Schema = b
	}
	if strings.TrimSpace(t.Name) == "" {
		s.deviate(place+".name", rule, "it is empty, and required")
	}
	for _, p := range s.Tools {
		if p.Name == t.Name {
			s.deviate(place+".name", rule, fmt.Sprintf("%q is not unique", bodycam.Escape(t.Name)))
			break
		}
	}
	if a := t.Annotations; a != nil {
		o.ReadOnly, o.Idempotent, o.Destructive, o.OpenWorld = &a.ReadOnlyHint, &a.IdempotentHint, a.DestructiveHint, a.OpenWorldHint
		if a.ReadOnlyHint && a.DestructiveHint != nil && *a.DestructiveHint {
			s.deviate(place+".annotations", rule, "the tool says that it is read-only and destructive")
		}
	}
	s.Tools = append(s.Tools, o)
}

// Result is what a tool answered.
type Result struct {
	Text   string
	Failed bool
}

// Call calls a tool. That the tool says it failed is no error.
func (s *Session) Call(ctx context.Context, name string, args any) (*Result, error) {
	r, err := s.s.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return nil, fmt.Errorf("calling the tool %q: %w", bodycam.Escape(name), err)
	}
	out := &Result{Failed: r.IsError}
	var parts []string
	for _, c := range r.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			parts = append(parts, t.Text)
		}
	}
	out.Text = strings.Join(parts, "\n")
	return out, nil
}
