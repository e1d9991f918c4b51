package anchor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/proof"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// Status is what a runner knows of one mechanism: the file NAME.json. All of it can be lost at the cost of anchoring one
// head again.
type Status struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Log is the origin of the log that it is of: state that was copied from another run says nothing of this one.
	Log string `json:"log,omitempty"`
	// Size is that of the last head that is final, Taken when it was taken up and At when it became final (our clock),
	// Ticket its ticket.
	Size   uint64    `json:"size"`
	Taken  time.Time `json:"taken,omitzero"`
	At     time.Time `json:"at,omitzero"`
	Cost   float64   `json:"cost,omitempty"` // of the last one
	Spent  float64   `json:"spent,omitempty"`
	Count  int       `json:"count"` // heads that became final
	Ticket []byte    `json:"ticket,omitempty"`
	// Way is what is under way, nil where nothing is.
	Way *Way `json:"under_way,omitempty"`
	// Trouble is why nothing could be prepared.
	Trouble
}

// Trouble says what failed and when it is tried again.
type Trouble struct {
	Attempts int       `json:"attempts,omitempty"` // that failed, one after the other
	Next     time.Time `json:"next,omitzero"`
	Error    string    `json:"error,omitempty"`
	// Conflict tells that it failed for [ErrConflict].
	Conflict bool `json:"conflict,omitempty"`
}

// Way is a head that is under way.
type Way struct {
	Note   string    `json:"checkpoint"`
	Size   uint64    `json:"size"`
	State  State     `json:"state"`
	Ticket []byte    `json:"ticket"`
	Begun  time.Time `json:"begun"`
	Detail string    `json:"detail,omitempty"`
	Trouble
}

// nameForm is what a mechanism may be called: it becomes a file's name.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ErrForeign is wrapped where what lies among a run's anchors is of another log.
var ErrForeign = errors.New("it is of another log")

// Statuses reads what runners know of a run's anchors. State of another log than the run's is an error that wraps [ErrForeign].
func Statuses(run string) ([]Status, error) {
	log, err := OpenLog(run)
	if err != nil {
		return nil, err
	}
	gen := log.Genesis()
	if err := log.Close(); err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(run, proof.Dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var out []Status
	for _, name := range names {
		s, err := readStatus(name)
		if err == nil {
			err = s.of(gen.Origin(), filepath.Dir(name))
		}
		if err != nil {
			return nil, err
		}
		out = append(out, *s)
	}
	return out, nil
}

func readStatus(path string) (*Status, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading an anchor's state: %w", err)
	}
	s := &Status{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("reading an anchor's state %s: %w (remove it to begin again)", path, err)
	}
	return s, nil
}

// of checks that the state is that of a log. State that doesn't name its log is known by what is under way, or by its last proof.
func (s *Status) of(origin, dir string) error {
	is := s.Log
	if is == "" && s.Way != nil {
		if n, err := checkpoint.Parse([]byte(s.Way.Note)); err == nil {
			is = n.Origin
		}
	}
	if is == "" && s.Count > 0 {
		is = "one that isn't named"
		if b, err := regular.ReadFile(filepath.Join(dir, proofName(s.Name, s.Size))); err == nil {
			if e, err := proof.ParseEvidence(b); err == nil {
				is = e.Note.Origin
			}
		}
	}
	if is != "" && is != origin {
		return fmt.Errorf("the state of anchor %s in %s: %w, %s", s.Name, dir, ErrForeign, is)
	}
	return nil
}

func proofName(name string, size uint64) string {
	return fmt.Sprintf("%s-%012d%s", name, size, proof.Suffix)
}

// store keeps the state and the proofs of one mechanism.
type store struct {
	dir, name string
	lock      *os.File
	fault     func(name string) error // see Options.Fault
}

func openStore(run, name string) (*store, error) {
	if !nameForm.MatchString(name) {
		return nil, fmt.Errorf("an anchor can't be called %.70q: letters, digits, dots, dashes and underscores", name)
	}
	s := &store{dir: filepath.Join(run, proof.Dir), name: name}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder for anchors: %w", err)
	}
	f, err := os.OpenFile(s.path(".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking anchor %s: %w", name, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("anchor %s of this run is at work in another process: %w", name, err)
	}
	s.lock = f
	return s, nil
}

func (s *store) close() error { return s.lock.Close() }

func (s *store) path(suffix string) string { return filepath.Join(s.dir, s.name+suffix) }

func (s *store) load(kind, origin string) (*Status, error) {
	st, err := readStatus(s.path(".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return &Status{Name: s.name, Kind: kind, Log: origin}, nil
	}
	if err == nil && st.Kind != kind {
		err = fmt.Errorf("anchor %s was of kind %s, now it is of %s: give it another name", s.name, st.Kind, kind)
	}
	if err == nil {
		err = st.of(origin, s.dir)
	}
	if err != nil {
		return nil, err
	}
	st.Log = origin
	return st, nil
}

func (s *store) save(st *Status) error {
	b, err := json.MarshalIndent(st, "", "  ")
	if err == nil {
		err = s.replace(s.path(".json"), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keeping the state of anchor %s: %w", s.name, err)
	}
	return nil
}

func (s *store) keep(e *proof.Evidence) error {
	path := filepath.Join(s.dir, proofName(s.name, e.Note.Size))
	if err := s.replace(path, e.Append(nil)); err != nil {
		return fmt.Errorf("keeping the proof of anchor %s: %w", s.name, err)
	}
	return nil
}

// replace is Replace, which a test may let fail.
func (s *store) replace(path string, data []byte) error {
	if s.fault != nil {
		if err := s.fault(filepath.Base(path)); err != nil {
			return err
		}
	}
	return Replace(path, data)
}

// Replace puts a file in place in one piece, on stable storage.
func Replace(path string, data []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Keep puts a proof among a run's, under an anchor's name.
func Keep(run, name string, e *proof.Evidence) error {
	s, err := openStore(run, name)
	if err != nil {
		return err
	}
	return errors.Join(s.keep(e), s.close())
}
