package rules

import (
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

func FuzzFile(f *testing.F) {
	f.Add([]byte(base))
	f.Add([]byte(ruleOf("evt.type=open and fd.name glob /a*")))
	f.Add([]byte(sequenceHead + "    by: run\n    taint: true\n" + secretSteps))
	f.Add([]byte("- rule: x\n  condition: \"a\\\n    b\"\n- &a [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := LoadSources(Options{}, Source{Name: "f", Data: data})
		if err != nil {
			return
		}
		e := s.NewEngine(family())
		for _, ev := range []*bodycam.Event{openEvent(), connectEvent(), renameEvent(), execEvent()} {
			for _, m := range e.Event(ev) {
				e.Output(m)
			}
		}
	})
}

func FuzzCondition(f *testing.F) {
	for _, s := range []string{"evt.type=open and not proc.name in (a, \"b\\x41\")", "len(b64(proc.argv)) > 3 or x", "proc.aname[2]=x",
		"fd.name regex '(a|b)*' and fd.name glob '/a/@(b|c)*[!d-f]\\\\*'", "fd.net=::/0 and fd.port >= 0x10", "join(\",\", (proc.name,proc.exe)) = val(proc.name)",
		"getopt(proc.argv, \"a:b\")[a] = x", "fd.name pmatch (/a*/b, /c)", "proc.name contains oneof (a,b)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, cond string) {
		x, err := parseCondition(cond)
		if err != nil {
			if x != nil || err.off < 0 || err.off > len(cond) || err.msg == "" {
				t.Fatalf("error %+v with %v", err, x)
			}
			return
		}
		d := &definitions{loader: &loader{files: []source{{"f", nil}}}}
		c := &compiler{set: &Set{}, macros: map[string]*macroDef{}, lists: map[string]*listDef{}, report: d.loader.report, done: map[macroKey]*macroDone{}}
		c.txt = text{s: cond}
		k := c.condition(x, true)
		for _, ev := range []*bodycam.Event{openEvent(), connectEvent(), renameEvent(), execEvent()} {
			m := &machine{ctx: family(), memo: make([]uint32, c.slots)}
			m.reset(ev)
			// What is built for one event type must answer as what is built for all.
			b := newBuilder(c.slots)
			want := false
			if ok := b.pred(k, anyType); ok != nil {
				want = ok(m)
			}
			m.reset(ev)
			got := false
			if ok := b.pred(k, int(ev.Type)); ok != nil {
				got = ok(m)
			}
			if got != want {
				t.Fatalf("%q for %s: %v, but %v when built for all types", cond, ev.Type, got, want)
			}
			// What an event's form says of a condition never says it false where it is true, or true where it is false.
			most, least := b.bound(k, int(ev.Type), true), b.bound(k, int(ev.Type), false)
			m.memo = make([]uint32, b.slots)
			m.reset(ev)
			if got && !most.holds(m) || !got && least.holds(m) {
				t.Fatalf("%q for %s is %v, and between %v and %v by its form", cond, ev.Type, got, least.holds(m), most.holds(m))
			}
		}
	})
}

func (x built) holds(m *machine) bool { return x.ok == nil && x.value || x.ok != nil && x.ok(m) }

func FuzzOutput(f *testing.F) {
	for _, s := range []string{"%proc.name and %20fd.name.", "%toupper(proc.aname[1])%", "%proc.env %evt.arg.flags %x.y", "%join(\"a\", proc.argv)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, out string) {
		l := &loader{files: []source{{"f", nil}}}
		c := &compiler{set: &Set{}, report: l.report, done: map[macroKey]*macroDone{}}
		tpl := c.output(text{s: out})
		if len(l.errs) > 0 {
			return
		}
		m := &machine{ctx: family()}
		m.reset(openEvent())
		got := string(tpl.print(nil, m))
		if !strings.Contains(out, "%") && got != strings.TrimPrefix(out, "*") {
			t.Fatalf("plain text %q became %q", out, got)
		}
	})
}

// The matcher of globs must agree with a slow and obvious one.
func FuzzGlob(f *testing.F) {
	f.Add("/a*b?[c-e]", "/axxbyd")
	f.Add("[!a]*\\*", "b*")
	f.Fuzz(func(t *testing.T, p, s string) {
		if len(p) > 12 || len(s) > 24 {
			return
		}
		if got, want := glob(p, s, false), slowGlob(p, s); got != want {
			t.Fatalf("glob(%q, %q) = %v, want %v", p, s, got, want)
		}
	})
}

func slowGlob(p, s string) bool {
	if p == "" {
		return s == ""
	}
	if p[0] == '*' {
		return slowGlob(p[1:], s) || s != "" && slowGlob(p, s[1:])
	}
	if s == "" {
		return false
	}
	n, ok := globOne(p, s[0], false)
	return ok && slowGlob(p[n:], s[1:])
}
