package model

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"
)

// tool is a tool that the client offers.
type tool struct {
	Name      string
	Namespace string         // of tools that come in a namespace; part of the call
	Custom    bool           // takes text instead of arguments
	Schema    map[string]any // JSON Schema of the arguments; nil where the client gave none
}

func (t tool) full() string {
	if t.Namespace == "" {
		return t.Name
	}
	return t.Namespace + "." + t.Name
}

// call is a tool call, ready to be written in any API.
type call struct {
	ID    string
	Tool  tool
	Args  map[string]any // of an ordinary tool
	Input string         // of a custom tool
}

func (c call) argsJSON() string {
	if c.Args == nil {
		return "{}"
	}
	b, err := json.Marshal(c.Args)
	if err != nil { // YAML values and strings: always possible
		return "{}"
	}
	return string(b)
}

// answer is one turn of the model.
type answer struct {
	Text  string
	Calls []call
}

// Names of tools by what they do, the likeliest first. Compared without case.
var (
	shellTools = []string{"exec_command", "shell_command", "shell", "container.exec", "bash", "run_shell_command",
		"execute_bash", "execute_command", "run_command", "run_terminal_cmd", "run_in_terminal", "terminal", "exec"}
	writeTools = []string{"write", "write_file", "write_to_file", "create_file", "create", "str_replace_based_edit_tool",
		"str_replace_editor"}
	patchTools = []string{"apply_patch"}

	commandKeys = []string{"cmd", "command", "commands", "script"}
	pathKeys    = []string{"file_path", "filePath", "path", "absolute_path", "filename", "file"}
	contentKeys = []string{"content", "file_text", "contents", "text"}
)

func pick(tools []tool, names ...string) (tool, bool) {
	for _, n := range names {
		for _, t := range tools {
			if strings.EqualFold(t.Name, n) || strings.EqualFold(t.full(), n) {
				return t, true
			}
		}
	}
	return tool{}, false
}

func offered(tools []tool) string {
	if len(tools) == 0 {
		return "no tools"
	}
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.full()
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}

// answer makes a turn into text and calls of the tools that the client offers.
func (p *place) answer(tools []tool, idPrefix string) (answer, error) {
	t := p.turn
	a := answer{Text: p.fill(t.Text)}
	parts := t.Calls
	if len(parts) == 0 && t.acts() {
		parts = []Turn{*t}
	}
	for k := range parts {
		c, err := p.call(&parts[k], tools)
		if err != nil {
			return a, err
		}
		c.ID = callID(idPrefix, p.conversation, p.number, k+1)
		a.Calls = append(a.Calls, c)
	}
	return a, nil
}

func (p *place) call(t *Turn, tools []tool) (call, error) {
	only := func(names []string) []string {
		if t.Tool != "" {
			return []string{t.Tool}
		}
		return names
	}
	switch {
	case t.Call != nil:
		return p.named(t.Call, tools)
	case t.Sh != "":
		tl, ok := pick(tools, only(shellTools)...)
		if !ok {
			return call{}, misfitf("line %d runs a shell command, but the client offers no shell tool (%s)", t.line, offered(tools))
		}
		return shellCall(tl, p.fill(t.Sh)), nil
	case t.Patch != "":
		tl, ok := pick(tools, only(patchTools)...)
		if !ok {
			return call{}, misfitf("line %d applies a patch, but the client does not offer apply_patch (%s)", t.line, offered(tools))
		}
		return patchCall(tl, p.fill(t.Patch)), nil
	case t.Write != nil:
		return p.write(t, tools)
	}
	return call{}, misfitf("line %d calls no tool", t.line)
}

func (p *place) named(c *Call, tools []tool) (call, error) {
	tl, ok := pick(tools, c.Tool)
	if !ok {
		return call{}, misfitf("the script calls the tool %q, but the client offers %s", c.Tool, offered(tools))
	}
	out := call{Tool: tl}
	if tl.Custom {
		out.Input = p.fill(c.Input)
		return out, nil
	}
	if c.Input != "" {
		return call{}, misfitf("the script gives the tool %q text as its input, but the client's tool takes arguments", c.Tool)
	}
	out.Args, _ = eachString(c.Args, p.fill).(map[string]any)
	return out, nil
}

func (p *place) write(t *Turn, tools []tool) (call, error) {
	name, content := p.fill(t.Write.Path), p.fill(t.Write.Content)
	if t.Tool == "" {
		if tl, ok := pick(tools, writeTools...); ok {
			return writeCall(tl, name, content), nil
		}
		if tl, ok := pick(tools, patchTools...); ok {
			return patchCall(tl, addFile(name, content)), nil
		}
		if tl, ok := pick(tools, shellTools...); ok {
			return shellCall(tl, shellWrite(name, content)), nil
		}
		return call{}, misfitf("line %d writes a file, but the client offers neither a write tool, nor apply_patch, nor a shell (%s)", t.line, offered(tools))
	}
	tl, ok := pick(tools, t.Tool)
	switch {
	case !ok:
		return call{}, misfitf("line %d wants the tool %q, but the client offers %s", t.line, t.Tool, offered(tools))
	case containsFold(patchTools, tl.Name):
		return patchCall(tl, addFile(name, content)), nil
	case containsFold(shellTools, tl.Name):
		return shellCall(tl, shellWrite(name, content)), nil
	}
	return writeCall(tl, name, content), nil
}

func containsFold(list []string, s string) bool {
	return slices.ContainsFunc(list, func(l string) bool { return strings.EqualFold(l, s) })
}

func shellCall(tl tool, command string) call {
	if tl.Custom { // codex's code mode: a JavaScript program that calls tools
		js, _ := json.Marshal(command)
		return call{Tool: tl, Input: fmt.Sprintf("text(await tools.exec_command({cmd: %s}))", js)}
	}
	fallback := "command"
	if strings.EqualFold(tl.Name, "exec_command") {
		fallback = "cmd"
	}
	key, prop := property(tl.Schema, commandKeys, fallback)
	var value any = command
	if typeOf(prop) == "array" {
		value = []any{"bash", "-lc", command}
	}
	return call{Tool: tl, Args: complete(tl.Schema, map[string]any{key: value})}
}

func writeCall(tl tool, name, content string) call {
	pathKey, _ := property(tl.Schema, pathKeys, "file_path")
	contentKey, _ := property(tl.Schema, contentKeys, "content")
	args := map[string]any{pathKey: name, contentKey: content}
	if strings.HasPrefix(strings.ToLower(tl.Name), "str_replace") {
		args = map[string]any{"command": "create", "path": name, "file_text": content}
	}
	return call{Tool: tl, Args: complete(tl.Schema, args)}
}

func patchCall(tl tool, patch string) call {
	if tl.Custom {
		return call{Tool: tl, Input: patch}
	}
	key, _ := property(tl.Schema, []string{"input", "patch"}, "input")
	return call{Tool: tl, Args: complete(tl.Schema, map[string]any{key: patch})}
}

// addFile is a patch that writes a whole file.
func addFile(name, content string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*** Begin Patch\n*** Add File: %s\n", name)
	for _, line := range strings.Split(strings.TrimSuffix(content, "\n"), "\n") {
		b.WriteString("+" + line + "\n")
	}
	b.WriteString("*** End Patch")
	return b.String()
}

// shellWrite is a shell command that writes a whole file.
func shellWrite(name, content string) string {
	return fmt.Sprintf("mkdir -p %s && printf '%%s' %s > %s", quote(path.Dir(name)), quote(content), quote(name))
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func properties(schema map[string]any) map[string]any {
	p, _ := schema["properties"].(map[string]any)
	return p
}

// property returns the first of the names that the schema has, with its own schema.
func property(schema map[string]any, names []string, fallback string) (string, map[string]any) {
	props := properties(schema)
	for _, n := range names {
		if p, ok := props[n].(map[string]any); ok {
			return n, p
		}
	}
	return fallback, nil
}

// complete adds what the schema requires and the script doesn't say, so that strict clients accept the call.
func complete(schema map[string]any, args map[string]any) map[string]any {
	required, _ := schema["required"].([]any)
	props := properties(schema)
	for _, r := range required {
		name, _ := r.(string)
		if _, ok := args[name]; ok || name == "" {
			continue
		}
		prop, _ := props[name].(map[string]any)
		args[name] = zero(prop)
	}
	return args
}

func zero(prop map[string]any) any {
	if e, ok := prop["enum"].([]any); ok && len(e) > 0 {
		return e[0]
	}
	switch typeOf(prop) {
	case "boolean":
		return false
	case "integer", "number":
		if m, ok := prop["minimum"]; ok {
			return m
		}
		return 0
	case "array":
		return []any{}
	case "object":
		return map[string]any{}
	}
	return "scripted step"
}

// typeOf returns a property's type. Gemini's schemas write it in capitals; others may give a list.
func typeOf(prop map[string]any) string {
	switch t := prop["type"].(type) {
	case string:
		return strings.ToLower(t)
	case []any:
		if len(t) > 0 {
			s, _ := t[0].(string)
			return strings.ToLower(s)
		}
	}
	return ""
}
