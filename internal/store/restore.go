package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store/payload"
	"github.com/bodycam-dev/bodycam/ledger"
)

// ErrUnended tells that a run's ledger holds no end: its copies may hold more than it does.
var ErrUnended = errors.New("the run was cut off or is still written: its working copies may hold more than its ledger")

// RestoreOptions say how a run's working copies are written again.
type RestoreOptions struct {
	// All writes the copies also of a run that keeps none.
	All bool
	// Dry only says what would be done.
	Dry bool
	// Fine tells of a fault that is none: a derived copy that is what the record gives.
	Fine func(CopyFault) bool
	Now  time.Time
}

// Restored is a working copy that wasn't what was sealed, and what became of it.
type Restored struct {
	Name string `json:"name"`
	Why  string `json:"why"`
	// Aside is where what stood there is kept, relative to the run; "" where nothing stood there.
	Aside string `json:"aside,omitempty"`
	// Stray files were never sealed: nothing is written in their place.
	Stray bool `json:"stray,omitempty"`
}

// Restore writes every working copy that isn't what was sealed again from the ledger, which must have been verified before:
// the events, the rows, run.json, the findings, and every file that was sealed. What stood in its place, and what was never
// sealed, is kept aside, in a folder of the run whose name begins with a dot. It needs the run's identities. The index isn't
// among them: it is held against the ledger whenever it is used.
func (r *Run) Restore(o RestoreOptions) ([]Restored, error) {
	x := &restorer{run: r, o: o, aside: ".replaced-" + o.Now.UTC().Format("20060102-150405.000")}
	lr, err := r.Ledger()
	if err != nil {
		return nil, err
	}
	defer lr.Close()
	x.lr = lr
	// Strays first: one of them may be a link in the place of a folder that copies lie in.
	for _, stray := range []bool{true, false} {
		faults, err := x.faults()
		if err != nil {
			return x.done, err
		}
		want := map[string]bool{}
		for _, k := range faults {
			if k.stray != stray {
				continue
			}
			if err := x.putAside(k); err != nil {
				return x.done, fmt.Errorf("putting %s aside: %w", k.Name, err)
			}
			want[k.Name] = !stray
		}
		if stray || o.Dry || len(want) == 0 {
			continue
		}
		if err := x.write(want); err != nil {
			return x.done, fmt.Errorf("writing the working copies again: %w", err)
		}
	}
	if o.Dry {
		return x.done, nil
	}
	left, err := x.faults()
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%s still %s", left[0].Name, left[0].Why)
	}
	return x.done, err
}

type restorer struct {
	run   *Run
	lr    *ledger.Reader
	o     RestoreOptions
	aside string
	done  []Restored
}

func (x *restorer) faults() ([]CopyFault, error) {
	c := newComparer(x.run, x.lr)
	c.copies = x.o.All
	if err := c.all(); err != nil {
		return nil, err
	}
	if !c.ended {
		return nil, ErrUnended
	}
	var out []CopyFault
	for _, k := range c.faults {
		if x.o.Fine == nil || !x.o.Fine(k) {
			out = append(out, k)
		}
	}
	return out, nil
}

// putAside notes a fault, and moves what stands there away.
func (x *restorer) putAside(k CopyFault) error {
	done := Restored{Name: k.Name, Why: k.Why, Stray: k.stray}
	if _, err := os.Lstat(x.run.Path(k.Name)); err == nil {
		done.Aside = filepath.ToSlash(filepath.Join(x.aside, k.Name))
		if !x.o.Dry {
			to := x.run.Path(done.Aside)
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				return err
			}
			if _, err := os.Lstat(to); err == nil { // a folder in the copy's place, whose own files were put aside before it
				to, done.Aside = to+"~", done.Aside+"~"
			}
			if err := os.Rename(x.run.Path(k.Name), to); err != nil {
				return err
			}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	x.done = append(x.done, done)
	return nil
}

// write writes the copies of these names.
func (x *restorer) write(want map[string]bool) error {
	r := x.run
	var rows []byte
	var findings []bodycam.Finding
	for rec, err := range x.lr.Records(0) {
		if err != nil {
			return err
		}
		name := ""
		switch rec.Type {
		case RecordRun:
			var info []byte
			if info, err = x.lr.Payload(rec); err == nil && want[InfoFile] {
				name, err = InfoFile, writeFile(r.Path(InfoFile), info)
			}
		case RecordFinding:
			var f *bodycam.Finding
			if f, err = openItem(x.lr, rec, payload.ParseFinding); err == nil {
				findings = append(findings, *f)
			}
		case RecordRow:
			rows, err = appendSealedRow(rows, x.lr, rec)
		case RecordFile:
			name, err = x.file(rec, want)
		}
		if err != nil && !errors.Is(err, ledger.ErrErased) {
			return fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		delete(want, name)
	}
	if want[EventsFile] {
		if err := r.rebuildEvents(); err != nil {
			return fmt.Errorf("%s: %w", EventsFile, err)
		}
	}
	if want[RowsFile] {
		if err := writeFile(r.Path(RowsFile), rows); err != nil {
			return err
		}
	}
	if !want[FindingsFile] { // or its own record had it
		return nil
	}
	b, err := encodeFindings(findings)
	if err != nil {
		return err
	}
	return writeFile(r.Path(FindingsFile), b)
}

// file writes the file that a record holds, where it is wanted.
func (x *restorer) file(rec *ledger.ReadRecord, want map[string]bool) (string, error) {
	head, err := readHead(x.lr, rec)
	if err != nil || !want[bodycam.Unescape(head.Name)] {
		return "", err
	}
	return x.run.restore(x.lr, rec)
}
