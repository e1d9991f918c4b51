// Package watch follows logs and raises alarms: anchors that are late, missing or in conflict, and recorders that are silent.
// It looks at what lies in a run's directory or a mirror's copy of it, and judges as a verifier would.
package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// The alarms.
const (
	Silent   = "silent"   // no seal for longer than the heartbeat that the genesis promises
	Late     = "late"     // unanchored epochs, and no anchor for longer than promised or given
	Missing  = "missing"  // no anchor that could be verified at all
	Conflict = "conflict" // an anchor holds another history
	Tampered = "tampered" // the log isn't consistent with itself or its checkpoint
	Shrunk   = "shrunk"   // fewer epochs than were seen before, or another head of them
	Failing  = "failing"  // a runner can't anchor
)

// Alarm is one.
type Alarm struct {
	Run   string    `json:"run"`
	Alarm string    `json:"alarm"`
	Why   string    `json:"why"`
	Since time.Time `json:"since,omitzero"` // our or the recorder's clock
}

// Options say what to hold logs to.
type Options struct {
	// Manifest is what their anchors are judged by.
	Manifest *proof.Manifest
	// MaxAge stands in for a promise that a genesis doesn't make; 0: none.
	MaxAge time.Duration
	// Grace is added to every promise. Default: 10 s.
	Grace time.Duration
	Now   func() time.Time // nil: time.Now
}

// Watcher follows logs. It remembers their heads.
type Watcher struct {
	o    Options
	seen map[string]head
}

type head struct {
	size uint64
	root merkle.Hash
}

// New makes a watcher.
func New(o Options) *Watcher {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Grace == 0 {
		o.Grace = 10 * time.Second
	}
	if o.Manifest == nil {
		o.Manifest = &proof.Manifest{}
	}
	return &Watcher{o, map[string]head{}}
}

// Look looks at a run once.
func (w *Watcher) Look(ctx context.Context, run string) []Alarm {
	var out []Alarm
	alarm := func(what string, since time.Time, format string, args ...any) {
		out = append(out, Alarm{run, what, fmt.Sprintf(format, args...), since})
	}
	log, err := anchor.OpenLog(run)
	if err != nil {
		alarm(Tampered, time.Time{}, "%v", err)
		return out
	}
	defer log.Close()
	gen := log.Genesis()
	last, err := w.grow(log, run)
	if err != nil {
		alarm(Shrunk, time.Time{}, "%v", err)
	}
	anchors, err := proof.Read(os.DirFS(run))
	if err != nil {
		alarm(Missing, time.Time{}, "%v", err)
		return out
	}
	j := proof.Judge(gen.Origin(), anchors, w.o.Manifest)
	report, err := ledger.Verify(ctx, os.DirFS(run), ledger.VerifyOptions{Trust: ledger.Trust{Pinned: j.Pinned(), Self: true}})
	if err != nil {
		alarm(Tampered, time.Time{}, "%v", err)
		return out
	}
	j.Conclude(report.Epochs, time.Unix(0, gen.Created), gen.AnchorEvery)
	if report.Verdict == ledger.Tampered {
		why := "it isn't consistent"
		if report.FirstBad != nil {
			why = report.FirstBad.What
		}
		alarm(Tampered, time.Time{}, "%s", why)
	}
	for _, c := range j.Conflicts {
		alarm(Conflict, time.Time{}, "%s", c)
	}
	out = append(out, w.late(run, j, &gen, report)...)
	if now := w.o.Now(); !report.Closed {
		since := time.Unix(0, gen.Created)
		if last != nil {
			since = time.Unix(0, last.Closed)
		}
		if now.Sub(since) > gen.Heartbeat+w.o.Grace {
			alarm(Silent, since, "the last seal is %v old, a heartbeat every %v is promised, and the log isn't closed", now.Sub(since).Round(time.Second), gen.Heartbeat)
		}
	}
	return append(out, runners(run)...)
}

// late looks for epochs that have been without an anchor for too long.
func (w *Watcher) late(run string, j *proof.Judgement, gen *ledger.Genesis, r *ledger.Report) []Alarm {
	promised := gen.AnchorEvery
	if promised == 0 {
		promised = w.o.MaxAge
	}
	if promised == 0 || r.Epochs == 0 || j.Unanchored == 0 {
		return nil
	}
	since, what := time.Unix(0, gen.Created), Missing
	for _, a := range j.Attestations {
		if a.Status == ledger.StatusVerified && a.Time != nil && a.Time.After(since) {
			since = *a.Time
		}
		if a.Status == ledger.StatusVerified {
			what = Late
		}
	}
	if age := w.o.Now().Sub(since); age > promised+w.o.Grace {
		return []Alarm{{run, what, fmt.Sprintf("the last %d of %d epochs are under no anchor, for %v where %v is allowed", j.Unanchored, r.Epochs, age.Round(time.Second), promised), since}}
	}
	return nil
}

// grow checks that a log continues what was seen of it, and returns its last header.
func (w *Watcher) grow(log *anchor.Log, run string) (*ledger.Header, error) {
	var tree merkle.Range
	var last *ledger.Header
	was := w.seen[run]
	held := was.size == 0
	for h, err := range log.Headers() {
		if err != nil {
			return last, err
		}
		last = h
		if tree.Append(h.Hash()); tree.Size() == was.size {
			held = tree.Root() == was.root
		}
	}
	if !held {
		return last, fmt.Errorf("it had %d epochs under head %x…, and now has %d that don't lead there", was.size, was.root[:8], tree.Size())
	}
	w.seen[run] = head{tree.Size(), tree.Root()}
	return last, nil
}

// runners looks at what this machine's own runners say.
func runners(run string) (out []Alarm) {
	list, err := anchor.Statuses(run)
	if err != nil {
		return []Alarm{{Run: run, Alarm: Failing, Why: err.Error()}}
	}
	for _, s := range list {
		t, state := s.Trouble, anchor.Pending
		if s.Way != nil {
			t, state = s.Way.Trouble, s.Way.State
		}
		switch {
		case state == anchor.Conflict:
			out = append(out, Alarm{Run: run, Alarm: Conflict, Why: s.Name + ": " + t.Error})
		case t.Attempts >= 3:
			out = append(out, Alarm{Run: run, Alarm: Failing, Why: fmt.Sprintf("%s failed %d times: %s", s.Name, t.Attempts, t.Error)})
		}
	}
	return out
}

// Runs are the run directories that a path stands for: itself, or those in it.
func Runs(path string) []string {
	if _, err := os.Stat(filepath.Join(path, "ledger", "genesis")); err == nil {
		return []string{path}
	}
	names, err := filepath.Glob(filepath.Join(path, "*", "ledger", "genesis"))
	if err != nil {
		return nil
	}
	var out []string
	for _, n := range names {
		out = append(out, filepath.Dir(filepath.Dir(n)))
	}
	sort.Strings(out)
	return out
}
