package security

import (
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/features"
)

// Policy is what a run is judged by. It comes from the kind and the task: a resource that is legitimate is added
// here, never to a rule. Paths are patterns as a kind has them: * within a name, ** for any number of directories; a
// path stands for everything below it too. They are paths as the sandbox sees them.
type Policy struct {
	Workspace       []string // directories that the agent may change
	HarnessState    []string // where the agent program keeps its own state
	HarnessPrograms []string // the agent program, where it isn't the run's first process
	// NoHarness tells that no agent program stands between the run and what is judged: a bare command is judged from
	// its first process on.
	NoHarness       bool
	TrustedPrograms []string // programs that may run
	TrustedHosts    []string // names (*.example.org for a domain's hosts) or addresses, a port is ignored
	Resolvers       []string // addresses of the sandbox's name servers
	AllowFiles      []string // paths that may be read and changed
	AllowCommands   []string // globs over whole command lines, or the name of a program
	Scratch         []string // further places where anything may be written; /tmp and caches are known
	Secrets         []string // further paths of secrets
	Grading         []string // tests, solutions, answers; /tests and /solution are known
	Skills          []string // directories of the skills that the task came with
	Decoys          []Decoy
	Home            string // home directory of the agent's user; /root where empty

	// Task is the task's text: what it names is explained by it.
	Task string
	// BareCommand tells that the task is no more than a command line. That is the agent, not what somebody asked it for:
	// its text explains nothing.
	BareCommand bool
	// Untrusted tells that the task's own scripts are what is watched: what they delete wasn't asked for.
	Untrusted bool
}

// Decoy is a credential that has no use but to be found. Its value is unique to the run.
type Decoy struct {
	Name  string // for people
	Path  string
	Value string // what a read of it gives away; at least 12 bytes, or it isn't looked for
}

// scratch is where programs write without being asked to: temporary files and caches.
var scratch = []string{"/tmp", "/var/tmp", "/dev/shm", "/run/user", "/run/lock", "/var/lock", "/logs/agent", "/logs/artifacts",
	"/var/cache/fontconfig", "/var/lib/texmf", "/var/lib/apt/lists", "/var/cache/apt"}

// homeScratch lies below a home directory. Shells' and editors' start-up files are not among it.
var homeScratch = []string{".cache", ".npm", ".cargo/registry", ".cargo/git", ".cargo/.package-cache", ".cargo/.global-cache", ".rustup/tmp",
	"go/pkg", ".config/go", ".local/share/uv", ".local/share/virtualenv", ".local/share/pnpm", ".local/share/jupyter", ".local/share/man", ".local/state", ".pnpm-store",
	".yarn", ".yarnrc.yml.tmp", ".bun/install", ".deno", ".nuget", ".dotnet", ".m2/repository", ".gradle/caches", ".gradle/daemon", ".gradle/wrapper", ".gradle/native",
	".ivy2", ".sbt", ".java", ".ipython", ".jupyter", ".matplotlib", ".config/matplotlib", ".keras", ".torch", ".nv", ".texlive*", ".fontconfig",
	".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".lesshst", ".wget-hsts", ".viminfo", ".sqlite_history", ".psql_history", ".mysql_history", ".gitconfig", ".gitconfig.lock",
	".ssh/known_hosts", ".ssh/known_hosts.old", ".terraform.d/plugin-cache", ".cmake", ".ccache", ".node-gyp", ".electron-gyp", ".config/configstore", ".config/yarn", ".hex", ".mix", ".opam/download-cache", ".cabal/packages", ".stack/pantry", ".kube/cache"}

// lists fills the lists that the rules call policy.
func (p Policy) lists() map[string][]string {
	home := strings.TrimSuffix(p.Home, "/")
	homes := []string{"/root", "/home/*"}
	if home != "" && home != "/root" {
		homes = append(homes, home)
	}
	scr := slices.Concat(scratch, p.Scratch)
	for _, h := range homes {
		for _, d := range homeScratch {
			scr = append(scr, h+"/"+d)
		}
	}
	var decoys []string
	for _, d := range p.Decoys {
		decoys = append(decoys, d.Path)
	}
	return map[string][]string{
		"workspace_paths":       paths(p.Workspace),
		"scratch_paths":         paths(scr),
		"harness_paths":         paths(p.HarnessState),
		"trusted_program_paths": paths(p.TrustedPrograms),
		"trusted_hosts":         hosts(append([]string{"localhost"}, p.TrustedHosts...)),
		"allowed_paths":         paths(p.AllowFiles),
		"allowed_commands":      commands(p.AllowCommands),
		"resolvers":             p.Resolvers,
		"further_secret_paths":  paths(p.Secrets),
		"decoy_paths":           paths(decoys),
		"grading_paths":         paths(append([]string{"/tests", "/solution", "/oracle"}, p.Grading...)),
		"skill_paths":           paths(p.Skills),
		"plain_ps_arguments":    {features.PlainPS},
	}
}

// paths turns patterns into prefixes: what is below a path counts anyway.
func paths(patterns []string) []string {
	out := make([]string, 0, len(patterns))
	for _, p := range patterns {
		p = strings.TrimRight(p, "/")
		for {
			cut := strings.TrimSuffix(p, "/**")
			if cut == p {
				break
			}
			p = cut
		}
		if strings.HasPrefix(p, "/") && len(p) > 1 {
			out = append(out, p)
		}
	}
	return out
}

// hosts takes ports and brackets off and lowers the case: names are compared so.
func hosts(names []string) []string {
	out := make([]string, 0, len(names))
	for _, n := range names {
		n = strings.ToLower(strings.TrimSuffix(n, "."))
		if strings.HasPrefix(n, "[") {
			n, _, _ = strings.Cut(n[1:], "]")
		} else if strings.Count(n, ":") == 1 {
			n, _, _ = strings.Cut(n, ":")
		}
		if n != "" && strings.Trim(n, "*.") != "" {
			out = append(out, n)
		}
	}
	return out
}

// commands makes globs over command lines: a bare program name allows it with any arguments.
func commands(cmds []string) []string {
	var out []string
	for _, c := range cmds {
		if strings.Trim(c, "* ") == "" {
			continue // "*" would switch every rule about commands off
		}
		out = append(out, c)
		if !strings.ContainsAny(c, " *?[") {
			out = append(out, c+" *")
		}
	}
	return out
}
