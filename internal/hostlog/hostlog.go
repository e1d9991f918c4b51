// Package hostlog is the log that a machine keeps of its runs: the genesis of each when it begins, the head of each
// when it ends. It shows when a whole run vanished, was cut short or was replaced.
//
// It is a ledger like a run's, unencrypted: it names runs and digests, nothing of what they hold. Each entry is
// written by a writer that opens the log, appends, signs and lets go, so that runs that go on side by side don't wait
// for each other. Whoever owns the machine can remove the host log with the run; a mirror of it (`bodycam mirror`)
// stands against that.
package hostlog

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// The types of records.
const (
	RecordOpened = ledger.TypeUser + 32 // a run began: an [Entry] without a head
	RecordClosed = ledger.TypeUser + 33 // a run ended: an [Entry] with its head
)

// Entry is what the log says of a run.
type Entry struct {
	Run  string `json:"run"` // its name
	Log  string `json:"log"` // identity of its ledger, hexadecimal
	Dir  string `json:"dir"` // where it was recorded, absolute
	Size uint64 `json:"size,omitempty"`
	Root string `json:"root,omitempty"` // tree head over Size epochs, hexadecimal
}

// Log is a machine's log of its runs.
type Log struct {
	Dir string // the folder that holds its ledger
	// Signers are the keys that sign it: the present ones, then those before. A log that is under former keys is handed
	// over to the present ones.
	Signers  [][]checkpoint.Signer
	Recorder string
}

// Dir is where the log is kept: $BODYCAM_HOME/host, or host beside the folder of keys.
func Dir(keys string) string {
	if d := os.Getenv("BODYCAM_HOME"); d != "" {
		return filepath.Join(d, "host")
	}
	return filepath.Join(filepath.Dir(keys), "host")
}

// patience is how long an entry waits for other runs' entries.
const patience = 30 * time.Second

// OpenRun notes that a run begins. dir is its run directory.
func (l *Log) OpenRun(ctx context.Context, run, dir string) error {
	gen, err := genesis(dir)
	if err != nil {
		return fmt.Errorf("noting run %s in the machine's log: %w", run, err)
	}
	return l.note(ctx, RecordOpened, "opened", run, dir, Entry{Log: gen})
}

// CloseRun notes the head with which a run ended, or was extended later.
func (l *Log) CloseRun(ctx context.Context, run, dir string) error {
	lr, err := ledger.OpenReader(regular.FS(dir))
	if err != nil {
		return fmt.Errorf("noting the end of run %s in the machine's log: %w", run, err)
	}
	defer lr.Close()
	note, err := lr.Checkpoint()
	if err == nil && note == nil {
		err = errors.New("it has no checkpoint")
	}
	if err != nil {
		return fmt.Errorf("noting the end of run %s in the machine's log: %w", run, err)
	}
	gen := lr.Genesis()
	id := gen.ID()
	return l.note(ctx, RecordClosed, "closed", run, dir, Entry{Log: hex.EncodeToString(id[:]), Size: note.Size, Root: hex.EncodeToString(note.Root[:])})
}

func genesis(dir string) (string, error) {
	b, err := regular.ReadFile(filepath.Join(dir, "ledger", "genesis"))
	if err != nil {
		return "", err
	}
	g, err := ledger.ParseGenesis(b)
	if err != nil {
		return "", err
	}
	id := g.ID()
	return hex.EncodeToString(id[:]), nil
}

func (l *Log) note(ctx context.Context, t ledger.Type, kind, run, dir string, e Entry) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("noting run %s in the machine's log: %w", run, err)
	}
	e.Run, e.Dir = run, abs
	b, err := json.Marshal(e)
	if err == nil {
		err = l.append(ctx, ledger.Entry{Type: t, Kind: kind, Payload: b})
	}
	if err != nil {
		return fmt.Errorf("noting run %s in the machine's log: %w", run, err)
	}
	return nil
}

// append opens the log, appends, and lets go of it.
func (l *Log) append(ctx context.Context, e ledger.Entry) error {
	w, err := l.writer(ctx)
	if err != nil {
		return err
	}
	_, err = w.Append(ctx, e)
	return errors.Join(err, w.Detach())
}

// writer opens the log for writing as soon as nobody else has it open.
func (l *Log) writer(ctx context.Context) (*ledger.Writer, error) {
	deadline := time.Now().Add(patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		w, err := l.tryWriter()
		var locked *ledger.LockedError
		if !errors.As(err, &locked) || time.Now().After(deadline) {
			return w, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (l *Log) options(signers []checkpoint.Signer) ledger.Options {
	return ledger.Options{Name: "bodycam/host", Recorder: l.Recorder, Signers: signers, Clear: true}
}

func (l *Log) tryWriter() (*ledger.Writer, error) {
	if len(l.Signers) == 0 {
		return nil, errors.New("there is no key to sign it")
	}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return nil, err
	}
	store := posixstore.New(l.Dir)
	w, err := ledger.Create(store, l.options(l.Signers[0]))
	if !errors.Is(err, ledger.ErrExists) {
		return w, err
	}
	var locked *ledger.LockedError
	for i, signers := range l.Signers {
		w, oerr := ledger.Open(store, l.options(signers))
		if errors.As(oerr, &locked) {
			return nil, oerr
		}
		if oerr != nil {
			err = oerr
			continue
		}
		if i > 0 { // the ring was rotated since
			if err := w.Rotate(l.Signers[0]); err != nil {
				return nil, errors.Join(err, w.Detach())
			}
		}
		return w, nil
	}
	if errors.Is(err, ledger.ErrSigners) {
		return nil, fmt.Errorf("%s: %w: it was begun with another ring than the one at hand. Use that one ($BODYCAM_KEYS, --keys), "+
			"or another folder for this machine's state ($BODYCAM_HOME); a ring that is to follow another is made by `bodycam keys rotate`", l.Dir, err)
	}
	return nil, err
}

// State is what the log knows of one run.
type State struct {
	Entry
	Opened time.Time `json:"opened,omitzero"`
	Closed time.Time `json:"closed,omitzero"`
}

// Head is the run's last head, and whether it is known.
func (s *State) Head() (checkpoint.Checkpoint, bool) {
	root, err := hex.DecodeString(s.Root)
	if err != nil || len(root) != 32 {
		return checkpoint.Checkpoint{}, false
	}
	return checkpoint.Checkpoint{Size: s.Size, Root: [32]byte(root)}, true
}

// ErrNone tells that the machine has no log of its runs.
var ErrNone = errors.New("this machine keeps no log of its runs")

// Read returns what the log in a folder says, by the order in which runs began. It doesn't verify.
func Read(dir string) ([]*State, error) {
	lr, err := ledger.OpenReader(regular.FS(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, ErrNone)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the machine's log: %w", err)
	}
	defer lr.Close()
	var out []*State
	byLog := map[string]*State{}
	for rec, err := range lr.Records(0) {
		if err != nil {
			return nil, fmt.Errorf("reading the machine's log: %w", err)
		}
		if rec.Type != RecordOpened && rec.Type != RecordClosed {
			continue
		}
		b, err := lr.Payload(rec)
		if err != nil {
			return nil, fmt.Errorf("reading the machine's log: %w", err)
		}
		var e Entry
		if err := json.Unmarshal(b, &e); err != nil {
			return nil, fmt.Errorf("reading the machine's log: record %d: %w", rec.Seq, err)
		}
		s := byLog[e.Log]
		if s == nil {
			s = &State{Opened: time.Unix(0, rec.Wall).UTC()}
			byLog[e.Log] = s
			out = append(out, s)
		}
		s.Entry = e
		if rec.Type == RecordClosed {
			s.Closed = time.Unix(0, rec.Wall).UTC()
		}
	}
	return out, nil
}

// HandOver hands the log over to the present signing keys, where it stands under former ones.
func (l *Log) HandOver(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(l.Dir, "ledger", "genesis")); errors.Is(err, fs.ErrNotExist) {
		return ErrNone
	}
	w, err := l.writer(ctx)
	if err != nil {
		return fmt.Errorf("handing the machine's log of runs over to new keys: %w", err)
	}
	return w.Detach()
}
