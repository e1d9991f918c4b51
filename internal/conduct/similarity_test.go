package conduct

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
)

// run makes features from counts: "command NAME", "file NAME", "host NAME".
func run(counts map[string]uint64) *features.Features {
	f := &features.Features{}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		n := counts[name]
		kind, rest, _ := strings.Cut(name, " ")
		r := &features.Resource{Resource: bodycam.Resource{Kind: bodycam.ResourceKind(kind), Name: rest}, Key: rest,
			Counts: map[features.Action]uint64{}, At: map[features.Action][2]uint64{}, Uses: features.Uses{Rows: n}}
		switch r.Kind {
		case bodycam.Command:
			r.Counts[features.Executed] = n
			r.Forms = []features.Form{{Sub: rest, Argv: rest, Uses: features.Uses{Rows: n}}}
		case bodycam.File:
			r.Counts[features.Read] = n
		case bodycam.Host:
			r.Counts[features.Contact] = n
		}
		f.Resources = append(f.Resources, r)
	}
	return f
}

func compareTwo(a, b *features.Features, o Options, raw bool) Similarity {
	n := newNames()
	pa, pb := profileOf(a, o, raw, n), profileOf(b, o, raw, n)
	return similarity(&pa, &pb)
}

func near(a, b float64) bool {
	return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) < 1e-9
}

// The worked examples of docs/ANALYSES.md.
func TestPublishedFormula(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name string
		a, b map[string]uint64
		want Similarity
	}{
		{"the same", map[string]uint64{"command cat": 2, "file /a": 1, "host h": 3}, map[string]uint64{"command cat": 2, "file /a": 1, "host h": 3}, Similarity{1, 1, 1, 1}},
		{"the same proportions", map[string]uint64{"command cat": 1, "command sed": 3}, map[string]uint64{"command cat": 10, "command sed": 30}, Similarity{1, nan, nan, 1}},
		{"nothing shared", map[string]uint64{"command cat": 1, "file /a": 1}, map[string]uint64{"command sed": 1, "file /b": 4}, Similarity{0, 0, nan, 0}},
		// p = (1/2, 1/2, 0), q = (1/4, 1/2, 1/4): min 3/4, max 5/4.
		{"partly", map[string]uint64{"command cat": 2, "command sed": 2}, map[string]uint64{"command cat": 1, "command sed": 2, "command awk": 1}, Similarity{0.6, nan, nan, 0.6}},
		// Commands 1, hosts on one side only 0: the mean is over the two types.
		{"empty on one side", map[string]uint64{"command cat": 1, "host h": 1}, map[string]uint64{"command cat": 1}, Similarity{1, nan, 0, 0.5}},
		// p = (1/2, 1/2), q = (1, 0): min 1/2, max 3/2. The types that neither run touched are left out.
		{"empty on both sides", map[string]uint64{"file /a": 1, "file /b": 1}, map[string]uint64{"file /a": 1}, Similarity{nan, 1.0 / 3, nan, 1.0 / 3}},
		{"nothing at all", map[string]uint64{}, map[string]uint64{}, Similarity{nan, nan, nan, 1}},
		{"nothing against something", map[string]uint64{}, map[string]uint64{"file /a": 1}, Similarity{nan, 0, nan, 0}},
	} {
		for _, raw := range []bool{true, false} {
			got := compareTwo(run(c.a), run(c.b), Options{}, raw)
			back := compareTwo(run(c.b), run(c.a), Options{}, raw)
			for i := range 4 {
				if !near(got.at(i), c.want.at(i)) || !near(got.at(i), back.at(i)) {
					t.Errorf("%s (raw %v): %+v and back %+v, want %+v", c.name, raw, got, back, c.want)
					break
				}
			}
		}
	}
}

func TestNodes(t *testing.T) {
	read := run(map[string]uint64{"file /a": 2})
	write := run(map[string]uint64{"file /a": 2})
	write.Resources[0].Counts = map[features.Action]uint64{features.Written: 2}
	if s := compareTwo(read, write, Options{}, true); s.Files != 1 {
		t.Errorf("by path a read and a write of the same file have %v", s.Files)
	}
	if s := compareTwo(read, write, Options{ByAction: true}, true); s.Files != 0 {
		t.Errorf("by path and action they have %v", s.Files)
	}
	git := func(sub, argv string) *features.Features {
		f := run(map[string]uint64{"command /usr/bin/git": 1})
		f.Resources[0].Forms[0].Sub, f.Resources[0].Forms[0].Argv = "/usr/bin/git "+sub, "/usr/bin/git "+argv
		return f
	}
	a, b, c := git("log", "log -1"), git("log", "log -2"), git("push", "push")
	for _, x := range []struct {
		level  features.Level
		ab, ac float64
	}{{features.LevelExecutable, 1, 1}, {features.LevelSubcommand, 1, 0}, {features.LevelArgv, 0, 0}} {
		o := Options{Level: x.level}
		if ab, ac := compareTwo(a, b, o, true).Commands, compareTwo(a, c, o, true).Commands; ab != x.ab || ac != x.ac {
			t.Errorf("%s: %v and %v, want %v and %v", x.level, ab, ac, x.ab, x.ac)
		}
	}
}

// Calls that failed count only where asked for; a contact that was attempted always counts.
func TestFailedCalls(t *testing.T) {
	f := run(map[string]uint64{"file /a": 1})
	f.Resources = append(f.Resources, &features.Resource{Resource: bodycam.Resource{Kind: bodycam.File, Name: "/b"}, Key: "/b",
		Failed: map[features.Action]uint64{features.Read: 3}, Vain: features.Uses{Rows: 3}})
	g := run(map[string]uint64{"file /a": 1})
	if s := compareTwo(f, g, Options{}, true); s.Files != 1 {
		t.Errorf("without failed calls: %v", s.Files)
	}
	if s := compareTwo(f, g, Options{Failed: true}, true); !near(s.Files, 1.0/7) {
		t.Errorf("with failed calls: %v, want 1/7 (p = (1/4, 3/4), q = (1, 0))", s.Files)
	}
	host := &features.Resource{Resource: bodycam.Resource{Kind: bodycam.Host, Name: "h"}, Key: "h",
		Failed: map[features.Action]uint64{features.Contact: 2}, Vain: features.Uses{Rows: 2}}
	f.Resources, g.Resources = append(f.Resources, host), append(g.Resources, host)
	if s := compareTwo(f, g, Options{}, true); s.Hosts != 1 {
		t.Errorf("attempted contacts: %v", s.Hosts)
	}
}

// What is noise, the harness's own, or happened after the agent's end counts in the published metric alone.
func TestNoiseIsLeftOut(t *testing.T) {
	f := run(map[string]uint64{"command cat": 1, "file /a": 1})
	f.Account = true
	f.Resources = append(f.Resources,
		&features.Resource{Resource: bodycam.Resource{Kind: bodycam.File, Name: "/lib/x"}, Key: "/lib/x", Noise: "loader", Uses: features.Uses{Rows: 9}},
		&features.Resource{Resource: bodycam.Resource{Kind: bodycam.File, Name: "/own"}, Key: "/own", Uses: features.Uses{Rows: 1, Harness: 8}},
		&features.Resource{Resource: bodycam.Resource{Kind: bodycam.File, Name: "/late"}, Key: "/late", Uses: features.Uses{Rows: 5}, Late: features.Uses{Rows: 5}})
	n := newNames()
	own, raw := profileOf(f, Options{}, false, n), profileOf(f, Options{}, true, n)
	if len(own[1]) != 2 || len(raw[1]) != 4 {
		t.Fatalf("%d files count, and %d in the published metric; want 2 and 4", len(own[1]), len(raw[1]))
	}
	for _, w := range own[1] {
		if w.n != 1 {
			t.Errorf("%s counts %d, want the agent's one", n.name(w.id), w.n)
		}
	}
	f.Account = false // nothing is known of causes
	if own = profileOf(f, Options{}, false, newNames()); len(own[1]) != 2 {
		t.Errorf("without a transcript %d files count", len(own[1]))
	}
}

// Contributions tell the whole difference.
func TestContributions(t *testing.T) {
	n := newNames()
	var ps []*profile
	for _, c := range []map[string]uint64{
		{"command cat": 2, "command sed": 2, "host h": 1},
		{"command cat": 1, "command sed": 2, "command awk": 1},
		{"command cat": 4, "host h": 2, "file /a": 1},
	} {
		p := profileOf(run(c), Options{}, true, n)
		ps = append(ps, &p)
	}
	for i := range ps {
		var want, sum float64
		for j := range ps {
			if j != i {
				want += (1 - similarity(ps[i], ps[j]).Overall) / 2
			}
		}
		for _, c := range contributions(ps, i, n) {
			sum += c.Lost
		}
		if math.Abs(sum-want) > 1e-6 {
			t.Errorf("run %d: the contributions sum to %v, want %v", i, sum, want)
		}
	}
}

func TestIntervalIsRepeatable(t *testing.T) {
	m := matrix(5)
	for i := range m {
		for j := range m {
			if i != j {
				m[i][j].Overall = 0.5 + float64((i*j)%3)/10
			}
		}
	}
	a, b := interval(m), interval(m)
	if *a != *b {
		t.Errorf("two calls give %v and %v", *a, *b)
	}
	if a[0] < 0.5 || a[1] > 0.7 || a[0] >= a[1] {
		t.Errorf("the interval is %v, the values lie between 0.5 and 0.7", *a)
	}
	if interval(matrix(2)) != nil {
		t.Error("two runs have an interval")
	}
}

func TestOutliers(t *testing.T) {
	set := func(n int, odd ...int) [][]Similarity {
		m := matrix(n)
		for i := range m {
			for j := range m {
				if i != j {
					m[i][j].Overall = 0.8
				}
			}
		}
		for _, k := range odd {
			for j := range m {
				if j != k {
					m[k][j].Overall, m[j][k].Overall = 0.2, 0.2
				}
			}
		}
		return m
	}
	if o := outliers(set(4)); len(o) != 0 {
		t.Errorf("a uniform set has outliers: %+v", o)
	}
	o := outliers(set(4, 2))
	if len(o) != 1 || o[0].at != 2 || o[0].P != nil || !near(o[0].Effect, 12) {
		t.Errorf("one of four: %+v, want run 2 with effect 12 and no p-value", o)
	}
	if o = outliers(set(20, 7)); len(o) != 1 || o[0].P == nil || *o[0].P != 0.05 {
		t.Errorf("one of twenty: %+v, want p 0.05", o)
	}
	if outliers(set(2)) != nil {
		t.Error("two runs have an outlier")
	}
}

func TestSimilarityJSON(t *testing.T) {
	b, err := json.Marshal(Similarity{1, math.NaN(), 1.0 / 3, 0.5})
	if want := `{"commands":1,"files":null,"hosts":0.333333,"overall":0.5}`; err != nil || string(b) != want {
		t.Errorf("%s, %v; want %s", b, err, want)
	}
}
