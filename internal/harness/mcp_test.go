package harness

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

// everything is the reference server of the Model Context Protocol, from npm (scripts/harness.sh mcp-everything).
func everything(t *testing.T) MCPServer {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("needs Node.js: %v", err)
	}
	program, err := filepath.Abs("../../.harness/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
	if err != nil {
		t.Fatal(err)
	}
	if !isFile(program) {
		t.Skip("needs the npm package @modelcontextprotocol/server-everything: make deps installs it")
	}
	// It takes its time: an agent must wait for its tools.
	return MCPServer{Name: "every.thing", Transport: MCPStdio, Command: "/bin/sh", Args: []string{"-c", `sleep 2; exec "$0" "$@"`, node, program, "stdio"}}
}

// Each real harness starts a real tool server, offers its tools to the model and calls one; the row of it has what the
// tool answered.
func TestToolServers(t *testing.T) {
	for _, c := range []struct {
		h    Harness
		pkg  string
		tool string
	}{
		{builtinAgent{inTests}, "", "mcp__every_thing__echo"},
		{codex{}, "@openai/codex@" + CodexVersion, "mcp__every_thing.echo"},
		{claudeCode{}, "@anthropic-ai/claude-code@" + ClaudeCodeVersion, "mcp__every_thing__echo"},
		{geminiCLI{}, "@google/gemini-cli@" + GeminiVersion, "mcp_every_thing_echo"},
	} {
		t.Run(c.h.Name(), func(t *testing.T) {
			server := everything(t)
			if c.pkg != "" {
				install(t, c.h, c.pkg)
			}
			b := newBox(t, "stock: A title\nturns:\n  - call: {tool: "+c.tool+", args: {message: hello there}}\n"+
				"  - expect: 'Echo: hello there'\n    text: All done.\n")
			r := b.request("Say hello with your tool.")
			r.MCP = []MCPServer{server}
			inv, err := c.h.Prepare(context.Background(), r)
			if err != nil {
				t.Fatal(err)
			}
			rows, exit := b.run(inv)
			found := false
			for _, r := range rows {
				if r.Kind == bodycam.RowTool && strings.Contains(r.Tool, "echo") {
					found = true
					if !strings.Contains(r.Args, "hello there") || !strings.Contains(r.Output, "Echo: hello there") || r.Failed || r.Ended.IsZero() {
						t.Errorf("the row is %+v", r)
					}
				}
			}
			if !found || exit != 0 {
				t.Errorf("exit %d, rows %+v", exit, rows)
			}
		})
	}
}

// What a harness can't have is said, and the address of what it can is in its settings.
func TestToolServersByAddress(t *testing.T) {
	b := newBox(t, "turns: [{text: x}]")
	r := b.request("x")
	r.MCP = []MCPServer{{Name: "old", Transport: MCPSSE, URL: "http://a.example/sse"}, {Name: "new", Transport: MCPHTTP, URL: "http://b.example/mcp"}}
	for _, c := range []struct {
		h    Harness
		pkg  string
		want []string
		less int
	}{
		{codex{}, "@openai/codex@" + CodexVersion, []string{"http://b.example/mcp"}, 1},
		{claudeCode{}, "@anthropic-ai/claude-code@" + ClaudeCodeVersion, []string{`"type": "sse"`, "http://a.example/sse", "http://b.example/mcp"}, 0},
		{geminiCLI{}, "@google/gemini-cli@" + GeminiVersion, []string{`"url":"http://a.example/sse"`, `"httpUrl":"http://b.example/mcp"`}, 0},
		{builtinAgent{inTests}, "", []string{"http://a.example/sse", "http://b.example/mcp", `"sse": true`}, 0},
		{command{}, "", []string{"http://a.example/sse", "http://b.example/mcp"}, 0},
	} {
		t.Run(c.h.Name(), func(t *testing.T) {
			if c.pkg != "" {
				install(t, c.h, c.pkg)
			}
			r := r
			if c.h.Name() == "command" {
				r.Params = map[string]any{"command": "true"}
			}
			inv, err := c.h.Prepare(context.Background(), r)
			if err != nil {
				t.Fatal(err)
			}
			var files strings.Builder
			for _, f := range inv.Files {
				files.Write(f.Content)
			}
			for _, w := range c.want {
				if !strings.Contains(files.String(), w) {
					t.Errorf("%q isn't in the settings:\n%s", w, files.String())
				}
			}
			if len(inv.Unserved) != c.less {
				t.Errorf("not served are %v", inv.Unserved)
			}
		})
	}
}

// A server that isn't there is told, and the agent goes on.
func TestToolServerMissing(t *testing.T) {
	b := newBox(t, "turns:\n  - sh: echo still here\n  - text: x\n")
	r := b.request("x")
	r.MCP = []MCPServer{{Name: "gone", Transport: MCPStdio, Command: "no-such-server"}, {Name: "dies", Transport: MCPStdio, Command: "/bin/false"}}
	inv, err := builtinAgent{inTests}.Prepare(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	rows, exit := b.run(inv)
	said := ""
	for _, r := range rows {
		if r.Kind == bodycam.RowError {
			said += r.Text + "\n"
		}
	}
	if !strings.Contains(said, "gone") || !strings.Contains(said, "dies") || exit != 0 || tools(rows) != "echo still here | 0 | \"still here\\n\"\n" {
		t.Errorf("exit %d, %q\n%s", exit, said, tools(rows))
	}
}

// harnesses are those that scripts/harness.sh installed, if any.
func harnesses() {
	dir, err := filepath.Abs("../../.harness")
	if err == nil && os.Getenv(HarnessDirEnv) == "" {
		if _, err := os.Stat(dir); err == nil {
			os.Setenv(HarnessDirEnv, dir)
		}
	}
}
