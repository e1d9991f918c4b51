package kind

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/bodycam-dev/bodycam"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// A Dockerfile is read with BuildKit's parser, but nothing is built: FROM is answered by the kind's base, COPY, ADD of
// local files, ENV, ARG, WORKDIR, USER and SHELL are honoured, and RUN becomes a step of the setup phase.

// Bounds on a Dockerfile. Every RUN step carries its whole environment, so their product must stay small.
const (
	maxInstructions = 2000
	maxEnvVars      = 500
	maxEnvBytes     = 64 << 10 // names and values together
	maxIgnore       = 1000     // patterns in .dockerignore
)

// build is what a Dockerfile comes to.
type build struct {
	steps      []PlanStep
	env        []EnvVar // the base's, with what ENV said laid over it
	workdir    string   // empty: no WORKDIR
	user       string   // empty: no USER
	unhonoured []Unhonoured
	ignoreFile string
}

// buildBase is what a Dockerfile starts from.
type buildBase struct {
	env    []EnvVar
	user   string
	images []string // globs of images that the base stands for
}

// builder reads one Dockerfile. Its fields are the state between two instructions.
type builder struct {
	spec    BuildSpec
	file    string // Dockerfile as the plan names it, relative to the task
	shown   string // Dockerfile as errors name it
	base    buildBase
	ignore  []string
	lex     *shell.Lex
	out     *build
	probs   Problems
	global  map[string]string // ARGs before the first FROM
	args    map[string]string // ARGs of the stage
	shell   []string
	workdir string // "" is "/"
	known   map[string]bool
	entries int  // files that are copied
	stop    bool // a bound is passed: no use going on
}

// readBuild reads a Dockerfile below root, the task's directory.
func readBuild(root string, spec BuildSpec, base buildBase) (*build, error) {
	file := relTo(root, spec.File)
	data, err := readIn(root, relTo(root, spec.File), maxFile)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, cause(err))
	}
	ignore, ignoreFile, err := readIgnore(root, spec)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(data) {
		return nil, Problems{{File: spec.File, Msg: "the file isn't UTF-8"}}
	}
	b := &builder{spec: spec, file: file, shown: spec.File, base: base, ignore: ignore, out: &build{env: base.env, ignoreFile: ignoreFile}, known: map[string]bool{}}
	b.read(data)
	if err := b.probs.Err(); err != nil {
		return nil, err
	}
	return b.out, nil
}

// parsed is a Dockerfile's instructions by stage.
type parsed struct {
	stages []instructions.Stage
	meta   []*instructions.ArgCommand
	escape rune
}

// parseDockerfile collects all faults, where BuildKit stops at the first.
func parseDockerfile(data []byte, file string) (p parsed, probs Problems) {
	defer func() {
		// BuildKit's parser isn't ours: a panic in it, on a stranger's file, is that file's fault.
		if r := recover(); r != nil {
			probs = append(probs, Problem{File: file, Msg: fmt.Sprintf("not a Dockerfile: the parser gave up: %v", r)})
		}
	}()
	res, err := parser.Parse(bytes.NewReader(data))
	if err != nil {
		return p, Problems{dockerProblem(file, err, 0)}
	}
	p.escape = res.EscapeToken
	if n := len(res.AST.Children); n > maxInstructions {
		return p, Problems{{File: file, Msg: fmt.Sprintf("%d instructions: at most %d are read", n, maxInstructions)}}
	}
	for _, n := range res.AST.Children {
		cmd, err := instructions.ParseInstruction(n)
		if err != nil {
			probs = append(probs, dockerProblem(file, err, n.StartLine))
			continue
		}
		switch c := cmd.(type) {
		case *instructions.Stage:
			p.stages = append(p.stages, *c)
		case *instructions.ArgCommand:
			if len(p.stages) == 0 {
				p.meta = append(p.meta, c)
				continue
			}
			p.stages[len(p.stages)-1].AddCommand(c)
		case instructions.Command:
			if len(p.stages) == 0 {
				probs = append(probs, Problem{File: file, Line: n.StartLine, Msg: strings.ToUpper(c.Name()) + " before the first FROM"})
				continue
			}
			p.stages[len(p.stages)-1].AddCommand(c)
		}
	}
	if len(p.stages) == 0 && len(probs) == 0 {
		probs = Problems{{File: file, Line: 1, Msg: "there is no FROM"}}
	}
	return p, probs
}

func dockerProblem(file string, err error, line int) Problem {
	var le *parser.LocationError
	if errors.As(err, &le) && len(le.Locations) > 0 && len(le.Locations[0]) > 0 {
		line = le.Locations[0][0].Start.Line
	}
	return Problem{File: file, Line: line, Msg: err.Error()}
}

func (b *builder) read(data []byte) {
	p, probs := parseDockerfile(data, b.shown)
	if b.probs = append(b.probs, probs...); len(probs) > 0 {
		return
	}
	b.lex = shell.NewLex(p.escape)
	b.global = platformArgs()
	for _, a := range p.meta {
		b.args = maps.Clone(b.global)
		b.arg(a, a.Location()[0].Start.Line, true)
	}
	chain := b.chain(p.stages)
	for _, s := range chain {
		b.args = map[string]string{}
		b.shell = []string{"/bin/sh", "-c"}
		for _, cmd := range s.Commands {
			b.instruction(cmd)
		}
	}
	b.out.workdir = b.workdir
}

// chain lists the stages that the wanted one is made of, base first, and answers the FROM of the first.
func (b *builder) chain(stages []instructions.Stage) []instructions.Stage {
	last := len(stages) - 1
	if b.spec.Target != "" {
		i, ok := instructions.HasStage(stages, b.spec.Target)
		if !ok {
			b.probs = append(b.probs, Problem{File: b.shown, Msg: "there is no stage " + quote(b.spec.Target)})
			return nil
		}
		last = i
	}
	var chain []instructions.Stage
	for i := last; ; {
		s := stages[i]
		chain = append([]instructions.Stage{s}, chain...)
		line := s.Location[0].Start.Line
		b.args = b.global
		name, err := b.expand(s.BaseName)
		if err != nil {
			b.probs = append(b.probs, Problem{File: b.shown, Line: line, Msg: err.Error()})
			return nil
		}
		if j, ok := instructions.HasStage(stages[:i], name); ok {
			i = j
			continue
		}
		if !b.standsFor(name) {
			b.refuse(s.SourceCode, line, bodycam.Medium, "the kind's base stands in for this image: programs and versions may differ")
		}
		return chain
	}
}

func (b *builder) standsFor(image string) bool {
	if image == "scratch" {
		return false
	}
	for _, g := range b.base.images {
		if ok, err := path.Match(g, image); err == nil && ok {
			return true
		}
	}
	return false
}

// platformArgs are the arguments that BuildKit sets by itself.
func platformArgs() map[string]string {
	p := "linux/" + runtime.GOARCH
	return map[string]string{
		"TARGETPLATFORM": p, "TARGETOS": "linux", "TARGETARCH": runtime.GOARCH, "TARGETVARIANT": "",
		"BUILDPLATFORM": p, "BUILDOS": "linux", "BUILDARCH": runtime.GOARCH, "BUILDVARIANT": "",
	}
}

func (b *builder) fail(line int, format string, args ...any) {
	b.probs = append(b.probs, Problem{File: b.shown, Line: line, Msg: fmt.Sprintf(format, args...)})
}

func (b *builder) refuse(code string, line int, sev bodycam.Severity, why string) {
	if i := strings.IndexByte(code, '\n'); i >= 0 {
		code = code[:i] + " …"
	}
	b.out.unhonoured = append(b.out.unhonoured, Unhonoured{Instruction: cut(code, 200), File: b.file, Line: line, Why: why, Severity: sev})
}

// cut shortens text to at most n bytes without splitting a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}

// Get and Keys make the builder what BuildKit's expansion asks for values: ENV first, then ARG. Values that came from
// outside the kind's files stay invisible to a task.
func (b *builder) Get(name string) (string, bool) {
	for _, v := range b.out.env {
		if v.Name == name {
			return v.Value, v.From == ""
		}
	}
	v, ok := b.args[name]
	return v, ok
}

// Keys lists the variables that Get knows.
func (b *builder) Keys() []string {
	keys := slices.Sorted(maps.Keys(b.args))
	for _, v := range b.out.env {
		if v.From == "" {
			keys = append(keys, v.Name)
		}
	}
	return keys
}

func (b *builder) expand(word string) (string, error) {
	if len(word) > maxFile {
		return "", fmt.Errorf("a word of %d bytes", len(word))
	}
	out, _, err := b.lex.ProcessWord(word, b)
	if err == nil && len(out) > maxFile {
		err = fmt.Errorf("variables make a word of %d bytes", len(out))
	}
	return out, err
}

func (b *builder) instruction(cmd instructions.Command) {
	line := cmd.Location()[0].Start.Line
	if b.stop {
		return
	}
	code := fmt.Sprint(cmd)
	if c, ok := cmd.(instructions.SupportsSingleWordExpansion); ok {
		if _, isArg := cmd.(*instructions.ArgCommand); !isArg { // an ARG's default may use an earlier one of the same line
			if err := c.Expand(b.expand); err != nil {
				b.fail(line, "%s: %v", strings.ToUpper(cmd.Name()), err)
				return
			}
		}
	}
	switch c := cmd.(type) {
	case *instructions.EnvCommand:
		for _, kv := range c.Env {
			b.setEnv(kv.Key, kv.Value, line)
		}
	case *instructions.ArgCommand:
		b.arg(c, line, false)
	case *instructions.WorkdirCommand:
		b.setWorkdir(c.Path, line)
	case *instructions.UserCommand:
		if err := checkUser(c.User); err != nil {
			b.fail(line, "USER: %v", err)
			return
		}
		b.out.user = c.User
	case *instructions.ShellCommand:
		b.shell = c.Shell
	case *instructions.RunCommand:
		b.run(c, code, line)
	case *instructions.CopyCommand:
		b.copyCommand(c, code, line)
	case *instructions.AddCommand:
		b.addCommand(c, code, line)
	case *instructions.LabelCommand, *instructions.MaintainerCommand:
	default:
		b.other(cmd, code, line)
	}
}

// other lists instructions that a box that isn't an image has no place for.
func (b *builder) other(cmd instructions.Command, code string, line int) {
	sev, why := bodycam.Info, ""
	switch cmd.(type) {
	case *instructions.EntrypointCommand:
		sev, why = bodycam.Medium, "the harness starts the agent; an entry point isn't run"
	case *instructions.CmdCommand:
		why = "the harness starts the agent; the image's command isn't run"
	case *instructions.HealthCheckCommand:
		why = "nothing waits for the box to be healthy"
	case *instructions.OnbuildCommand:
		why = "nothing is built on this"
	case *instructions.VolumeCommand:
		why = "the path is an ordinary directory"
	case *instructions.ExposeCommand:
		why = "no port of the box can be reached from outside"
	case *instructions.StopSignalCommand:
		why = "the box is ended by killing it"
	default:
		sev, why = bodycam.Medium, "the instruction isn't known"
	}
	b.refuse(code, line, sev, why)
}

func (b *builder) setEnv(name, value string, line int) {
	if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
		b.fail(line, "ENV: %s can't be an environment variable", quote(name))
		return
	}
	b.out.env = overlayEnv(b.out.env, EnvVar{Name: name, Value: value})
	b.boundEnv("ENV", line)
}

// boundEnv refuses variables that no program could be started with.
func (b *builder) boundEnv(verb string, line int) {
	n, bytes := len(b.out.env)+len(b.args), 0
	for _, v := range b.out.env {
		bytes += len(v.Name) + len(v.Value)
	}
	for k, v := range b.args {
		bytes += len(k) + len(v)
	}
	if n > maxEnvVars || bytes > maxEnvBytes {
		b.fail(line, "%s: more than %d variables or %d bytes of them", verb, maxEnvVars, maxEnvBytes)
		b.stop = true
	}
}

func (b *builder) arg(c *instructions.ArgCommand, line int, global bool) {
	for _, a := range c.Args {
		val, have := b.spec.Args[a.Key]
		switch {
		case have:
		case a.Value != nil:
			var err error
			if val, err = b.expand(*a.Value); err != nil {
				b.fail(line, "ARG %s: %v", a.Key, err)
				continue
			}
			have = true
		default:
			val, have = b.global[a.Key]
		}
		if !have {
			continue
		}
		b.args[a.Key] = val
		if global {
			b.global[a.Key] = val
		}
		b.boundEnv("ARG", line)
	}
}

func (b *builder) setWorkdir(p string, line int) {
	if p == "" || strings.Contains(p, "\x00") {
		b.fail(line, "WORKDIR: the path is empty")
		return
	}
	b.workdir = path.Join("/", b.workdir, p)
	if path.IsAbs(p) {
		b.workdir = path.Clean(p)
	}
	b.known[b.workdir] = true
	b.addStep("WORKDIR "+b.workdir, line, PlanStep{Mkdir: b.workdir, User: "root"})
}

func (b *builder) addStep(name string, line int, s PlanStep) {
	s.Name = cut(fmt.Sprintf("%s:%d %s", path.Base(b.file), line, strings.Join(strings.Fields(name), " ")), 80)
	s.Source = b.file + ":" + strconv.Itoa(line)
	s.Workdir = path.Join("/", b.workdir)
	if s.User == "" {
		s.User = b.userNow()
	}
	b.out.steps = append(b.out.steps, s)
}

func (b *builder) userNow() string {
	if b.out.user != "" {
		return b.out.user
	}
	return b.base.user
}

func (b *builder) run(c *instructions.RunCommand, code string, line int) {
	if !b.runFlags(c, code, line) {
		return
	}
	argv := c.CmdLine
	if len(c.Files) > 0 {
		if len(argv) != 1 || !c.PrependShell {
			b.fail(line, "RUN: a here-document needs the shell form")
			return
		}
		script, err := heredocScript(argv[0], c.Files)
		if err != nil {
			b.fail(line, "RUN: %v", err)
			return
		}
		if strings.HasPrefix(script, "#!") {
			b.runScript(script, code, line)
			return
		}
		argv = []string{script}
	}
	if c.PrependShell {
		argv = append(slices.Clone(b.shell), strings.Join(argv, " "))
	}
	if len(argv) == 0 {
		b.fail(line, "RUN: there is no command")
		return
	}
	b.addStep(code, line, PlanStep{Argv: argv, Env: b.runEnv()})
}

// runScript honours a here-document that names its own interpreter: it has to be a file.
func (b *builder) runScript(script, code string, line int) {
	file := fmt.Sprintf("/tmp/.dockerfile-run-%d", line)
	c := Copy{Content: script, To: file, Mode: "0755"}
	if err := c.seal(nil); err != nil {
		b.fail(line, "RUN: %v", err)
		return
	}
	b.addStep(code+" (script)", line, PlanStep{Copies: []Copy{c}})
	b.addStep(code, line, PlanStep{Argv: []string{file}, Env: b.runEnv()})
}

// heredocScript puts a here-document back into the text that the shell gets. A line that is nothing but <<EOF is run
// as the document itself, also by shells that know no here-documents.
func heredocScript(cmd string, files []instructions.ShellInlineFile) (string, error) {
	if h, err := parser.ParseHeredoc(cmd); err != nil {
		return "", err
	} else if h != nil {
		data := files[0].Data
		if files[0].Chomp {
			data = parser.ChompHeredocContent(data)
		}
		return data, nil
	}
	for _, f := range files {
		cmd += "\n" + f.Data + f.Name
	}
	return cmd, nil
}

// runEnv is the environment of a RUN step: ARGs of the stage, and ENV over them.
func (b *builder) runEnv() []EnvVar {
	env := make([]EnvVar, 0, len(b.args))
	for k, v := range b.args {
		env = append(env, EnvVar{Name: k, Value: v})
	}
	return withHome(overlayEnv(env, b.out.env...), b.userNow())
}

// runFlags lists a RUN's flags that aren't honoured, and tells whether the step can run without them.
func (b *builder) runFlags(c *instructions.RunCommand, code string, line int) bool {
	ok := true
	for _, m := range instructions.GetMounts(c) {
		switch m.Type {
		case instructions.MountTypeCache:
			b.refuse(code, line, bodycam.Info, "RUN --mount=type=cache: the step runs without a cache")
		case instructions.MountTypeTmpfs:
			b.refuse(code, line, bodycam.Medium, "RUN --mount=type=tmpfs: what the step leaves there stays")
		default:
			b.refuse(code, line, bodycam.High, fmt.Sprintf("RUN --mount=type=%s: not supported; the step is left out", m.Type))
			ok = false
		}
	}
	if n := instructions.GetNetwork(c); n != instructions.NetworkDefault {
		b.refuse(code, line, bodycam.Medium, "RUN --network="+string(n)+": the step has the network of the setup phase")
	}
	if s := instructions.GetSecurity(c); s != instructions.SecuritySandbox {
		b.refuse(code, line, bodycam.Medium, "RUN --security="+s+": the step has the rights of the setup phase")
	}
	if len(instructions.GetDevices(c)) > 0 {
		b.refuse(code, line, bodycam.High, "RUN --device: no device is given to the box; the step is left out")
		ok = false
	}
	return ok
}

// rel is a path of the task for messages.
func relTo(dir, p string) string {
	if r, err := filepath.Rel(dir, p); err == nil && !strings.HasPrefix(r, "..") {
		return filepath.ToSlash(r)
	}
	return p
}
