// Package store is the run directory: how a run is written, and how it is opened and read again.
//
// Analyses read a run through this package only. They can be repeated, replaced or added without running the
// agent again.
package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// Run is a run directory that is being read.
type Run struct {
	Dir  string
	Info bodycam.Run
	// Identities open the ledger, for runs without working copies and for whoever reads the ledger itself.
	Identities []age.Identity
	// Anew: what is derived beside the record isn't what was sealed; it is made anew and not read.
	Anew bool
}

// ErrNotRun tells that a path is no run directory.
var ErrNotRun = errors.New("not a run directory")

// Open reads run.json of a run directory.
func Open(dir string) (*Run, error) {
	b, err := regular.ReadFile(filepath.Join(dir, InfoFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w (it has no %s)", dir, ErrNotRun, InfoFile)
	}
	if err != nil {
		return nil, fmt.Errorf("opening run %s: %w", dir, err)
	}
	r := &Run{Dir: dir}
	if err := json.Unmarshal(b, &r.Info); err != nil {
		return nil, fmt.Errorf("opening run %s: %s: %w", dir, InfoFile, err)
	}
	if r.Info.Schema > bodycam.RunSchema || r.Info.Events > bodycam.EventSchema {
		return nil, fmt.Errorf("run %s was made by a newer bodycam (schema %d, events %d): update bodycam to read it",
			dir, r.Info.Schema, r.Info.Events)
	}
	return r, nil
}

// List finds the run directories in a folder, oldest first.
func List(dir string) ([]*Run, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing runs: %w", err)
	}
	var out []*Run
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		r, err := Open(filepath.Join(dir, e.Name()))
		if errors.Is(err, ErrNotRun) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Info.Started.Before(out[j].Info.Started) })
	return out, nil
}

// Cut tells whether the run was cut off: it neither ended nor is its writer still at work.
func (r *Run) Cut() bool { return r.Info.Ended.IsZero() }

// Events calls f with every event of the run, in order, with its process filled in ([bodycam.Processes]).
// The event is valid during the call only. Where the file is torn, all whole events are given and then ErrTorn is
// returned.
func (r *Run) Events(f func(*bodycam.Event) error) error {
	var procs bodycam.Processes
	return r.Raw(func(e *bodycam.Event) error {
		procs.Observe(e)
		return f(e)
	})
}

// Raw is Events without filling in processes: each event as its sensor gave it.
func (r *Run) Raw(f func(*bodycam.Event) error) error {
	s, err := openSegment(filepath.Join(r.Dir, EventsFile))
	if errors.Is(err, fs.ErrNotExist) && r.HasLedger() {
		return r.rawSealed(f)
	}
	if err != nil {
		return err
	}
	defer s.close()
	var e bodycam.Event // one for all: a pass makes no garbage but the strings
	for {
		switch err := s.next(&e); {
		case err == nil:
			if err := f(&e); err != nil {
				return err
			}
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// ErrCut tells that whoever wrote a run is gone, and noted no end of it.
var ErrCut = errors.New("the run was cut off: its recorder is gone, and noted no end")

// Follow is Events for a run that is still being written: it waits for more, and returns when the run has ended
// and all was given, or when the context ends. Of a run whose writer is gone all is given, and then ErrCut is returned.
func (r *Run) Follow(ctx context.Context, f func(*bodycam.Event) error) error {
	const pause = 100 * time.Millisecond
	s, err := openSegment(filepath.Join(r.Dir, EventsFile))
	if err != nil {
		return err
	}
	defer s.close()
	var procs bodycam.Processes
	ended, alone := false, 0
	for {
		var e bodycam.Event
		err := s.next(&e)
		switch {
		case err == nil:
			alone = 0
			procs.Observe(&e)
			if err := f(&e); err != nil {
				return err
			}
			continue
		case errors.Is(err, io.EOF), errors.Is(err, ErrTorn) && !ended:
			if ended {
				return nil
			}
		default:
			return err
		}
		// The lock is given back a moment before, or after, the end is noted: once without it proves nothing.
		if held, lerr := posixstore.New(r.Dir).Locked(); r.HasLedger() && lerr == nil && !held {
			alone++
		} else {
			alone = 0
		}
		if now, err := Open(r.Dir); err == nil && !now.Info.Ended.IsZero() {
			ended = true // one more pass: what was written before the end
			continue
		}
		if alone > 20 {
			return ErrCut
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Rows reads the agent's account. A run without a transcript has none.
func (r *Run) Rows() ([]bodycam.Row, error) {
	b, err := r.ReadFile(RowsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the rows: %w", err)
	}
	var out []bodycam.Row
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, len(b)+1)
	for line := 1; sc.Scan(); line++ {
		var row bodycam.Row
		if err := json.Unmarshal(sc.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", filepath.Join(r.Dir, RowsFile), line, err)
		}
		out = append(out, mapRow(row, bodycam.Unescape))
	}
	return out, sc.Err()
}

// Links reads how rows and events were joined.
func (r *Run) Links() ([]bodycam.Link, error) {
	var out []bodycam.Link
	return out, r.readJSON(LinksFile, &out)
}

// Findings reads what the analyses found.
func (r *Run) Findings() ([]bodycam.Finding, error) {
	var out []bodycam.Finding
	return out, r.readJSON(FindingsFile, &out)
}

// Path names a file of the run directory.
func (r *Run) Path(name string) string { return filepath.Join(r.Dir, name) }

func (r *Run) readJSON(name string, v any) error {
	b, err := r.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(r.Dir, name), err)
	}
	return nil
}
