package harness

import (
	"encoding/json"
	"fmt"
	"regexp"
)

// MCPServer is a tool server of the Model Context Protocol that the agent shall have. One with a command is started by
// the agent program inside the box; of the others the agent gets the address.
type MCPServer struct {
	Name      string
	Transport string // the MCP constants
	URL       string
	Command   string
	Args      []string
}

// The transports.
const (
	MCPStdio = "stdio"
	MCPHTTP  = "streamable-http"
	MCPSSE   = "sse"
)

var notInName = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// key is the server's name as every harness takes it.
func (m *MCPServer) key() string { return notInName.ReplaceAllString(m.Name, "_") }

// mcpServers writes the servers in the form that Claude Code's --mcp-config has, and others after it.
func mcpServers(list []MCPServer, entry func(*MCPServer) map[string]any) map[string]any {
	out := map[string]any{}
	for i := range list {
		m := &list[i]
		e := map[string]any{}
		if m.Transport == MCPStdio {
			args := m.Args
			if args == nil {
				args = []string{}
			}
			e["command"], e["args"] = m.Command, args
		}
		for k, v := range entry(m) {
			e[k] = v
		}
		out[m.key()] = e
	}
	return out
}

// mcpConfig is a file for --mcp-config.
func mcpConfig(list []MCPServer) ([]byte, error) {
	servers := mcpServers(list, func(m *MCPServer) map[string]any {
		switch m.Transport {
		case MCPStdio:
			return map[string]any{"type": "stdio"}
		case MCPSSE:
			return map[string]any{"type": "sse", "url": m.URL}
		}
		return map[string]any{"type": "http", "url": m.URL}
	})
	out, err := json.MarshalIndent(map[string]any{"mcpServers": servers}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the tool servers' configuration: %w", err)
	}
	return out, nil
}

// without leaves out the servers that a harness can't have, and says which and why.
func (inv *Invocation) without(list []MCPServer, why func(*MCPServer) string) []MCPServer {
	var out []MCPServer
	for i := range list {
		if w := why(&list[i]); w != "" {
			inv.Unserved = append(inv.Unserved, Unserved{Server: list[i].Name, Why: w})
			continue
		}
		out = append(out, list[i])
	}
	return out
}

// Unserved is a tool server that the agent doesn't get.
type Unserved struct {
	Server, Why string
}
