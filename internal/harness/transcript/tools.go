package transcript

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// shellNames are tools that run a shell command, whatever harness has them.
var shellNames = []string{"bash", "shell", "shell_command", "exec_command", "local_shell", "container.exec",
	"run_shell_command", "execute_bash", "execute_command", "run_command", "run_terminal_cmd", "run_in_terminal",
	"terminal", "bash_command", "execute_ipython_cell"}

// writeNames are tools that change a file named in their arguments.
var writeNames = []string{"write", "write_file", "edit", "edit_file", "multiedit", "notebookedit", "replace", "create",
	"create_file", "str_replace_editor", "str_replace_based_edit_tool", "write_to_file", "insert", "search_replace"}

// call makes a tool's name and arguments (JSON, as given) into a row: the command that a shell tool runs, the files
// that a write tool changes.
func call(id, tool string, args json.RawMessage) bodycam.Row {
	r := bodycam.Row{Kind: bodycam.RowTool, CallID: id, Tool: tool, Args: string(args)}
	var a map[string]json.RawMessage
	name := strings.ToLower(tool)
	if json.Unmarshal(args, &a) != nil {
		var patch string
		if json.Unmarshal(args, &patch) != nil {
			patch = string(args)
		}
		if name == "apply_patch" {
			r.Files = patchFiles(patch)
		}
		return r
	}
	if slices.Contains(shellNames, name) || strings.HasSuffix(name, "__bash") || strings.HasSuffix(name, ".bash") {
		r.Command = command(a)
	}
	if name == "apply_patch" {
		r.Files = patchFiles(stringOf(a, "input", "patch"))
	}
	// The Anthropic edit tool looks and changes under one name.
	if verb := stringOf(a, "command"); slices.Contains(writeNames, name) && verb != "view" {
		if f := stringOf(a, "file_path", "path", "filePath", "notebook_path", "absolute_path", "filename"); f != "" {
			r.Files = []string{f}
		}
	}
	return r
}

// command reads a shell tool's command: a string, or an argv.
func command(args map[string]json.RawMessage) string {
	for _, key := range []string{"cmd", "command", "commands", "script", "keystrokes", "input"} {
		raw, ok := args[key]
		if !ok {
			continue
		}
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return bodycam.Unwrap(s)
		}
		var argv []string
		if json.Unmarshal(raw, &argv) == nil && len(argv) > 0 {
			if script, ok := bodycam.ShellScript(argv); ok {
				return script
			}
			return Quote(argv)
		}
	}
	return ""
}

func stringOf(args map[string]json.RawMessage, keys ...string) string {
	for _, k := range keys {
		var s string
		if json.Unmarshal(args[k], &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

// Quote writes an argv as a shell would read it.
func Quote(argv []string) string {
	var b strings.Builder
	for i, a := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		if a != "" && strings.IndexFunc(a, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:=@%+,", r))
		}) < 0 {
			b.WriteString(a)
			continue
		}
		b.WriteString("'" + strings.ReplaceAll(a, "'", `'\''`) + "'")
	}
	return b.String()
}

// patchFiles lists the files that a patch in apply_patch's form, or a unified diff, names.
func patchFiles(patch string) []string {
	var files []string
	for line := range strings.Lines(patch) {
		line = strings.TrimRight(line, "\r\n")
		for _, mark := range []string{"*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "} {
			if f, ok := strings.CutPrefix(line, mark); ok && !slices.Contains(files, f) && len(files) < 1000 {
				files = append(files, f)
			}
		}
	}
	return files
}
