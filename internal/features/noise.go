package features

import (
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// NoiseList is noise that is known beforehand: what loaders, C libraries, locales, interpreters, certificate stores and
// harnesses touch for themselves, whatever the task.
type NoiseList struct {
	Name  string
	Paths []string // globs of paths; a directory stands for what is below it
	// Always tells that a path is noise also where a program was told to read it: it holds nothing of a run's own.
	Always bool
}

// ListedNoise is the list. It covers reading alone: a change of any of these is never noise, except in the places
// that [writeNoise] names.
var ListedNoise = []NoiseList{
	{Name: "programs and libraries of the system", Always: true, Paths: []string{"/usr", "/lib", "/lib64", "/lib32", "/libx32", "/bin", "/sbin"}},
	{Name: "loader", Paths: []string{"/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"}},
	{Name: "name services", Paths: []string{"/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/host.conf", "/etc/gai.conf",
		"/etc/resolv.conf", "/etc/services", "/etc/protocols", "/etc/netconfig", "/etc/networks", "/etc/hostname", "/etc/machine-id", "/run/systemd/resolve",
		"unix:/var/run/nscd/socket", "unix:/run/nscd/socket", "unix:/dev/log", "unix:/run/systemd/userdb/io.systemd.DynamicUser", "unix:/run/systemd/journal/**"}},
	{Name: "locale and terminal", Always: true, Paths: []string{"/etc/locale.alias", "/etc/localtime", "/etc/timezone", "/etc/default/locale", "/etc/terminfo", "/etc/inputrc",
		"/etc/os-release", "/etc/lsb-release", "/etc/debian_version", "/etc/issue"}},
	{Name: "certificates", Always: true, Paths: []string{"/etc/ssl", "/etc/pki/tls/certs", "/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/crypto-policies"}},
	{Name: "start-up files of shells", Paths: []string{"/etc/profile", "/etc/profile.d", "/etc/bash.bashrc", "/etc/environment", "/etc/zsh", "/etc/login.defs",
		"/etc/shells", "/etc/skel", "/etc/bash_completion.d", "**/.profile", "**/.bash_profile", "**/.bash_login", "**/.bashrc", "**/.bash_logout", "**/.zshenv", "**/.zprofile", "**/.zshrc"}},
	{Name: "configuration of common programs", Paths: []string{"/etc/python3", "/etc/python3*", "/etc/gitconfig", "/etc/wgetrc", "/etc/curlrc", "/etc/nanorc", "/etc/vim", "/etc/perl",
		"/etc/npmrc", "/etc/pip.conf", "/etc/magic", "/etc/magic.mime", "/etc/mime.types", "/etc/fonts", "/etc/apt", "/etc/dpkg", "/etc/mke2fs.conf", "/etc/selinux/config",
		"/var/lib/dpkg", "/var/lib/apt", "**/.gitconfig", "**/.config/git/config", "**/.config/git/ignore", "**/.config/git/attributes", "**/.curlrc", "**/.wgetrc", "**/.inputrc", "**/.terminfo/**",
		"**/pyvenv.cfg", "**/.config/pip/pip.conf", "**/.pip/pip.conf", "**/.python_history", "**/.node_repl_history", "**/.local/lib/python*/**"}},
	{Name: "kernel", Paths: []string{"/proc", "/sys", "/dev"}},
	{Name: "harness", Always: true, Paths: append([]string{"/etc/codex", "/etc/claude-code", "/etc/gemini-cli", "/etc/opencode", "**/.bodycam/**"}, harnessPrograms...)},
}

// harnessPrograms are where the recorder mounts the agent's program.
var harnessPrograms = []string{"/opt/codex", "/opt/claude", "/opt/claude-code", "/opt/gemini", "/opt/gemini-cli", "/opt/node", "/opt/bodycam"}

// writeNoise are places where a program writes without that saying anything.
var writeNoise = []string{"/dev", "/proc/self", "/proc/*/oom_score_adj", "/proc/*/fd", "/var/tmp/#*", "/tmp/#*"}

// noise tells ordinary resources apart.
type noise struct {
	state     []string
	programs  []string
	skills    []string
	grading   []string
	endpoints []string
}

func newNoise(x *Extractor) *noise {
	return &noise{state: slices.Concat(x.plan.Judge.HarnessState, x.state), programs: slices.Concat(harnessPrograms, x.programs),
		skills: x.plan.SkillRoots(), grading: x.plan.GradingPlaces(), endpoints: x.endpoints}
}

// of says why a resource is noise, "" where it isn't. What a process was told to touch is no noise, unless it is
// the same for everybody. account tells that causes are known.
func (n *noise) of(r *Resource, account bool) string {
	switch r.Kind {
	case bodycam.Command:
		if under(r.Name, n.programs) {
			return "harness"
		}
	case bodycam.Host:
		if slices.Contains(n.endpoints, r.Name) {
			return "provided by the recorder"
		}
	case bodycam.File:
		p := r.Name
		if r.secret() && !(r.Total() == 0 && r.Named == 0) || under(p, n.grading) || under(p, n.skills) {
			break
		}
		if n := r.Changed() + r.Counts[Linked]; n > 0 {
			if under(p, writeNoise) || r.Counts[Created]+r.Counts[Deleted]+r.Counts[Renamed]+r.Counts[Changed] == 0 && strings.HasPrefix(p, "/dev/") {
				return "kernel"
			}
			break
		}
		for i := range ListedNoise {
			if l := &ListedNoise[i]; (l.Always || r.Named == 0) && under(p, l.Paths) {
				return l.Name
			}
		}
		if !strings.HasPrefix(p, "/") && !strings.HasPrefix(p, "unix:") {
			return "without a place in the file system"
		}
	}
	if r.Kind == bodycam.File && under(r.Name, n.state) && !under(r.Name, n.skills) && r.Named == 0 && r.Edits == 0 {
		return "state of the harness" // also where a row's shell reads the snapshot that its harness left for it
	}
	if account && r.Uses.Agent()+r.Vain.Agent() == 0 {
		if r.Uses.Startup+r.Vain.Startup > 0 && r.Uses.Harness+r.Vain.Harness == 0 {
			return "start-up of the harness"
		}
		return "the harness itself"
	}
	return ""
}
