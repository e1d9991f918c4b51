package kind

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// composeVerdict says what is lost where a key of the main service isn't honoured.
type composeVerdict struct {
	severity bodycam.Severity
	why      string
}

// composeKeys are the keys of a service that the plan doesn't honour and that mean something known.
var composeKeys = map[string]composeVerdict{
	"command":      {bodycam.Info, "the harness starts the agent; the service's command isn't run"},
	"entrypoint":   {bodycam.Medium, "the harness starts the agent; an entry point isn't run"},
	"healthcheck":  {bodycam.Info, "nothing waits for the box to be healthy"},
	"ports":        {bodycam.Info, "no port of the box can be reached from outside"},
	"expose":       {bodycam.Info, "no port of the box can be reached from outside"},
	"labels":       {bodycam.Info, "labels have no effect"},
	"restart":      {bodycam.Info, "the box isn't started again"},
	"stop_signal":  {bodycam.Info, "the box is ended by killing it"},
	"depends_on":   {bodycam.High, "other services aren't started"},
	"links":        {bodycam.High, "other services aren't started"},
	"volumes":      {bodycam.High, "no volume is mounted"},
	"env_file":     {bodycam.High, "the file isn't read, so its variables are missing"},
	"secrets":      {bodycam.High, "the secret isn't mounted"},
	"configs":      {bodycam.High, "the file isn't mounted"},
	"devices":      {bodycam.High, "no device is given to the box"},
	"gpus":         {bodycam.High, "the box has no GPU"},
	"runtime":      {bodycam.Medium, "the kind chooses how the box is made"},
	"privileged":   {bodycam.Medium, "the box has no rights over the host"},
	"cap_add":      {bodycam.Medium, "the box has no further capabilities"},
	"security_opt": {bodycam.Medium, "the kind sets the filter"},
	"extra_hosts":  {bodycam.Medium, "the names aren't known in the box"},
	"dns":          {bodycam.Info, "the recording proxy answers DNS"},
	"networks":     {bodycam.Info, "the kind sets the network"},
	"platform":     {bodycam.Medium, "the box has the host's architecture"},
	"ulimits":      {bodycam.Medium, "the limit isn't set"},
	"sysctls":      {bodycam.Medium, "the setting isn't made"},
	"shm_size":     {bodycam.Medium, "/dev/shm has the box's own size"},
	"tmpfs":        {bodycam.Info, "the path is an ordinary directory"},
	"read_only":    {bodycam.Medium, "the box can be written to"},
}

// composeSilent are keys without a meaning for a single box that is made anew.
var composeSilent = map[string]bool{
	"container_name": true, "tty": true, "stdin_open": true, "init": true, "logging": true, "pull_policy": true,
	"profiles": true, "stop_grace_period": true, "scale": true,
}

// composeReader reads the main service of a docker-compose.yaml.
type composeReader struct {
	t     *Task
	dir   string // the file's directory
	file  string // relative to the task
	probs Problems
}

// readCompose honours what the service main says of build, environment, working_dir, user, hostname and limits, and
// lists the rest.
func (t *Task) readCompose(file, shown string) error {
	data, err := readIn(t.Dir, relTo(t.Dir, file), maxFile)
	if err != nil {
		return fmt.Errorf("reading %s: %w", shown, cause(err))
	}
	n, probs := parseCompose(data, shown)
	if err := probs.Err(); err != nil {
		return err
	}
	r := &composeReader{t: t, dir: filepath.Dir(file), file: relTo(t.Dir, file)}
	r.read(n)
	return r.probs.Err()
}

// parseCompose reads the file and checks that there is a main service.
func parseCompose(data []byte, shown string) (*node, Problems) {
	n, probs := parseYAML(data, &source{name: shown})
	if len(probs) > 0 {
		return nil, probs
	}
	if n == nil || n.kind != mapNode || n.get("services") == nil || n.get("services").kind != mapNode {
		return nil, Problems{{File: shown, Line: 1, Msg: "there is no map of services"}}
	}
	main := n.get("services").get("main")
	if main == nil || main.kind != mapNode {
		return nil, Problems{n.get("services").problem("there is no service main: it is the one that the agent runs in")}
	}
	return n, nil
}

func (r *composeReader) refuse(e entry, what string, v composeVerdict) {
	r.t.unhonoured(what, r.file, e.line, v.severity, v.why)
}

func (r *composeReader) read(n *node) {
	for _, e := range n.entries {
		switch {
		case e.key == "services" || e.key == "version" || e.key == "name" || strings.HasPrefix(e.key, "x-"):
		case e.key == "include":
			r.refuse(e, "include", composeVerdict{bodycam.High, "other files aren't read"})
		default:
			r.refuse(e, e.key, composeVerdict{bodycam.Info, "only the service main is made"})
		}
	}
	services := n.get("services")
	for _, e := range services.entries {
		if e.key != "main" {
			r.refuse(e, "service "+e.key, composeVerdict{bodycam.High, "only the service main is made: this one is missing"})
		}
	}
	for _, e := range services.get("main").entries {
		r.mainKey(e)
	}
}

func (r *composeReader) mainKey(e entry) {
	env := &r.t.Environment
	switch e.key {
	case "build":
		r.build(e.val)
	case "environment":
		env.Env = mergeStrings(r.pairs(e.val, true), env.Env) // task.toml wins
	case "working_dir":
		env.Workdir = r.checked(e.val, checkBoxPath)
	case "user":
		env.User = r.checked(e.val, checkUser)
	case "hostname":
		env.Hostname = r.checked(e.val, checkHostname)
	case "mem_limit":
		r.size(e.val, &env.Limits.Memory)
	case "cpus":
		r.cpus(e.val)
	case "pids_limit":
		if i, ok := e.val.integer(); ok && i > 0 {
			env.Limits.PIDs = i
		}
	case "deploy":
		limits := e.val.get("resources").get("limits")
		r.size(limits.get("memory"), &env.Limits.Memory)
		r.cpus(limits.get("cpus"))
	case "network_mode":
		if e.val.scalar() == "none" {
			env.Offline = true
			return
		}
		r.refuse(e, "network_mode: "+e.val.scalar(), composeVerdict{bodycam.Medium, "the kind sets the network"})
	case "image":
		if env.Build == nil {
			r.refuse(e, "image: "+e.val.scalar(), composeVerdict{bodycam.Medium, "images aren't pulled: the kind's base stands in for it"})
		}
	case "volumes":
		r.volumes(e)
	default:
		if composeSilent[e.key] || strings.HasPrefix(e.key, "x-") {
			return
		}
		v, ok := composeKeys[e.key]
		if !ok {
			v = composeVerdict{bodycam.Medium, "the key isn't known"}
		}
		r.refuse(e, e.key, v)
	}
}

func (r *composeReader) fail(n *node, format string, args ...any) {
	r.probs = append(r.probs, n.problem(format, args...))
}

func (r *composeReader) checked(n *node, check func(string) error) string {
	s := n.scalar()
	if strings.Contains(s, "${") {
		parts, err := envRefs(s)
		if err == nil {
			s = ""
			for _, p := range parts {
				s += p.text // variables of the runner aren't known: their defaults count
			}
		}
	}
	if err := check(s); err != nil {
		r.fail(n, "%v", err)
	}
	return s
}

func (r *composeReader) size(n *node, to *Size) {
	if n == nil || strings.Contains(n.scalar(), "$") || *to != 0 { // task.toml wins
		return
	}
	v, err := ParseSize(n.scalar())
	if err != nil {
		r.fail(n, "%v", err)
		return
	}
	*to = v
}

func (r *composeReader) cpus(n *node) {
	if n == nil || strings.Contains(n.scalar(), "$") || r.t.Environment.Limits.CPUs != 0 {
		return
	}
	m := *n
	if m.kind == textNode {
		m.kind = floatNode
	}
	v, ok := m.float()
	if !ok || v < 0 {
		r.fail(n, "cpus: want a number, got %s", n.show())
		return
	}
	r.t.Environment.Limits.CPUs = v
}

// pairs reads a map, or a list of KEY=VALUE. A KEY alone is passed on from outside where outer says so.
func (r *composeReader) pairs(n *node, outer bool) map[string]string {
	m := map[string]string{}
	set := func(at *node, k, v string) {
		if !envName(k) {
			r.fail(at, "%s can't be the name of an environment variable", quote(k))
			return
		}
		if _, err := envRefs(v); err != nil {
			r.fail(at, "%s: %v", k, err)
			return
		}
		m[k] = v
	}
	alone := func(k string) string {
		if outer {
			return "${" + k + ":-}"
		}
		return ""
	}
	for _, e := range n.entries {
		if e.val.kind == nullNode {
			set(e.val, e.key, alone(e.key))
			continue
		}
		set(e.val, e.key, e.val.scalar())
	}
	for _, it := range n.items {
		k, v, ok := strings.Cut(it.scalar(), "=")
		if !ok {
			v = alone(k)
		}
		set(it, k, v)
	}
	return m
}

func (r *composeReader) build(n *node) {
	b := &BuildSpec{Context: r.dir, Args: map[string]string{}}
	context, file := n.scalar(), "Dockerfile"
	if n.kind == mapNode {
		for _, e := range n.entries {
			switch e.key {
			case "context":
				context = e.val.scalar()
			case "dockerfile":
				file = e.val.scalar()
			case "target":
				b.Target = strings.ToLower(e.val.scalar())
			case "args":
				b.Args = r.pairs(e.val, false)
			default:
				r.refuse(e, "build."+e.key, composeVerdict{bodycam.Medium, "the key isn't honoured"})
			}
		}
	}
	if strings.Contains(context, "${") { // Harbor's own files name the context by a variable of the runner
		context = "."
	}
	if climbs(context) || filepath.IsAbs(context) {
		r.fail(n, "build context %s leaves the environment directory", quote(context))
		return
	}
	b.Context = filepath.Join(r.dir, context)
	if climbs(filepath.Join(context, file)) || filepath.IsAbs(file) {
		r.fail(n, "Dockerfile %s leaves the environment directory", quote(file))
		return
	}
	b.File = filepath.Join(b.Context, file)
	if ok, err := exists(r.t.Dir, relTo(r.t.Dir, b.File)); err != nil || !ok {
		r.fail(n, "there is no Dockerfile %s", quote(filepath.Join(context, file)))
		return
	}
	r.t.Environment.Build = b
}

// volumes lists mounts, but for those of the runner's own log directories, which every box has.
func (r *composeReader) volumes(e entry) {
	for _, it := range e.val.items {
		target := it.get("target").scalar()
		what := target
		if it.kind == textNode {
			what = it.text
			if parts := strings.Split(it.text, ":"); len(parts) > 1 {
				target = parts[1]
			}
		}
		if isUnder(target, boxLogs) || strings.Contains(it.text, "_LOGS_PATH") {
			continue
		}
		r.t.unhonoured("volumes: "+what, r.file, it.line, composeKeys["volumes"].severity, composeKeys["volumes"].why)
	}
}

func mergeStrings(base, over map[string]string) map[string]string {
	out := make(map[string]string, len(base)+len(over))
	for k, v := range base {
		out[k] = v
	}
	for k, v := range over {
		out[k] = v
	}
	return out
}
