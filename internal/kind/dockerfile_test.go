package kind

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// summary writes a build's steps, one line each.
func summary(b *build, dir string) []string {
	var out []string
	for _, s := range b.steps {
		switch {
		case s.Mkdir != "":
			out = append(out, "mkdir "+s.Mkdir)
		case len(s.Copies) > 0:
			for _, c := range s.Copies {
				line := "copy " + strings.TrimPrefix(c.From, dir+"/")
				if c.From == "" {
					line = fmt.Sprintf("write %q", c.Content)
				}
				line += " -> " + c.To
				if c.Name != "" {
					line += " or /" + c.Name
				}
				if c.Owner+c.Mode != "" {
					line += fmt.Sprintf(" (%s %s)", c.Owner, c.Mode)
				}
				out = append(out, line)
			}
		default:
			out = append(out, fmt.Sprintf("run %s %q in %s", s.User, s.Argv, s.Workdir))
		}
	}
	for _, u := range b.unhonoured {
		out = append(out, fmt.Sprintf("%d %s: %s", u.Line, u.Severity, u.Why))
	}
	return out
}

func TestDockerfile(t *testing.T) {
	context := map[string]string{"a.txt": "A", "b.txt": "B", "d/x": "X", "d/sub/y": "Y", "odd name": "O", "pack.tgz": "T"}
	for _, c := range []struct {
		name, docker string
		args         map[string]string
		target       string
		want         []string
	}{
		{"destinations", "COPY a.txt /x\nCOPY a.txt /y/\nCOPY a.txt b.txt /z/\nCOPY *.txt /w\nCOPY d /v\nCOPY a.txt /v\nCOPY a.txt .\nCOPY [\"odd name\", \"/q/\"]\nWORKDIR /t\nCOPY a.txt rel\nCOPY a.txt ./\nCOPY a.txt /t\nCOPY a.txt /v/sub", nil, "", []string{
			"copy a.txt -> /x or /a.txt", "copy a.txt -> /y/a.txt", "copy a.txt -> /z/a.txt", "copy b.txt -> /z/b.txt", "copy a.txt -> /w/a.txt", "copy b.txt -> /w/b.txt",
			"copy d -> /v", "copy a.txt -> /v/a.txt", "copy a.txt -> /a.txt", "copy odd name -> /q/odd name", "mkdir /t", "copy a.txt -> /t/rel or /a.txt", "copy a.txt -> /t/a.txt",
			"copy a.txt -> /t/a.txt", "copy a.txt -> /v/sub/a.txt",
		}},
		{"absolute and dotted sources stay in the context", "COPY /a.txt /x/\nCOPY ./d/../b.txt /x/\nCOPY . /all", nil, "", []string{"copy a.txt -> /x/a.txt", "copy b.txt -> /x/b.txt", "copy . -> /all"}},
		{"destinations can't climb", "COPY a.txt ../../etc/x\nWORKDIR ../../y", nil, "", []string{"copy a.txt -> /etc/x or /a.txt", "mkdir /y"}},
		{"arguments", "ARG A=1 B=$A$A\nARG C\nARG D=d\nENV E=$A-$B-$C-$D\nENV A=env\nRUN echo\nCOPY a.txt /$A/${D:-none}/${NONE:-def}/", map[string]string{"C": "c", "D": "over", "UNDECLARED": "x"}, "", []string{
			`run root ["/bin/sh" "-c" "echo"] in /`, "copy a.txt -> /env/over/def/a.txt",
		}},
		{"values from outside are invisible", "ENV X=${SECRET:-hidden}\nCOPY <<E /s\n$SECRET.$X\nE", nil, "", []string{`write ".hidden\n" -> /s or /E`}},
		{"users", "USER app:grp\nRUN [\"x\"]\nCOPY --chown=app a.txt /x/\nUSER 7\nRUN y", nil, "", []string{
			`run app:grp ["x"] in /`, "copy a.txt -> /x/a.txt (app )", `run 7 ["/bin/sh" "-c" "y"] in /`,
		}},
		{"modes", "COPY --chmod=4755 a.txt /x/\nCOPY --chmod=u+x a.txt /x/", nil, "", []string{
			"copy a.txt -> /x/a.txt ( 4755)", "copy a.txt -> /x/a.txt", "3 medium: --chmod=u+x: only octal modes are supported; the source's mode is kept",
		}},
		{"here-documents", "RUN python3 <<'E' && true\nprint(1)\nE\nRUN <<-E\n\techo tab\n\tE\nCOPY <<A <<B /d/\na\nA\nb\nB", nil, "", []string{
			`run root ["/bin/sh" "-c" "python3 <<'E' && true\nprint(1)\nE"] in /`, `run root ["/bin/sh" "-c" "echo tab\n"] in /`, `write "a\n" -> /d/A`, `write "b\n" -> /d/B`,
		}},
		{"flags of run", "RUN --network=none a\nRUN --mount=type=tmpfs,target=/t b\nRUN --mount=type=bind,target=/s c\nRUN --security=insecure d", nil, "", []string{
			`run root ["/bin/sh" "-c" "a"] in /`, `run root ["/bin/sh" "-c" "b"] in /`, `run root ["/bin/sh" "-c" "d"] in /`,
			"2 medium: RUN --network=none: the step has the network of the setup phase", "3 medium: RUN --mount=type=tmpfs: what the step leaves there stays",
			"4 high: RUN --mount=type=bind: not supported; the step is left out", "5 medium: RUN --security=insecure: the step has the rights of the setup phase",
		}},
		{"sources that aren't local", "ADD --checksum=sha256:24454f830cdb571e2c4ad15481119c43b3cafd48dd869a9b2945d1036d1dc68d https://example.org/f /x\nADD git@example.org:a/b.git /x\nADD pack.tgz /x\nADD --unpack=false pack.tgz /x\nCOPY pack.tgz /x\nCOPY --from=alpine /a /b\nCOPY --parents d/x /p/\nCOPY --exclude=*.md d /e", nil, "", []string{
			"copy pack.tgz -> /x or /pack.tgz", "copy pack.tgz -> /x or /pack.tgz", "copy d -> /e",
			"2 high: ADD of a URL: nothing is fetched, so the file is missing", "3 high: ADD of a git repository: nothing is fetched, so the files are missing",
			"4 high: ADD of an archive: it isn't unpacked, so its files are missing", "7 high: COPY --from=alpine: other stages and images aren't built, so these files are missing",
			"8 high: COPY --parents isn't supported: the files are missing", "9 medium: --exclude isn't supported: everything is copied",
		}},
		{"a target in the middle", "RUN one\nFROM known:1 AS Two\nRUN two\nFROM two\nRUN three", nil, "two", []string{`run root ["/bin/sh" "-c" "two"] in /`}},
		{"escape directive", "RUN echo `\n  more", nil, "", []string{`run root ["/bin/sh" "-c" "echo   more"] in /`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			head := "FROM known:1\n"
			if c.name == "escape directive" {
				head = "# escape=`\n" + head
			}
			dir := writeTree(t, context)
			file := filepath.Join(dir, "Dockerfile.test")
			if err := os.WriteFile(file, []byte(head+c.docker+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			base := buildBase{user: "root", images: []string{"known:*"}, env: []EnvVar{{Name: "SECRET", Value: "s3cret", From: "S"}}}
			b, err := readBuild(dir, BuildSpec{Context: dir, File: file, Args: c.args, Target: c.target}, base)
			if err != nil {
				t.Fatal(err)
			}
			got := summary(b, dir)
			for i := range got {
				got[i] = strings.Replace(got[i], "copy "+dir+" ", "copy . ", 1)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			if c.name == "arguments" {
				if d := cmp.Diff("{A env } {E 1-11-c-over } {SECRET s3cret S}", strings.Trim(fmt.Sprint(b.env), "[]")); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

func TestComposeValues(t *testing.T) {
	const compose = `services:
  main:
    image: ${IMAGE}
    environment: {A: 1, B: null, C: "${D:-d}", T: true}
    working_dir: ${DIR:-/srv}
    user: "7:8"
    hostname: db
    cpus: "1.5"
    mem_limit: 512m
    pids_limit: 50
    network_mode: none
    build: {context: ., args: {X: y}, target: Last}
`
	files := map[string]string{"task.toml": "[environment]\nenv = {A = \"toml\"}\n", "instruction.md": "do", "environment/docker-compose.yml": compose, "environment/Dockerfile": "FROM x AS last\nARG X\nRUN a\nFROM y\nRUN b\n"}
	p := mustPlan(t, "harbor", writeTree(t, files), Overrides{})
	if p.Workdir != "/srv" || p.User != "7:8" || p.Hostname != "db" || p.Limits.CPUs != 1.5 || p.Limits.Memory != 512<<20 || p.Limits.PIDs != 50 || p.Network.Mode != "allow" {
		t.Errorf("plan: %+v", p)
	}
	if got := fmt.Sprint(p.Env); !strings.Contains(got, "{A toml } {B  } {C d }") || !strings.Contains(got, "{T true }") {
		t.Errorf("env: %s", got)
	}
	if len(p.Setup) != 1 || p.Setup[0].Argv[2] != "a" || !strings.Contains(fmt.Sprint(p.Setup[0].Env), "{X y }") {
		t.Errorf("setup: %+v", p.Setup)
	}
	files["environment/docker-compose.yml"] = "services:\n  main:\n    deploy: {resources: {limits: {memory: 1g, cpus: '2'}}}\n    image: x\n"
	delete(files, "environment/Dockerfile")
	p = mustPlan(t, "harbor", writeTree(t, files), Overrides{})
	if p.Limits.CPUs != 2 || p.Limits.Memory != 1<<30 || len(p.Strict()) != 1 {
		t.Errorf("limits %+v, unhonoured %+v", p.Limits, p.Unhonoured)
	}
}

func TestChecksOfValues(t *testing.T) {
	for _, c := range []struct {
		check func(string) error
		good  []string
		bad   []string
	}{
		{checkHost, []string{"*", "example.org", "*.example.org", "localhost:80", "10.0.0.1", "10.0.0.0/8", "[::1]:443", "::1", "fe80::/10", "a_b.c"},
			[]string{"", "*.", "a b", "http://a", "a/b", "a:0", "a:99999", "-a", "a..b", "*.*.a", "a*"}},
		{checkHostPort, []string{"127.0.0.1:80", "a.org:1", "[::1]:65535"}, []string{"", "a", "a:", "a:0", ":80", "a:b", "a:70000", "a b:1"}},
		{checkUser, []string{"root", "0", "1000:1000", "app:0", "_x", "a-b.c"}, []string{"", ":", "a:", ":b", "-a", "a b", "4294967295", "99999999999", "a:b:c", "a/b"}},
		{checkBoxPath, []string{"/", "/a", "/a/b/", "/a..b"}, []string{"", "a", "./a", "/a/..", "/../a", "/a\x00"}},
		{checkGlob, []string{"/a/**", "${workdir}", "${home}/x*", "/a/[bc]"}, []string{"a", "*", "${HOME}/x", "/a/${home}", "/[", "${workdir}/../x", "${workdirx"}},
		{checkName, []string{"a", "A-b_c.1"}, []string{"", "a b", ".a", "-a", "a/b", strings.Repeat("a", 65)}},
	} {
		for _, s := range c.good {
			if err := c.check(s); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		}
		for _, s := range c.bad {
			if err := c.check(s); err == nil {
				t.Errorf("%q is accepted", s)
			}
		}
	}
}

func TestBaseOfAKind(t *testing.T) {
	dir := writeTree(t, map[string]string{"rootfs/etc/passwd": "", "base.tar": "", "dir.yaml": "name: a\nenvironment: {base: rootfs}\n", "tar.yaml": "name: a\nextends: ./dir.yaml\nenvironment: {base: ./base.tar}\n",
		"sub/child.yaml": "name: c\nextends: ../dir.yaml\n", "missing.yaml": "name: a\nenvironment: {base: nowhere}\n", "special.yaml": "name: a\nenvironment: {base: /dev/null}\n"})
	for file, want := range map[string]string{"dir.yaml": "rootfs", "tar.yaml": "base.tar", "sub/child.yaml": "rootfs"} {
		k, err := Load(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(k.Environment.Base); got != filepath.Join(dir, want) {
			t.Errorf("%s: base %q", file, got)
		}
	}
	for file, want := range map[string]string{"missing.yaml": "no such file", "special.yaml": "neither a directory nor a tar file"} {
		if _, err := Load(filepath.Join(dir, file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
