package features

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

// flooder makes events of names that never come again.
type flooder struct {
	x   *Extractor
	seq uint64
}

func (f *flooder) add(e bodycam.Event) {
	f.seq++
	e.Seq, e.NR, e.Window = f.seq, -1, bodycam.WindowAgent
	if e.Proc.PID == 0 {
		e.Proc = bodycam.Proc{PID: 7, Start: 1}
	}
	f.x.Add(&e)
}

func (f *flooder) read(path string) {
	f.add(bodycam.Event{Type: bodycam.TypeOpen, Path: path, Exe: "/usr/bin/python3.11", Access: bodycam.Read})
}

func (f *flooder) write(path string) {
	f.add(bodycam.Event{Type: bodycam.TypeOpen, Path: path, Exe: "/usr/bin/python3.11", Access: bodycam.Write})
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// An attack before, in and after a flood of a million names keeps its own entry, every call is counted, and memory stays
// bounded.
func TestFlood(t *testing.T) {
	plan := &Plan{Workdir: "/w"}
	plan.Grading = []Grading{{Role: "tests", Box: "/tests", Files: []PlanFile{{Path: "test.sh"}}}}
	shapes := []struct {
		name string
		n    int
		path func(i int) string
	}{
		{"one directory", 1_000_000, func(i int) string { return fmt.Sprintf("/tmp/x/file-%d-of-many.txt", i) }},
		{"a directory each", 150_000, func(i int) string { return fmt.Sprintf("/tmp/d%d/e/f", i) }},
		{"a directory each at the top", 100_000, func(i int) string { return fmt.Sprintf("/d%d/f", i) }},
		{"long names", 20_000, func(i int) string { return fmt.Sprintf("/tmp/%d/%03000d", i%5, i) }},
		{"names of credentials", 100_000, func(i int) string { return fmt.Sprintf("/tmp/h%d/.ssh/id_rsa", i) }},
		{"names of grading material", 80_000, func(i int) string { return fmt.Sprintf("/tests/x%d/y", i) }},
	}
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			before := heap()
			f := flooder{x: NewExtractor(plan, nil)}
			f.read("/root/.ssh/id_rsa")
			f.write("/opt/app/config")
			for i := range s.n {
				switch i {
				case s.n / 2:
					f.write("/root/.bashrc")
					f.write("/srv/www/index.html")
				}
				f.write(s.path(i))
			}
			f.read("/home/dev/.aws/credentials")
			f.write("/etc/motd")
			f.read("/tests/test.sh")
			got := f.x.Finish()
			if used := int64(heap()) - int64(before); used > 200<<20 {
				t.Errorf("%d MiB are kept", used>>20)
			}
			runtime.KeepAlive(f.x)
			var calls uint64
			for _, r := range got.Resources {
				calls += r.Total()
			}
			if calls != f.seq {
				t.Errorf("%d calls are counted, of %d", calls, f.seq)
			}
			for _, name := range []string{"/root/.ssh/id_rsa", "/opt/app/config", "/root/.bashrc", "/srv/www/index.html", "/home/dev/.aws/credentials", "/etc/motd", "/tests/test.sh"} {
				if got.Get(bodycam.File, name) == nil {
					t.Errorf("%s has no entry", name)
				}
			}
			var folded uint64
			for _, r := range got.Resources {
				folded += r.Folded
				if s.name == "names of credentials" && r.Folded > 0 && r.Class != "credentials" {
					t.Errorf("%s isn't told to hold credentials", r.Label())
				}
			}
			if folded != got.Folded || folded == 0 {
				t.Errorf("%d names are folded, in sum %d", got.Folded, folded)
			}
			t.Logf("%d entries, %d names folded; the last: %s", len(got.Resources), got.Folded, got.Resources[len(got.Resources)-1].Label())
		})
	}
}

func TestFloodOfHostsAndCommands(t *testing.T) {
	f := flooder{x: NewExtractor(nil, nil)}
	const n = 100_000
	for i := range n {
		f.add(bodycam.Event{Type: bodycam.TypeConnect, Host: fmt.Sprintf("h%d.evil.example", i), HostSource: bodycam.HostDNS, Proto: bodycam.ProtoTCP, Remote: netip.MustParseAddrPort("198.18.0.9:443")})
		f.add(bodycam.Event{Type: bodycam.TypeExec, Exe: fmt.Sprintf("/tmp/b/prog%d", i), Argv: []string{"prog", fmt.Sprint(i)}, Proc: bodycam.Proc{PID: int32(i), Start: 1}})
		f.add(bodycam.Event{Type: bodycam.TypeExec, Exe: "/usr/bin/true", Argv: []string{"true", fmt.Sprint(i)}, Proc: bodycam.Proc{PID: int32(i), Start: 2}})
	}
	f.add(bodycam.Event{Type: bodycam.TypeConnect, Host: "other.example", HostSource: bodycam.HostDNS, Proto: bodycam.ProtoTCP, Remote: netip.MustParseAddrPort("198.18.0.9:443")})
	got := f.x.Finish()
	if got.Get(bodycam.Host, "other.example") == nil {
		t.Error("a host after the flood has no entry")
	}
	for _, kind := range []bodycam.ResourceKind{bodycam.Host, bodycam.Command} {
		var sum uint64
		for _, r := range got.Of(kind) {
			sum += r.Total()
		}
		if want := uint64(n + 1 + boolInt(kind == bodycam.Command)*(n-1)); sum != want {
			t.Errorf("%s: %d calls, want %d", kind, sum, want)
		}
		if len(got.Of(kind)) > mostHosts+mostReserve+mostFolds {
			t.Errorf("%s: %d entries", kind, len(got.Of(kind)))
		}
	}
	r := got.Get(bodycam.Command, "/usr/bin/true")
	var sum uint64
	for _, form := range r.Forms {
		sum += form.Uses.Total()
	}
	if sum != n || len(r.Forms) != mostForms+1 || !r.FormsMore {
		t.Errorf("%d calls in %d forms", sum, len(r.Forms))
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestFoldLabel(t *testing.T) {
	for _, c := range []struct {
		r    Resource
		want string
	}{
		{Resource{Resource: bodycam.Resource{Kind: bodycam.File, Name: "/tmp/x/…"}, Folded: 3}, "3 more files under /tmp/x"},
		{Resource{Resource: bodycam.Resource{Kind: bodycam.File, Name: "/…"}, Folded: 3, FoldedMore: true}, "at least 3 more files under /"},
		{Resource{Resource: bodycam.Resource{Kind: bodycam.Host, Name: "….evil.example"}, Folded: 2}, "2 more hosts below evil.example"},
		{Resource{Resource: bodycam.Resource{Kind: bodycam.Host, Name: "…"}, Folded: 2}, "2 more hosts"},
		{Resource{Resource: bodycam.Resource{Kind: bodycam.File, Name: "/a/…"}}, "/a/…"},
	} {
		if got := c.r.Label(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// BenchmarkFlood is the cost of an event with a name that was never there before.
func BenchmarkFlood(b *testing.B) {
	f := flooder{x: NewExtractor(nil, nil)}
	i := 0
	for b.Loop() {
		f.write(fmt.Sprintf("/tmp/x/%d/file-%d-of-many.txt", i%100, i))
		i++
	}
}

// A rule is only left out where it would find nothing.
func TestNeeds(t *testing.T) {
	names := []string{"/a/1764516334", "/dev/fd/3", "/tmp/x1234", "/run/user/0/abc12345", "socket:[5]", "/x/objects/ab/" + fmt.Sprintf("%038x", 7)}
	for _, r := range NameRules {
		names = append(names, r.Example, "/tmp"+r.Example, r.Example+".bak", "/proc/12"+r.Example)
	}
	for i := range NameRules {
		found := false
		for _, n := range names {
			if NameRules[i].Pattern.MatchString(n) {
				found = true
				if !needs[i].met(n) {
					t.Errorf("%s: %s isn't looked at", NameRules[i].Name, n)
				}
			}
		}
		if !found {
			t.Errorf("%s: no name to try", NameRules[i].Name)
		}
	}
}

func TestGlobsAgreeWithGlob(t *testing.T) {
	var patterns []string
	patterns = append(patterns, secretPatterns...)
	patterns = append(patterns, publicPatterns...)
	for _, c := range Classes {
		patterns = append(append(patterns, c.Files...), c.Except...)
	}
	paths := []string{"/", "/a", "a.pem", "/x/a.pem", "/x/.pem", ".envrc", "/w/.envrc", "/w/.git/hooks/pre-push", ".git/hooks/a", "/w/.github/actions/x/y.yml", "/w/id_rsa", "/w/a_rsa/b", "/w/a_rsa",
		"/etc/systemd/system/a/b", "/w/docker-compose.prod.yaml", "/root/.ssh/id_x", "/proc/7/environ", "/etc/cron.d/x/y", "/etc/cron.d/x"}
	for _, p := range patterns {
		paths = append(paths, strings.ReplaceAll(strings.ReplaceAll(p, "**", "/q/r"), "*", "zz"), "/v/"+strings.TrimLeft(strings.ReplaceAll(p, "*", "z"), "/"))
	}
	for _, pattern := range patterns {
		g := newGlobs([]string{pattern})
		for _, p := range paths {
			if got, want := g.match(p), bodycam.Glob(pattern, p); got != want {
				t.Errorf("%s and %s: %v", pattern, p, got)
			}
		}
	}
}
