package bodycam

import (
	"path"
	"strings"
)

// SplitShell splits a command line into words as a POSIX shell does before any expansion: blanks separate, quotes
// and backslashes are taken away. Operators (";", "|", "&", parentheses, redirections) are ordinary characters
// here: it undoes quoting of an argv, it isn't a parser of scripts. ok is false where a quote doesn't end; words
// then holds what was read.
func SplitShell(s string) (words []string, ok bool) {
	var b strings.Builder
	in, quote := false, byte(0) // in: a word has begun
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote == '\'':
			if c == '\'' {
				quote = 0
			} else {
				b.WriteByte(c)
			}
		case quote == '"':
			switch {
			case c == '"':
				quote = 0
			case c == '\\' && i+1 < len(s) && strings.IndexByte("\"\\$`\n", s[i+1]) >= 0:
				i++
				if s[i] != '\n' {
					b.WriteByte(s[i])
				}
			default:
				b.WriteByte(c)
			}
		case c == '\'' || c == '"':
			in, quote = true, c
		case c == '\\' && i+1 < len(s):
			i++
			if s[i] != '\n' { // a backslash before a line feed joins the lines
				in = true
				b.WriteByte(s[i])
			}
		case c == ' ' || c == '\t' || c == '\n':
			if in {
				words = append(words, b.String())
				b.Reset()
				in = false
			}
		default:
			in = true
			b.WriteByte(c)
		}
	}
	if in {
		words = append(words, b.String())
	}
	return words, quote == 0
}

// shells are programs that take a script after -c.
var shells = map[string]bool{"sh": true, "bash": true, "dash": true, "ash": true, "zsh": true, "ksh": true, "mksh": true, "rbash": true}

// wrappers are programs that run the command in their arguments, so that a shell may stand behind them.
var wrappers = map[string]bool{"env": true, "timeout": true, "nohup": true, "setsid": true, "nice": true, "ionice": true,
	"stdbuf": true, "sudo": true, "time": true, "exec": true, "command": true, "busybox": true, "xargs": true, "script": true, "unbuffer": true}

// IsShell tells whether a program of that path is a shell that takes scripts after -c.
func IsShell(exe string) bool { return shells[path.Base(strings.TrimPrefix(exe, "-"))] }

// ShellScript returns the script of an argv that starts a shell with -c: "bash -lc SCRIPT", "sh -c SCRIPT NAME ARG",
// "env -i PATH=/bin bash --norc -o pipefail -c SCRIPT". A few programs that only start another one (env, timeout,
// nohup, sudo …) may stand before the shell.
func ShellScript(argv []string) (script string, ok bool) {
	if len(argv) == 0 {
		return "", false
	}
	if IsShell(argv[0]) {
		return scriptOf(argv[1:])
	}
	if !wrappers[path.Base(argv[0])] {
		return "", false
	}
	for i := 1; i < len(argv); i++ {
		if IsShell(argv[i]) {
			return scriptOf(argv[i+1:])
		}
	}
	return "", false
}

// scriptOf reads a shell's own arguments.
func scriptOf(args []string) (string, bool) {
	command := false
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			if command && i+1 < len(args) {
				return args[i+1], true
			}
			return "", false
		case a == "--rcfile" || a == "--init-file":
			i++
		case strings.HasPrefix(a, "--"):
		case len(a) > 1 && (a[0] == '-' || a[0] == '+'):
			command = command || a[0] == '-' && strings.Contains(a, "c")
			if strings.HasSuffix(a, "o") || strings.HasSuffix(a, "O") { // -o pipefail, -euo pipefail
				i++
			}
		case command:
			return a, true
		default:
			return "", false
		}
	}
	return "", false
}

// Unwrap returns the script that a command line hands to a shell ("/bin/bash -lc 'ls -la'" gives "ls -la"), or the
// line itself where it starts no shell with -c.
func Unwrap(command string) string {
	first, _, _ := strings.Cut(strings.TrimLeft(command, " \t\n"), " ")
	if !IsShell(first) && !wrappers[path.Base(first)] {
		return command
	}
	words, ok := SplitShell(command)
	if !ok {
		return command
	}
	// What follows the script must be the shell's business (a name and arguments), not another command.
	script, ok := ShellScript(words)
	if !ok || hasOperator(command) {
		return command
	}
	return script
}

// hasOperator tells whether an operator stands outside quotes, so that the line is more than one simple command.
func hasOperator(s string) bool {
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote == '\'':
			if c == '\'' {
				quote = 0
			}
		case c == '\\':
			i++
		case quote == '"':
			if c == '"' {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case strings.IndexByte(";|&<>()\n", c) >= 0:
			return true
		}
	}
	return false
}
