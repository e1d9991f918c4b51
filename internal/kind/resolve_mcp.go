package kind

import (
	"slices"
	"strings"
)

// toolServers are the task's and those of the kind that the task doesn't replace.
func (r *resolver) toolServers() []MCPServer {
	var out []MCPServer
	for _, list := range [][]MCPServer{r.t.Environment.MCPServers, r.k.Agent.MCPServers} {
		for _, m := range list {
			if slices.ContainsFunc(out, func(o MCPServer) bool { return o.Name == m.Name }) {
				continue
			}
			if m.Transport == "" && m.URL != "" {
				m.Transport = "streamable-http"
			} else if m.Transport == "" {
				m.Transport = mcpStdio
			}
			switch {
			case m.Transport == mcpStdio && m.Command == "":
				r.fail("tool server %q: transport stdio needs a command", m.Name)
			case m.Transport != mcpStdio && !strings.HasPrefix(m.URL, "http://") && !strings.HasPrefix(m.URL, "https://"):
				r.fail("tool server %q: transport %s needs a url (http://…), not %q", m.Name, m.Transport, m.URL)
			}
			out = append(out, m)
		}
	}
	return out
}

const mcpStdio = "stdio"
