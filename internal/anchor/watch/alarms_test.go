package watch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/anchor/digest"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// scene is a log with a keeper of digests, and a watcher whose clock is the test's.
type scene struct {
	t     *testing.T
	dir   string // the run
	kept  string // the keeper's folder
	now   time.Time
	w     *Watcher
	clock time.Time // the keeper's
}

func newScene(t *testing.T, o Options) *scene {
	t.Helper()
	s := &scene{t: t, dir: filepath.Join(t.TempDir(), "run"), kept: t.TempDir(), now: time.Now(), clock: time.Now()}
	key := checkpoint.Key{Name: "audit"}
	key.Alg, key.Public = signer(t, 2).Public()
	o.Manifest = &proof.Manifest{Roots: map[string]proof.Root{"audit": {Kind: proof.KindDigest, Key: key.String()}}}
	o.Now = func() time.Time { return s.now }
	s.w = New(o)
	write(t, ledger.Create, s.dir, "a", true)
	return s
}

func (s *scene) grow(what string) { s.t.Helper(); write(s.t, ledger.Open, s.dir, what, true) }

func (s *scene) anchor() {
	s.t.Helper()
	m := &digest.Mechanism{Dir: s.kept, Signer: signer(s.t, 2), Now: func() time.Time { return s.clock }}
	if err := anchor.Flush(s.t.Context(), s.dir, []anchor.Named{{Mechanism: m, Options: anchor.Options{Name: "d", Poll: time.Millisecond}}}); err != nil {
		s.t.Fatal(err)
	}
}

// expect demands alarms, each as its name or "name: part of the reason".
func (s *scene) expect(want ...string) {
	s.t.Helper()
	got := s.w.Look(s.t.Context(), s.dir)
	ok := len(got) == len(want)
	for i := range want {
		name, why, _ := strings.Cut(want[i], ": ")
		ok = ok && got[i].Alarm == name && strings.Contains(got[i].Why, why)
	}
	if !ok {
		s.t.Fatalf("alarms %+v, want %q", got, want)
	}
}

func TestLate(t *testing.T) {
	t.Run("now", func(t *testing.T) {
		s := newScene(t, Options{})
		s.anchor()
		s.grow("b")
		s.expect() // an hour is promised
		s.now = s.now.Add(2 * time.Hour)
		s.expect("late: under no anchor")
		s.clock = s.now
		s.anchor()
		s.expect("late: 2h0m0s passed between two anchors") // it was late, and that stays so
	})
	t.Run("never", func(t *testing.T) {
		s := newScene(t, Options{})
		s.now = s.now.Add(time.Hour + 5*time.Second)
		s.expect() // within the grace
		s.now = s.now.Add(time.Minute)
		s.expect("missing: the last 1 of 1 epochs")
	})
	t.Run("without a root", func(t *testing.T) {
		s := newScene(t, Options{})
		s.anchor()
		s.w.o.Manifest = &proof.Manifest{} // what can't be checked doesn't count
		s.now = s.now.Add(2 * time.Hour)
		s.expect("missing")
	})
}

func TestMissingDigest(t *testing.T) {
	s := newScene(t, Options{})
	s.anchor()
	for _, e := range []string{"b", "c"} {
		s.grow(e)
		s.anchor()
	}
	s.expect()
	proofs, err := filepath.Glob(filepath.Join(s.dir, proof.Dir, "*"+proof.Suffix))
	if err != nil || len(proofs) != 3 {
		t.Fatalf("%v, %v", proofs, err)
	}
	if err := os.Remove(proofs[1]); err != nil {
		t.Fatal(err)
	}
	s.expect("missing: number 1 is missing")
	s.w.o.Digests = []string{s.kept}
	s.expect() // their keeper has it
	s.w.o.Digests = []string{t.TempDir()}
	s.expect("missing: none is there", "missing: number 1 is missing")
}

func TestConflicts(t *testing.T) {
	t.Run("an anchor holds another history", func(t *testing.T) {
		s := newScene(t, Options{})
		begun := filepath.Join(t.TempDir(), "begun")
		if err := os.CopyFS(begun, os.DirFS(s.dir)); err != nil {
			t.Fatal(err)
		}
		s.grow("b")
		s.anchor()
		s.expect()
		if err := os.RemoveAll(filepath.Join(s.dir, "ledger")); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(s.dir, "payload")); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"ledger", "payload"} {
			if err := os.CopyFS(filepath.Join(s.dir, part), os.DirFS(filepath.Join(begun, part))); err != nil {
				t.Fatal(err)
			}
		}
		s.grow("another b")
		s.w = New(s.w.o) // one that hasn't seen the first history: the anchor tells
		got := map[string]bool{}
		for _, a := range s.w.Look(t.Context(), s.dir) {
			got[a.Alarm] = true
		}
		if !got[Tampered] {
			t.Errorf("%v", got)
		}
	})
	t.Run("two chains of digests", func(t *testing.T) {
		s := newScene(t, Options{})
		s.anchor()
		other := filepath.Join(t.TempDir(), "other")
		if err := os.CopyFS(other, os.DirFS(s.dir)); err != nil {
			t.Fatal(err)
		}
		s.grow("b")
		s.anchor()
		first := s.kept
		// The keeper forgets the second digest, and signs another in its place.
		names, err := filepath.Glob(filepath.Join(s.kept, "*", "000000000001.digest"))
		if err != nil || len(names) != 1 {
			t.Fatalf("%v %v", names, err)
		}
		kept := t.TempDir()
		if err := os.CopyFS(kept, os.DirFS(first)); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(kept, strings.TrimPrefix(names[0], first))); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(s.dir, proof.Dir)); err != nil {
			t.Fatal(err)
		}
		s.kept, s.clock = kept, s.clock.Add(time.Minute)
		s.anchor()
		s.w.o.Digests = []string{first}
		s.expect("conflict: two follow number 0")
	})
	t.Run("a runner was told so", func(t *testing.T) {
		s := newScene(t, Options{})
		s.status(anchor.Status{Name: "w", Kind: proof.KindWitness, Way: &anchor.Way{State: anchor.Conflict, Trouble: anchor.Trouble{Error: "another history"}}})
		s.expect("conflict: w: another history")
	})
}

// status puts what a runner knows among a run's anchors.
func (s *scene) status(st anchor.Status) {
	s.t.Helper()
	dir := filepath.Join(s.dir, proof.Dir)
	b, err := json.Marshal(st)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, st.Name+".json"), b, 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func TestFailing(t *testing.T) {
	s := newScene(t, Options{})
	s.status(anchor.Status{Name: "t", Kind: proof.KindTSA, Way: &anchor.Way{State: anchor.Pending, Trouble: anchor.Trouble{Attempts: 2, Error: "503"}}})
	s.expect() // that may pass
	s.status(anchor.Status{Name: "t", Kind: proof.KindTSA, Way: &anchor.Way{State: anchor.Pending, Trouble: anchor.Trouble{Attempts: 3, Error: "503"}}})
	s.expect("failing: t failed 3 times: 503")
	if err := os.WriteFile(filepath.Join(s.dir, proof.Dir, "t.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.expect("failing: remove it to begin again")
}

func TestSilent(t *testing.T) {
	s := newScene(t, Options{})
	s.now = s.now.Add(30 * time.Minute)
	s.expect() // it is closed: nothing more is to come
	dir := filepath.Join(t.TempDir(), "open")
	write(t, ledger.Create, dir, "a", false)
	s.dir = dir
	s.now = time.Now().Add(65 * time.Second)
	s.expect() // a minute is promised, and ten seconds of grace
	s.now = s.now.Add(10 * time.Second)
	s.expect("silent: a heartbeat every 1m0s is promised")
}

func TestTamperedAndGone(t *testing.T) {
	s := newScene(t, Options{})
	s.expect()
	name := filepath.Join(s.dir, "ledger", "00000000.log")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s.expect("tampered")
	if got := s.w.Vanished([]string{s.dir}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got := s.w.Vanished(nil); len(got) != 1 || got[0].Alarm != Gone || got[0].Run != s.dir {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "ledger", "genesis"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.expect("tampered: opening the log")
}
