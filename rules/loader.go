package rules

import (
	"path"
	"strings"
)

// The system's loader runs the program that is its argument: the kernel then says of the loader what is true of that.

// loaderValues are options of the loader (glibc's and musl's) that take the next argument.
var loaderValues = map[string]bool{"--library-path": true, "--argv0": true, "--preload": true, "--audit": true, "--inhibit-rpath": true,
	"--glibc-hwcaps-prepend": true, "--glibc-hwcaps-mask": true}

// loaderAsks are options with which it runs nothing.
var loaderAsks = map[string]bool{"--list": true, "--verify": true, "--help": true, "--version": true, "--list-tunables": true, "--list-diagnostics": true}

// isLoader tells whether a path is that of a dynamic loader, as ld-linux-x86-64.so.2, ld-2.36.so or ld-musl-x86_64.so.1.
func isLoader(exe string) bool {
	name := path.Base(exe)
	return name == "ld.so" || strings.HasPrefix(name, "ld-") && strings.Contains(name, ".so") || strings.HasPrefix(name, "ld64.so") || strings.HasPrefix(name, "ld.so.")
}

// loaded is the program that a loader was told to run, with its arguments; "" where the process is no loader's.
func (p *Process) loaded() (program string, argv []string) {
	if !isLoader(p.Exe) {
		return "", nil
	}
	if p.Parent != nil && path.Base(p.Parent.script()) == "ldd" && !p.Parent.ScriptWritten {
		return "", nil // it only asks for the names of libraries
	}
	for args := p.Argv[min(1, len(p.Argv)):]; len(args) > 0; args = args[1:] {
		a := args[0]
		switch {
		case loaderAsks[a]:
			return "", nil
		case loaderValues[a]:
			args = args[1:]
			if len(args) == 0 {
				return "", nil
			}
		case strings.HasPrefix(a, "--") || a == "":
		case path.IsAbs(a):
			return path.Clean(a), args
		case p.CWD != "":
			return path.Join(p.CWD, a), args
		default:
			return a, args
		}
	}
	return "", nil
}
