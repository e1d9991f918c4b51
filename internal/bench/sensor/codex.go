package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/harness"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/model"
	"github.com/bodycam-dev/bodycam/internal/session"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// sessionArg makes this program carry out one whole run of the demo's task, as the workload "codex".
const sessionArg = "session"

// sessionJob is one whole run: what "codex" measures. It is handed to a process of its own as JSON, so that each
// run starts alike and its memory can be told.
type sessionJob struct {
	Root       string // of the repository
	Dir        string // for the run directory
	Model      string // URL of the scripted model
	Lookup     string // address of the citation service's stand-in
	Unobserved bool
	Seal       bool
}

// sessionResult is what the run's process says of itself: of bodycam's own CPU time the part while agent and tests ran, of the
// sandbox's all. Set-up before, and linking, collecting and analysing afterwards, are no recording.
type sessionResult struct {
	CPU, Wall time.Duration // of recorder and sandbox
	Own       time.Duration // of which the recorder's
	Setup     time.Duration // wall time before
	Peak      uint64        // bytes: the recorder's VmHWM
	Events    uint64
	Lost      uint64
}

// codexLoad is the task of the demo, played by the real codex with a scripted model in the real sandbox.
type codexLoad struct {
	job  sessionJob
	self string
	stop []func()
}

// newCodex starts what the runs talk to: the scripted model, and the stand-in for the citation service.
func newCodex(dir string) (*codexLoad, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/bodycam-dev/bodycam").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the repository: %w", err)
	}
	c := &codexLoad{job: sessionJob{Root: strings.TrimSpace(string(out)), Dir: filepath.Join(dir, "runs")}}
	if c.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(c.job.Root, ".harness/node_modules/@openai/codex")); err != nil {
		return nil, fmt.Errorf("codex is not installed (sh scripts/harness.sh codex): %w", err)
	}
	script, err := model.Load(filepath.Join(c.job.Root, "demo/model/follow.yaml"))
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- model.New(script, model.Options{}).Serve(ctx, l) }()
	c.stop = append(c.stop, func() { cancel(); <-served })
	c.job.Model = "http://" + l.Addr().String() + "/v1"
	if err := c.startLookup(dir); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *codexLoad) startLookup(dir string) error {
	bin := filepath.Join(dir, "lookup")
	build := exec.Command("go", "build", "-o", bin, "./demo/lookup")
	build.Dir = c.job.Root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the citation service's stand-in: %w: %s", err, out)
	}
	cmd := exec.Command(bin)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.stop = append(c.stop, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := fmt.Fscanln(pipe, &c.job.Lookup); err != nil {
		return fmt.Errorf("the citation service's stand-in did not start: %w", err)
	}
	return nil
}

// recorders are what can record a whole run, in the columns of the table; the first is the run without sensors.
func (c *codexLoad) recorders(table []recorder) []recorder {
	out := []recorder{{table[0].name, func([]string, string, []string) (result, error) { return c.run(true, false) }}}
	for _, r := range table[1:] {
		switch r.name {
		case ours:
			r.run = func([]string, string, []string) (result, error) { return c.run(false, false) }
		case sealed:
			r.run = func([]string, string, []string) (result, error) { return c.run(false, true) }
		default:
			r.run = nil
		}
		out = append(out, r)
	}
	return out
}

func (c *codexLoad) close() {
	for _, f := range c.stop {
		f()
	}
}

// run carries out one run in a process of its own.
func (c *codexLoad) run(unobserved, seal bool) (result, error) {
	job := c.job
	job.Unobserved, job.Seal = unobserved, seal
	arg, err := json.Marshal(job)
	if err != nil {
		return result{}, err
	}
	cmd := exec.Command(c.self, sessionArg, string(arg))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return result{}, fmt.Errorf("the run: %w", err)
	}
	var r sessionResult
	if err := json.Unmarshal(out, &r); err != nil {
		return result{}, fmt.Errorf("the run's account: %w", err)
	}
	if r.Lost != 0 {
		return result{}, fmt.Errorf("the run lost %d events", r.Lost)
	}
	return result{cpu: r.CPU, wall: r.Wall, setup: r.Setup, peak: r.Peak, recorder: r.Own, note: fmt.Sprintf("%d events, bodycam's own CPU %s", r.Events, r.Own.Round(time.Millisecond))}, nil
}

// playSession is the run's own process.
func playSession(arg string) error {
	var job sessionJob
	if err := json.Unmarshal([]byte(arg), &job); err != nil {
		return err
	}
	if err := os.Chdir(job.Root); err != nil { // where the harness is looked for
		return err
	}
	o, err := job.options()
	if err != nil {
		return err
	}
	began := time.Now()
	var before, after time.Duration // CPU time of this process when the agent started, and when the tests had ended
	var started, ended time.Time
	o.Progress = func(p session.Progress) {
		switch {
		case p.Phase == "agent" && started.IsZero():
			before, started = ownCPU(), time.Now()
		case p.Phase == "settle" && ended.IsZero():
			after, ended = ownCPU(), time.Now()
		}
	}
	r, err := session.Run(context.Background(), o)
	if err != nil {
		return err
	}
	if started.IsZero() || ended.IsZero() {
		return errors.New("the run did not tell of its phases")
	}
	if r.Info.Outcome.Status != bodycam.OutcomePass {
		return fmt.Errorf("the task's outcome is %q", r.Info.Outcome.Status)
	}
	if !job.Unobserved && !r.Info.Complete.Complete {
		return fmt.Errorf("the record is incomplete: %q", r.Info.Complete.Reasons)
	}
	var kids syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &kids); err != nil {
		return err
	}
	own := after - before
	res := sessionResult{
		Own: own, CPU: own + time.Duration(kids.Utime.Nano()+kids.Stime.Nano()),
		Wall: ended.Sub(started), Setup: started.Sub(began), Events: r.Info.Counts.Events,
	}
	for _, h := range r.Info.Sensors {
		res.Lost += h.Total.Lost
	}
	if res.Peak, err = peakMemory(os.Getpid()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(res)
}

func (job *sessionJob) options() (o session.Options, err error) {
	task, err := kind.LoadTask(filepath.Join(job.Root, "demo/bibcheck"))
	if err != nil {
		return o, err
	}
	k, err := kind.Load(task.Kind)
	if err != nil {
		return o, err
	}
	plan, err := kind.Resolve(k, task, kind.Overrides{Harness: "codex", Model: "scripted", Network: "sink",
		Forward: []kind.Forward{{Host: "citations.example", Port: 80, To: job.Lookup}}})
	if err != nil {
		return o, err
	}
	h, err := harness.Get(plan.Agent.Harness)
	if err != nil {
		return o, err
	}
	id := store.NewID(time.Now())
	o = session.Options{Plan: plan, Harness: h, ID: id, Dir: filepath.Join(job.Dir, id), Model: session.Model{URL: job.Model}, Unobserved: job.Unobserved}
	if job.Seal {
		var key age.Identity
		if o.Sealing, key, err = newSealing(); err != nil {
			return o, err
		}
		o.Identities = []age.Identity{key}
	}
	return o, os.MkdirAll(job.Dir, 0o700)
}

// newSealing makes keys of one run's own.
func newSealing() (*store.Sealing, age.Identity, error) {
	seed := make([]byte, 32)
	_, _ = rand.Read(seed) // never fails
	signer, err := checkpoint.NewSigner(checkpoint.Ed25519, seed)
	if err != nil {
		return nil, nil, err
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, nil, err
	}
	return &store.Sealing{Signers: []checkpoint.Signer{signer}, Recipients: []age.Recipient{key.Recipient()}, Recorder: "bench"}, key, nil
}

// resetPeak makes a process's peak memory begin again.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// peakMemory is the most memory that a process ever had, in bytes (VmHWM). What it has read of the ring, which is mapped, is part
// of it.
func peakMemory(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		var kb uint64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kb); err == nil {
			return kb << 10, nil
		}
	}
	return 0, errors.New("the kernel does not tell a process's peak memory")
}
