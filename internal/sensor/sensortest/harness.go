package sensortest

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
)

// Workload is a program to be observed.
type Workload struct {
	Argv []string // Argv[0] is an absolute path
	Env  []string
	Dir  string
}

// Record is what came of a workload.
type Record struct {
	Events []bodycam.Event // in the order of delivery
	Health bodycam.Health  // after the sensor had stopped
	Stdout []byte          // what the workload wrote to its standard output
	PID    int             // of the process that was started
	Status int             // its exit status; -1 where a signal ended it
}

// Traits say what a sensor can do beyond, or short of, the common record.
type Traits struct {
	// Bytes: close events carry exact counts of bytes read and written, and Mapped. Without it the record
	// must name the inherent hole "bytes".
	Bytes bool
	// Walks: calls that only name a path (rename, unlink, failed opens …) have the canonical path that the name led to, without
	// a mark where nobody could have changed either.
	Walks bool
	// DNSAnswers: DNS events of type "answer" carry the addresses that came back.
	DNSAnswers bool
	// StartGrain is the resolution of Proc.Start (1 ns where zero).
	StartGrain time.Duration
	// OwnPIDs: the workloads have a pid namespace of their own, so the numbers that they print say nothing about the record.
	OwnPIDs bool
	// Blind maps the name of a case, without the suite's, to the What of the Blind entry that it must leave.
	Blind map[string]string
	// Refused names cases whose essential call the harness's sandbox refuses: they must leave exactly one
	// attempt with its errno, and no more.
	Refused map[string]bodycam.Type
	// Flood is how long each flood lasts.
	Flood time.Duration
}

// Harness puts workloads under observation.
type Harness interface {
	// Start runs the workload until it and every process that it left behind have ended, with the sensor
	// in place from its first instruction, and returns the whole record.
	Start(t testing.TB, w Workload) Record
	Traits() Traits
}

// Collector copies events as a sensor delivers them. Its Sink method is a [sensor.Sink].
type Collector struct {
	mu     sync.Mutex
	events []bodycam.Event
}

// Sink keeps a deep copy of the event.
func (c *Collector) Sink(e *bodycam.Event) error {
	d := *e
	d.Argv = slices.Clone(e.Argv)
	d.Answers = slices.Clone(e.Answers)
	c.mu.Lock()
	c.events = append(c.events, d)
	c.mu.Unlock()
	return nil
}

// Events returns what was collected so far.
func (c *Collector) Events() []bodycam.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events
}

// Suite is one run of the suite.
type Suite struct {
	// Dir holds the trigger programs and the cases' directories.
	Dir string
	// Host is what the cases can talk to.
	host   *host
	h      Harness
	traits Traits
}

// Case is one thing that a recorder can get wrong.
type Case struct {
	// Name begins with the number of the case in the list of those that fooled other tools; kin share a number.
	Name string
	// Argv is what runs: "files dirfd" is the act dirfd of files.c. {tcp} and {udp} stand for ports that listen.
	Argv []string
	// Prepare may lay out the case's directory.
	Prepare func(t *testing.T, dir string)
	Env     []string
	// Need tells why the case can't run on this machine ("" where it can).
	Need  func(o *Outcome) string
	Check func(t *testing.T, o *Outcome)
}

//go:embed testdata/*.c testdata/*.h
var sources embed.FS

// Cases returns the suite's cases.
func Cases() []Case {
	return slices.Concat(fileCases(), oddFileCases(), outcomeCases(), openKinCases(), writeCases(), nameCases(), wayCases(), execCases(), argumentCases(),
		procCases(), identityCases(), netCases(), dnsCases(), unixCases(), raceCases("thread"), raceCases("process"), hideCases(), mountCases(), floodCases())
}

// Run runs every case against the harness.
func Run(t *testing.T, h Harness) { run(t, h, Cases()) }

// RunNamed runs the cases of these names only. All must exist, and what Traits declares must be among them.
func RunNamed(t *testing.T, h Harness, names ...string) {
	all := make(map[string]Case)
	for _, c := range Cases() {
		all[c.Name] = c
	}
	var cases []Case
	for _, n := range names {
		c, ok := all[n]
		if !ok {
			t.Errorf("there is no case %s", n)
			continue
		}
		cases = append(cases, c)
	}
	run(t, h, cases)
}

func run(t *testing.T, h Harness, cases []Case) {
	s := newSuite(t, h)
	known := make(map[string]bool)
	for _, c := range cases {
		if known[c.Name] {
			t.Fatalf("two cases are named %s", c.Name)
		}
		known[c.Name] = true
		t.Run(c.Name, func(t *testing.T) { s.run(t, c) })
	}
	for name := range s.traits.Blind {
		if !known[name] {
			t.Errorf("Traits.Blind names %q, which is no case", name)
		}
	}
	for name := range s.traits.Refused {
		if !known[name] {
			t.Errorf("Traits.Refused names %q, which is no case", name)
		}
	}
}

func newSuite(t *testing.T, h Harness) *Suite {
	t.Helper()
	s := &Suite{h: h, traits: h.Traits()}
	if s.traits.Flood == 0 {
		s.traits.Flood = time.Second
		if v := os.Getenv("BODYCAM_TEST_FLOOD"); v != "" {
			d, err := time.ParseDuration(v)
			if err != nil {
				t.Fatalf("BODYCAM_TEST_FLOOD: %v", err)
			}
			s.traits.Flood = d
		}
	}
	dir, err := os.MkdirTemp("", "sensortest")
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: its removal fails the test for directories deeper than a path can name, and for those of
	// another uid.
	t.Cleanup(func() { removeAll(dir) })
	if s.Dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(s.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := build(s.Dir); err != nil {
		t.Fatal(err)
	}
	s.host = newHost(t)
	return s
}

// build compiles the trigger programs into dir/bin.
func build(dir string) error {
	src, bin := filepath.Join(dir, "src"), filepath.Join(dir, "bin")
	if err := errors.Join(os.Mkdir(src, 0o755), os.Mkdir(bin, 0o755)); err != nil {
		return err
	}
	names, err := fs.Glob(sources, "testdata/*")
	if err != nil {
		return err
	}
	for _, n := range names {
		b, err := sources.ReadFile(n)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(src, filepath.Base(n)), b, 0o644); err != nil {
			return err
		}
	}
	for _, n := range names {
		base, isC := strings.CutSuffix(filepath.Base(n), ".c")
		if !isC {
			continue
		}
		to, from := filepath.Join(bin, base), filepath.Join(src, base+".c")
		args := []string{"-O1", "-w", "-pthread", "-o", to, from}
		switch base {
		case "evil":
			args = []string{"-shared", "-fPIC", "-o", to + ".so", from}
		case "tiny":
			// Not every compiler has the 32-bit library: the case says so then.
			_ = exec.Command("gcc", append([]string{"-m32", "-static"}, args...)...).Run()
			continue
		}
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("compiling %s: %w\n%s", n, err, out)
		}
	}
	return nil
}

// play runs a case's workload and returns what came of it.
func (s *Suite) play(t *testing.T, c Case) *Outcome {
	t.Helper()
	dir := filepath.Join(s.Dir, strings.ReplaceAll(c.Name, "/", "_"))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if c.Prepare != nil {
		c.Prepare(t, dir)
	}
	if slices.Contains(c.Argv, "{dns}") && s.host.dns == "" {
		t.Skip(s.host.noDNS)
	}
	argv := slices.Clone(c.Argv)
	if !filepath.IsAbs(argv[0]) {
		argv[0] = filepath.Join(s.Dir, "bin", argv[0])
	}
	for i, a := range argv {
		a = strings.ReplaceAll(a, "{tcp}", strconv.Itoa(s.host.tcp))
		a = strings.ReplaceAll(a, "{tcp6}", strconv.Itoa(s.host.tcp6))
		a = strings.ReplaceAll(a, "{dns}", s.host.dns)
		a = strings.ReplaceAll(a, "{udp}", strconv.Itoa(s.host.udp))
		a = strings.ReplaceAll(a, "{recorder}", strconv.Itoa(os.Getpid()))
		a = strings.ReplaceAll(a, "{bin}", filepath.Join(s.Dir, "bin"))
		argv[i] = strings.ReplaceAll(a, "{flood}", strconv.FormatFloat(s.traits.Flood.Seconds(), 'f', 2, 64))
	}
	env := append([]string{"PATH=/usr/bin:/bin", "HOME=" + dir, "LC_ALL=C"}, c.Env...)
	if _, err := os.Stat(argv[0]); err != nil {
		t.Skipf("%s is not on this machine, or the compiler could not build it: %v", argv[0], err)
	}
	o := &Outcome{before: bootNow(), Record: s.h.Start(t, Workload{Argv: argv, Env: env, Dir: dir}), Argv: argv, Dir: dir, Bin: filepath.Join(s.Dir, "bin"), suite: s}
	o.parseFacts()
	return o
}

func (s *Suite) run(t *testing.T, c Case) {
	o := s.play(t, c)
	defer func() {
		if t.Failed() {
			t.Logf("stdout: %q\n%s", clip(o.Stdout), o.dump())
		}
	}()
	if why := o.fact("broken"); why != "" {
		t.Fatalf("the trigger could not do its act: %s", why)
	}
	if c.Need != nil {
		if why := c.Need(o); why != "" {
			t.Skip(why)
		}
	}
	o.check(t, o.before, s.traits.Blind[c.Name])
	if what, ok := s.traits.Blind[c.Name]; ok {
		o.isBlind(t, what)
		return
	}
	if typ, ok := s.traits.Refused[c.Name]; ok {
		o.isRefused(t, typ)
		return
	}
	c.Check(t, o)
}

func clip(b []byte) []byte {
	if len(b) > 1000 {
		return append(bytes.Clone(b[:1000]), "…"...)
	}
	return b
}

// removeAll removes a tree whose depth may exceed PATH_MAX; os.RemoveAll works with directory descriptors.
func removeAll(dir string) { _ = os.RemoveAll(dir) }
