package features

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"github.com/bodycam-dev/bodycam/internal/store"
)

// Dir is the folder of a run directory that holds what is derived here.
const Dir = "features"

const cacheFile = "features.gob.gz"

// Kept is the name in a run of the file that holds its features.
const Kept = Dir + "/" + cacheFile

// cached is the file's form. It is gob, since names are raw bytes, which JSON can't hold.
type cached struct {
	Version int
	Record  string // state of what it was made of
	F       *Features
}

// Load returns a run's features: those that were kept, where they were made of the same record by the same rules,
// or else extracted and kept. A run that is sealed only keeps nothing. A cache that can't be read or written is no
// error: everything in it can be made again.
func Load(r *store.Run, join Join) (*Features, error) {
	state := recordState(r)
	if f := kept(r, state); f != nil && !r.Anew {
		return f, nil
	}
	f, err := Extract(r, join)
	if err != nil {
		return nil, err
	}
	if settled(r) && !f.Torn {
		_ = keep(r, state, f) // a full disk, or a folder that is read-only or somebody else's: made again the next time
	}
	return f, nil
}

// Genuine tells whether what is kept beside a run is what its record gives: made again since the run, and not edited.
func Genuine(r *store.Run, join Join) (bool, error) {
	f := kept(r, recordState(r))
	if f == nil {
		return false, nil // nor is it used
	}
	now, err := Extract(r, join)
	if err != nil {
		return false, err
	}
	// Once through the file's form, which tells no empty list from none.
	var b bytes.Buffer
	var again cached
	if err := gob.NewEncoder(&b).Encode(cached{F: now}); err != nil {
		return false, err
	}
	if err := gob.NewDecoder(&b).Decode(&again); err != nil {
		return false, err
	}
	return reflect.DeepEqual(f, again.F), nil
}

// settled tells whether the record changes no more: it has ended, or its rows and events were joined.
func settled(r *store.Run) bool {
	if r.Sealed() {
		return false
	}
	if !r.Info.Ended.IsZero() {
		return true
	}
	_, err := r.Stat(store.LinksFile)
	return err == nil
}

// recordState identifies what features are made of: size and time of the record's files, and the plan.
func recordState(r *store.Run) string {
	h := sha256.New()
	fmt.Fprintln(h, Version)
	for _, name := range []string{store.EventsFile, store.RowsFile, store.LinksFile, "manifest-before.json", "manifest-after.json"} {
		st, err := r.Stat(name)
		if err != nil {
			fmt.Fprintln(h, name, "-")
			continue
		}
		fmt.Fprintln(h, name, st.Size(), st.ModTime().UnixNano())
	}
	for _, a := range r.Info.Artifacts {
		fmt.Fprintln(h, a.Path, a.SHA256)
	}
	fmt.Fprintln(h, r.Info.Agent.Programs, r.Info.Agent.State, r.Info.Environment.Resolver, r.Info.Unlinked)
	h.Write(r.Info.Plan)
	return hex.EncodeToString(h.Sum(nil))
}

func kept(r *store.Run, state string) *Features {
	b, err := ReadDerived(r, cacheFile)
	if err != nil {
		return nil
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil
	}
	var c cached
	if gob.NewDecoder(bufio.NewReader(z)).Decode(&c) != nil || c.Version != Version || c.Record != state || c.F == nil || c.F.Version != Version {
		return nil
	}
	return c.F
}

func keep(r *store.Run, state string, f *Features) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := gob.NewEncoder(z).Encode(cached{Version: Version, Record: state, F: f}); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return WriteDerived(r, cacheFile, b.Bytes())
}

// WriteDerived writes a file into the run's folder for derived data, whole or not at all.
func WriteDerived(r *store.Run, name string, b []byte) error {
	dir := filepath.Join(r.Dir, Dir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	t, err := os.CreateTemp(dir, "."+name+"-")
	if err != nil {
		return err
	}
	_, err = t.Write(b)
	err = errors.Join(err, t.Close())
	if err == nil {
		err = os.Rename(t.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		os.Remove(t.Name())
	}
	return err
}

// ReadDerived reads a file from the run's folder for derived data.
func ReadDerived(r *store.Run, name string) ([]byte, error) {
	f, err := store.OpenCopy(filepath.Join(r.Dir, Dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 1<<30))
}
