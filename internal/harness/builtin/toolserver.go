package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/harness/transcript"
	"github.com/bodycam-dev/bodycam/internal/mcp"
)

// ToolServer is a server of the Model Context Protocol whose tools the agent offers to its model.
type ToolServer struct {
	Name    string   `json:"name"`
	Command []string `json:"command,omitempty"` // started by the agent, spoken to on its standard streams
	URL     string   `json:"url,omitempty"`
	SSE     bool     `json:"sse,omitempty"` // the older transport of URL
}

// Bounds of what tool servers may take.
const (
	mostTools    = 256
	connectBound = time.Minute
	maxToolName  = 64 // of the Chat Completions API
)

// toolbox holds the sessions with the tool servers and the tools that they offer.
type toolbox struct {
	sessions []*mcp.Session
	byName   map[string]serverTool
	offered  []any // as the model gets them
	order    []string
}

type serverTool struct {
	session      *mcp.Session
	server, tool string
}

// open connects to the servers. One that can't be had is told in the transcript, and the agent goes on without it.
func (b *toolbox) open(ctx context.Context, a *agent) {
	b.byName = map[string]serverTool{}
	for i := range a.cfg.MCP {
		s := &a.cfg.MCP[i]
		if err := b.add(ctx, s, a.cfg.Workdir); err != nil {
			a.out.row(bodycam.RowError, fmt.Sprintf("tool server %s: %v", s.Name, err))
		}
	}
}

func (b *toolbox) add(ctx context.Context, s *ToolServer, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, connectBound)
	defer cancel()
	session, err := mcp.Connect(ctx, mcp.Target{Command: s.Command, Env: commandEnv(), Dir: dir, URL: s.URL, SSE: s.SSE})
	if err != nil {
		return err
	}
	b.sessions = append(b.sessions, session)
	d, err := session.Describe(ctx)
	if err != nil {
		return err
	}
	for i := range d.Tools {
		if len(b.offered) == mostTools {
			return fmt.Errorf("its last %d tools are left out: there are more than %d", len(d.Tools)-i, mostTools)
		}
		b.offer(session, s.Name, &d.Tools[i])
	}
	return nil
}

func (b *toolbox) offer(session *mcp.Session, server string, t *mcp.Tool) {
	whole := toolName(server, t.Name)
	name := whole
	for n := 2; b.byName[name].tool != ""; n++ { // cut, or written otherwise, names may be alike
		number := fmt.Sprintf("_%d", n)
		name = whole[:min(len(whole), maxToolName-len(number))] + number
	}
	schema := t.Schema
	if len(schema) == 0 {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	b.byName[name] = serverTool{session, server, t.Name}
	b.order = append(b.order, name)
	b.offered = append(b.offered, map[string]any{"type": "function",
		"function": map[string]any{"name": name, "description": t.Description, "parameters": schema}})
}

// toolName is a name that the API takes, as other harnesses make it.
func toolName(server, tool string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, "mcp__"+server+"__"+tool)
	return name[:min(len(name), maxToolName)]
}

func (b *toolbox) names() []string { return append([]string{"shell"}, b.order...) }

func (b *toolbox) close() {
	for _, s := range b.sessions {
		_ = s.Close() // how a server ends is in the record
	}
}

// callServer calls a tool of a server and returns what the model is told. start is the row's beginning.
func (a *agent) callServer(ctx context.Context, t serverTool, start transcript.RowLine) string {
	a.out.print(start)
	end := transcript.RowLine{Event: "end", CallID: start.CallID}
	var args map[string]any
	if start.Args != "" {
		if err := json.Unmarshal([]byte(start.Args), &args); err != nil {
			end.Output, end.Failed = "the arguments must be a JSON object", true
			a.out.print(end)
			return end.Output
		}
	}
	ctx, cancel := context.WithTimeout(ctx, seconds(a.cfg.CommandSeconds))
	defer cancel()
	r, err := t.session.Call(ctx, t.tool, args)
	if err != nil {
		end.Output, end.Failed = err.Error(), true
	} else {
		end.Output, end.Failed = r.Text, r.Failed
	}
	if over := len(end.Output) - a.cfg.OutputBytes; over > 0 {
		end.Output, end.Cut = fmt.Sprintf("%s\n[%d bytes left out]", end.Output[:a.cfg.OutputBytes], over), true
	}
	a.out.print(end)
	return strings.ToValidUTF8(end.Output, "\uFFFD")
}
