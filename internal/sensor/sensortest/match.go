package sensortest

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

// cond is one thing asked of an event.
type cond struct {
	what string
	ok   func(e *bodycam.Event) bool
}

// inexact are the marks of an event that does not claim to be exactly true.
const inexact = bodycam.MarkUnverified | bodycam.MarkTruncated | bodycam.MarkDetached | bodycam.MarkRaced | bodycam.MarkArgvCut | bodycam.MarkNoResult

func typ(t bodycam.Type) cond {
	return cond{"type " + t.String(), func(e *bodycam.Event) bool { return e.Type == t }}
}
func path(p string) cond {
	return cond{fmt.Sprintf("path %q", p), func(e *bodycam.Event) bool { return e.Path == p }}
}
func path2(p string) cond {
	return cond{fmt.Sprintf("path2 %q", p), func(e *bodycam.Event) bool { return e.Path2 == p }}
}
func given(p string) cond {
	return cond{fmt.Sprintf("given %q", p), func(e *bodycam.Event) bool { return e.PathGiven == p }}
}
func givenPrefix(p string) cond {
	return cond{fmt.Sprintf("given %q…", p), func(e *bodycam.Event) bool { return strings.HasPrefix(e.PathGiven, p) }}
}
func errno(n int32) cond {
	return cond{fmt.Sprintf("errno %d", n), func(e *bodycam.Event) bool { return e.Errno == n }}
}

// pid and child hold for any process where the number is negative: see [Traits.OwnPIDs].
func pid(p int) cond {
	return cond{fmt.Sprintf("pid %d", p), func(e *bodycam.Event) bool { return p < 0 || int(e.Proc.PID) == p }}
}
func child(p int) cond {
	return cond{fmt.Sprintf("child %d", p), func(e *bodycam.Event) bool { return p < 0 || int(e.Child.PID) == p }}
}
func sig(n int32) cond {
	return cond{fmt.Sprintf("signal %d", n), func(e *bodycam.Event) bool { return e.Signal == n }}
}
func status(n int32) cond {
	return cond{fmt.Sprintf("status %d", n), func(e *bodycam.Event) bool { return e.Status == n }}
}
func access(a bodycam.Access) cond {
	return cond{"access exactly " + a.String(), func(e *bodycam.Event) bool { return e.Access == a }}
}
func has(a bodycam.Access) cond {
	return cond{"access with " + a.String(), func(e *bodycam.Event) bool { return e.Access&a == a }}
}
func mark(m bodycam.Mark) cond {
	return cond{fmt.Sprintf("marked %v", m.Names()), func(e *bodycam.Event) bool { return e.Marks&m == m }}
}
func unmarked(m bodycam.Mark) cond {
	return cond{fmt.Sprintf("not marked %v", m.Names()), func(e *bodycam.Event) bool { return e.Marks&m == 0 }}
}
func abi(a bodycam.ABI) cond {
	return cond{"abi " + a.String(), func(e *bodycam.Event) bool { return e.ABI == a }}
}
func exe(p string) cond {
	return cond{fmt.Sprintf("exe %q", p), func(e *bodycam.Event) bool { return e.Exe == p }}
}
func flags(f uint64) cond {
	return cond{fmt.Sprintf("flags %#o", f), func(e *bodycam.Event) bool { return e.Flags == f }}
}
func amount(n uint64) cond {
	return cond{fmt.Sprintf("bytes %d", n), func(e *bodycam.Event) bool { return e.Bytes == n }}
}
func proto(p bodycam.Proto) cond {
	return cond{"proto " + p.String(), func(e *bodycam.Event) bool { return e.Proto == p }}
}
func hostname(h string) cond {
	return cond{fmt.Sprintf("host %q", h), func(e *bodycam.Event) bool { return e.Host == h }}
}
func remote(ip string, port int) cond {
	want := netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(port))
	return cond{"remote " + want.String(), func(e *bodycam.Event) bool {
		return e.Remote.IsValid() && e.Remote.Port() == want.Port() && e.Remote.Addr().Unmap() == want.Addr()
	}}
}
func either(cs ...cond) cond {
	var names []string
	for _, c := range cs {
		names = append(names, c.what)
	}
	return cond{"(" + strings.Join(names, " or ") + ")", func(e *bodycam.Event) bool {
		return slices.ContainsFunc(cs, func(c cond) bool { return c.ok(e) })
	}}
}
func both(cs ...cond) cond {
	var names []string
	for _, c := range cs {
		names = append(names, c.what)
	}
	return cond{"(" + strings.Join(names, " and ") + ")", func(e *bodycam.Event) bool {
		return !slices.ContainsFunc(cs, func(c cond) bool { return !c.ok(e) })
	}}
}

// argv holds where the arguments are exactly these, or are cut and the length and hash of the whole are right.
func argv(want ...string) cond {
	whole := strings.Join(want, "\x00") + "\x00"
	hash := sha256.Sum256([]byte(whole))
	return cond{fmt.Sprintf("argv %.200q", want), func(e *bodycam.Event) bool {
		if e.Marks&bodycam.MarkArgvCut != 0 {
			kept := strings.Join(e.Argv, "\x00")
			return len(whole) > 4096 && e.ArgvLen == uint64(len(whole)) && e.ArgvHash == hash && strings.HasPrefix(whole, kept)
		}
		return slices.Equal(e.Argv, want)
	}}
}

// Outcome is a case's record beside the truth.
type Outcome struct {
	Record
	Argv     []string
	Dir, Bin string
	suite    *Suite
	before   uint64 // nanoseconds since boot when the workload started
	facts    map[string][]string
}

func (o *Outcome) parseFacts() {
	o.facts = make(map[string][]string)
	for line := range strings.Lines(string(o.Stdout)) {
		if k, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			o.facts[k] = append(o.facts[k], v)
		}
	}
}

// fact is the last value that the trigger printed for the key.
func (o *Outcome) fact(key string) string {
	if v := o.facts[key]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

func (o *Outcome) num(t testing.TB, key string) int {
	t.Helper()
	n, err := strconv.Atoi(o.fact(key))
	if err != nil {
		t.Fatalf("the trigger did not say %s", key)
	}
	return n
}

// pid is a process id that the trigger printed, or -1 where its numbers aren't the record's.
func (o *Outcome) pid(t testing.TB, key string) int {
	t.Helper()
	n := o.num(t, key)
	if o.suite.traits.OwnPIDs {
		return -1
	}
	return n
}

// outcome is the condition that an event's errno is the one that the trigger saw.
func (o *Outcome) outcome(t testing.TB, key string) cond {
	t.Helper()
	return errno(int32(o.num(t, key)))
}

func (o *Outcome) in(name string) string { return filepath.Join(o.Dir, name) }

func (o *Outcome) match(cs ...cond) (found []*bodycam.Event, n uint64) {
	all := both(cs...)
	for i := range o.Events {
		if e := &o.Events[i]; all.ok(e) {
			found = append(found, e)
			n += e.N()
		}
	}
	return found, n
}

// between tells whether an event happened, and was delivered, after one event and before another; nil is none.
func (o *Outcome) between(e, after, before *bodycam.Event) bool {
	come := after == nil
	for i := range o.Events {
		switch x := &o.Events[i]; x {
		case e:
			return come && (after == nil || e.Boot >= after.Boot) && (before == nil || max(e.Boot, e.LastBoot) <= before.Boot)
		case after:
			come = true
		case before:
			return false
		}
	}
	return false
}

// count asserts how many calls match, folded or not.
func (o *Outcome) count(t testing.TB, want int, cs ...cond) {
	t.Helper()
	if _, n := o.match(cs...); n != uint64(want) {
		t.Errorf("%d records of %s, want %d%s", n, both(cs...).what, want, o.nearest(cs))
	}
}

// one asserts that exactly one call matches and that its record claims to be exactly true.
func (o *Outcome) one(t testing.TB, cs ...cond) *bodycam.Event {
	t.Helper()
	return o.only(t, inexact, cs...)
}

// named is one for calls that take names and give no descriptor back: sensors that can't follow such a name to what the
// kernel touched mark it unverified.
func (o *Outcome) named(t testing.TB, cs ...cond) *bodycam.Event {
	t.Helper()
	if o.suite.traits.Walks {
		return o.only(t, inexact, cs...)
	}
	return o.only(t, inexact&^bodycam.MarkUnverified, cs...)
}

// text is one for calls whose name leads nowhere that could be looked at.
func (o *Outcome) text(t testing.TB, cs ...cond) *bodycam.Event {
	t.Helper()
	return o.only(t, inexact&^bodycam.MarkUnverified, cs...)
}

// leads is the condition that a name led to a path: to its canonical form where the sensor follows names, else the text may stand
// for it, marked.
func (o *Outcome) leads(canonical, text string) cond {
	if o.suite.traits.Walks {
		return path(o.in(canonical))
	}
	return either(path(o.in(canonical)), both(path(o.in(text)), mark(bodycam.MarkUnverified)))
}

// leads2 is leads for the second name.
func (o *Outcome) leads2(canonical, text string) cond {
	if o.suite.traits.Walks {
		return path2(o.in(canonical))
	}
	return either(path2(o.in(canonical)), both(path2(o.in(text)), mark(bodycam.MarkUnverified)))
}

func (o *Outcome) only(t testing.TB, without bodycam.Mark, cs ...cond) *bodycam.Event {
	t.Helper()
	found, n := o.match(cs...)
	if n != 1 {
		t.Errorf("%d records of %s, want exactly one%s", n, both(cs...).what, o.nearest(cs))
		return &bodycam.Event{}
	}
	if m := found[0].Marks & without; m != 0 {
		t.Errorf("the record of %s is marked %v, want an exact one", both(cs...).what, m.Names())
	}
	return found[0]
}

// some asserts that at least one call matches.
func (o *Outcome) some(t testing.TB, cs ...cond) {
	t.Helper()
	if _, n := o.match(cs...); n == 0 {
		t.Errorf("no record of %s%s", both(cs...).what, o.nearest(cs))
	}
}

// nearest shows the events that fail the fewest conditions, to make a failure readable.
func (o *Outcome) nearest(cs []cond) string {
	best, at := len(cs), -1
	var miss []string
	for i := range o.Events {
		var failed []string
		for _, c := range cs {
			if !c.ok(&o.Events[i]) {
				failed = append(failed, c.what)
			}
		}
		if len(failed) < best && len(failed) > 0 {
			best, at, miss = len(failed), i, failed
		}
	}
	if at < 0 {
		return ""
	}
	return fmt.Sprintf("\n\tnearest: %s\n\tlacks: %s", line(&o.Events[at]), strings.Join(miss, ", "))
}

func (o *Outcome) isBlind(t testing.TB, what string) {
	t.Helper()
	for _, b := range o.Health.Blind {
		if b.What == what {
			if b.Inherent {
				t.Errorf("the hole %q is called inherent: the record would look complete", what)
			}
			return
		}
	}
	t.Errorf("no Blind entry %q: %+v", what, o.Health.Blind)
}

func (o *Outcome) isRefused(t testing.TB, typ bodycam.Type) {
	t.Helper()
	o.count(t, 1, cond{"refused " + typ.String(), func(e *bodycam.Event) bool {
		return (e.Type == typ || e.Type == bodycam.TypeDenied) && e.Errno != 0
	}})
}

// inherent asserts that the record names a hole of the configuration.
func (o *Outcome) inherent(t testing.TB, what string) {
	t.Helper()
	for _, b := range o.Health.Blind {
		if b.What == what && b.Inherent {
			return
		}
	}
	t.Errorf("the record does not name the inherent hole %q: %+v", what, o.Health.Blind)
}

func (o *Outcome) dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "health: %+v\n", o.Health)
	limit := 120
	if os.Getenv("BODYCAM_TEST_DUMP") != "" {
		limit = len(o.Events)
	}
	for i := range o.Events {
		if i >= limit {
			fmt.Fprintf(&b, "… %d more events\n", len(o.Events)-i)
			break
		}
		b.WriteString(line(&o.Events[i]) + "\n")
	}
	return b.String()
}

func line(e *bodycam.Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d.%d", e.Type, e.Proc.PID, e.TID)
	add := func(name string, v any, zero bool) {
		if !zero {
			fmt.Fprintf(&b, " %s=%.200s", name, fmt.Sprint(v))
		}
	}
	add("n", e.Count, e.Count <= 1)
	add("nr", e.NR, e.NR < 0)
	add("abi", e.ABI, e.ABI == bodycam.ABIAMD64)
	add("path", strconv.Quote(e.Path), e.Path == "")
	add("given", strconv.Quote(e.PathGiven), e.PathGiven == "")
	add("path2", strconv.Quote(e.Path2), e.Path2 == "")
	add("exe", e.Exe, e.Exe == "")
	add("argv", fmt.Sprintf("%q", e.Argv), e.Argv == nil)
	add("script", e.Script, e.Script == "")
	add("access", e.Access, e.Access == 0)
	add("flags", e.Flags, e.Flags == 0)
	add("ino", e.Ino, e.Ino == 0)
	add("bytes", e.Bytes, e.Bytes == 0)
	add("read", e.BytesRead, e.BytesRead == 0)
	add("written", e.BytesWritten, e.BytesWritten == 0)
	add("mapped", e.Mapped, !e.Mapped)
	add("proto", e.Proto, e.Proto == 0)
	add("local", e.Local, !e.Local.IsValid())
	add("remote", e.Remote, !e.Remote.IsValid())
	add("unix", strconv.Quote(e.UnixAddr), e.UnixAddr == "")
	add("host", strconv.Quote(e.Host), e.Host == "")
	add("answers", e.Answers, e.Answers == nil)
	add("child", e.Child.PID, e.Child.PID == 0)
	add("signal", e.Signal, e.Signal == 0)
	add("status", e.Status, e.Status == 0)
	add("errno", e.Errno, e.Errno == 0)
	add("marks", e.Marks.Names(), e.Marks == 0)
	add("detail", e.Detail, e.Detail == "")
	return b.String()
}
