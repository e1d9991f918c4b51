// Package watch follows logs and raises alarms: anchors that are late, missing or in conflict, and recorders that are silent.
// It looks at what lies in a run's directory or a mirror's copy of it, and judges as a verifier would.
package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// The alarms.
const (
	Silent   = "silent"   // no seal for longer than the heartbeat that the genesis promises
	Late     = "late"     // unanchored epochs, and no anchor for longer than promised or given
	Missing  = "missing"  // no anchor that could be verified at all, or a policy that isn't met
	Foreign  = "foreign"  // a proof that is false or of another log lies with the run
	Conflict = "conflict" // an anchor holds another history
	Tampered = "tampered" // the log isn't consistent with itself or its checkpoint
	Shrunk   = "shrunk"   // fewer epochs than were seen before, or another head of them
	Gone     = "gone"     // a log that was seen isn't there any more
	Failing  = "failing"  // a runner can't anchor
	// Equivocation: somebody vouched for two histories, and there is a proof of it.
	Equivocation = "equivocation"
)

// Alarm is one.
type Alarm struct {
	Run   string    `json:"run"`
	Alarm string    `json:"alarm"`
	Why   string    `json:"why"`
	Since time.Time `json:"since,omitzero"` // our or the recorder's clock
	// Proof is the file that convicts whoever vouched for two histories.
	Proof string `json:"proof,omitempty"`
}

// Options say what to hold logs to.
type Options struct {
	// Manifest is what their anchors are judged by.
	Manifest *proof.Manifest
	// Digests are folders of signed digests, as their keepers have them. Their continuity is judged with the run's own copies.
	Digests []string
	// MaxAge stands in for a promise that a genesis doesn't make; 0: none.
	MaxAge time.Duration
	// Proofs is the folder for proofs of equivocation; "": they aren't kept.
	Proofs string
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
	// note is the last checkpoint of that history, old are those of histories that went away.
	note *checkpoint.Note
	old  []*checkpoint.Note
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
		out = append(out, Alarm{Run: run, Alarm: what, Why: fmt.Sprintf(format, args...), Since: since})
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
	out = append(out, w.equivocations(run)...)
	anchors, err := w.anchors(run, gen.Origin())
	if err != nil {
		alarm(Missing, time.Time{}, "%v", err)
	}
	j := proof.Judge(gen.Origin(), anchors, w.o.Manifest)
	report, err := ledger.Verify(ctx, regular.FS(run), ledger.VerifyOptions{Trust: ledger.Trust{Pinned: j.Pinned(), Self: true}})
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
	for _, a := range j.Attestations {
		if a.Status == ledger.StatusTampered && (a.Root == "" || len(j.Conflicts) == 0) {
			alarm(Foreign, time.Time{}, "a proof of kind %s doesn't count: %s", a.Kind, a.Why)
		}
	}
	for _, c := range j.Chains {
		if c.Status == ledger.StatusIncomplete {
			alarm(Missing, time.Time{}, "%s", c.Why[0])
		}
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

// anchors are the proofs that lie with a run, and the digests that their keepers have of its log.
func (w *Watcher) anchors(run, origin string) ([]ledger.Anchor, error) {
	out, err := proof.Read(regular.FS(run))
	for _, dir := range w.o.Digests {
		more, derr := proof.ReadDigests(regular.FS(dir), origin)
		out, err = append(out, more...), errors.Join(err, derr)
	}
	return out, err
}

// Vanished raises an alarm for every run that was looked at and isn't among those that are there now.
func (w *Watcher) Vanished(now []string) (out []Alarm) {
	for _, run := range slices.Sorted(maps.Keys(w.seen)) {
		if !slices.Contains(now, run) {
			out = append(out, Alarm{Run: run, Alarm: Gone, Why: fmt.Sprintf("it had %d epochs, and isn't there any more", w.seen[run].size)})
		}
	}
	return out
}

// late looks for epochs that have been without an anchor for too long, now or between two anchors.
func (w *Watcher) late(run string, j *proof.Judgement, gen *ledger.Genesis, r *ledger.Report) []Alarm {
	promised := gen.AnchorEvery
	if promised == 0 {
		promised = w.o.MaxAge
	}
	if promised == 0 && r.Epochs > 0 && j.Policy != "" && j.Unanchored > 0 && (j.Anchored == 0 || r.Closed) {
		// Nobody said by when; but a policy that isn't met for a log that is there, or has ended, is no good news.
		if since := time.Unix(0, gen.Created); w.o.Now().Sub(since) > w.o.Grace {
			return []Alarm{{Run: run, Alarm: Missing, Why: j.Why, Since: since}}
		}
	}
	if promised == 0 || r.Epochs == 0 {
		return nil
	}
	if j.WorstWindow > promised+w.o.Grace {
		return []Alarm{{Run: run, Alarm: Late, Why: fmt.Sprintf("%v passed between two anchors where %v is allowed", j.WorstWindow.Round(time.Second), promised)}}
	}
	if j.Unanchored == 0 {
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
		return []Alarm{{Run: run, Alarm: what, Why: fmt.Sprintf("the last %d of %d epochs are under no anchor, for %v where %v is allowed", j.Unanchored, r.Epochs, age.Round(time.Second), promised), Since: since}}
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
	now := head{size: tree.Size(), root: tree.Root(), old: was.old}
	if h, err := log.Head(); err == nil {
		now.note = h.Note
	}
	if !held && was.note != nil && len(now.old) < maxOld {
		now.old = append(now.old, was.note)
	}
	w.seen[run] = now
	if !held {
		return last, fmt.Errorf("it had %d epochs under head %x…, and now has %d that don't lead there", was.size, was.root[:8], tree.Size())
	}
	return last, nil
}

// maxOld bounds how many histories of a log that went away are remembered.
const maxOld = 16

// equivocations looks for two histories among what the run holds and what was seen of it before.
func (w *Watcher) equivocations(run string) (out []Alarm) {
	gen, list, h, err := proof.Statements(regular.FS(run))
	if err != nil {
		return nil // said elsewhere
	}
	for _, n := range w.seen[run].old {
		list = append(list, &proof.Evidence{Kind: proof.KindCheckpoint, Note: n})
	}
	var histories []*proof.History
	if h != nil {
		histories = append(histories, h)
	}
	found, err := proof.FindEquivocations(list, histories, w.o.Manifest.PublicKeys(), gen)
	if err != nil {
		return []Alarm{{Run: run, Alarm: Tampered, Why: err.Error()}}
	}
	for _, q := range found {
		c := q.Judge(nil, w.o.Manifest)
		if c.Status != ledger.StatusVerified {
			continue
		}
		a := Alarm{Run: run, Alarm: Equivocation, Why: fmt.Sprintf("two histories of %s, of %d and %d epochs, both vouched for by %s", c.Log, c.Statements[0].Size, c.Statements[1].Size, c.Accused[0].Who)}
		if w.o.Proofs != "" {
			a.Proof = filepath.Join(w.o.Proofs, q.Name())
			err := os.MkdirAll(w.o.Proofs, 0o755)
			if err == nil {
				err = anchor.Replace(a.Proof, q.Append(nil))
			}
			if err != nil {
				a.Proof, a.Why = "", a.Why+"; the proof can't be kept: "+err.Error()
			}
		}
		out = append(out, a)
	}
	return out
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
		case state == anchor.Conflict || t.Conflict:
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
