package store

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// JSON decodes a file of the run, which may be sealed only, into v. Where there is no such file v is left alone.
func (r *Run) JSON(name string, v any) error { return r.readJSON(name, v) }

// Sealed tells whether the run keeps no working copies: nothing derived from it may be written beside it either.
func (r *Run) Sealed() bool {
	_, err := os.Stat(filepath.Join(r.Dir, EventsFile))
	return os.IsNotExist(err) && r.HasLedger()
}

// Stat tells size and time of a working copy.
func (r *Run) Stat(name string) (fs.FileInfo, error) { return os.Stat(filepath.Join(r.Dir, name)) }

// OpenCopy opens a file of a run directory, which must be a regular one ([regular.Open]).
func OpenCopy(path string) (*os.File, error) { return regular.Open(path) }
