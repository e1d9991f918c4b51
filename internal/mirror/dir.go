package mirror

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// Dir is a target in a directory. Several processes may use it.
type Dir struct {
	root string
	mu   sync.Mutex
	now  func() time.Time
}

// NewDir returns the target in a directory, which is made when something is written.
func NewDir(root string) *Dir { return &Dir{root: root, now: time.Now} }

func (d *Dir) String() string { return d.root }

const (
	genesisFile = "ledger/genesis"
	headFile    = "ledger/checkpoint"
	headsFile   = "heads.jsonl"
	lockFile    = ".lock"
)

func (d *Dir) path(log, name string) string {
	return filepath.Join(d.root, log, filepath.FromSlash(name))
}

// Files implements [Target].
func (d *Dir) Files(_ context.Context, log string) (map[string]int64, error) {
	if !logForm.MatchString(log) {
		return nil, validName(log, genesisFile)
	}
	out := map[string]int64{}
	root := filepath.Join(d.root, log)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if !nameForm.MatchString(name) {
			return nil
		}
		info, err := e.Info()
		if err == nil {
			out[name] = info.Size()
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the mirror's files: %w", err)
	}
	return out, nil
}

// lock keeps other writers of a log out.
func (d *Dir) lock(log string) (func(), error) {
	d.mu.Lock()
	dir := filepath.Join(d.root, log)
	if err := os.MkdirAll(filepath.Join(dir, "ledger"), 0o700); err != nil {
		d.mu.Unlock()
		return nil, fmt.Errorf("making the mirror's folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			f.Close()
		}
	}
	if err != nil {
		d.mu.Unlock()
		return nil, fmt.Errorf("locking the mirror's copy: %w", err)
	}
	return func() { f.Close(); d.mu.Unlock() }, nil
}

// Append implements [Target].
func (d *Dir) Append(_ context.Context, log, name string, offset int64, data []byte) error {
	if err := validName(log, name); err != nil {
		return err
	}
	if len(data) > maxAppend || offset < 0 {
		return fmt.Errorf("%w: at most %d bytes at a time", errRefused, maxAppend)
	}
	if name == genesisFile {
		if offset != 0 {
			return fmt.Errorf("%w: a genesis is written whole", errRefused)
		}
		if err := checkGenesis(log, data); err != nil {
			return err
		}
	} else if _, err := os.Stat(d.path(log, genesisFile)); err != nil {
		return fmt.Errorf("%w: the genesis comes first", errRefused)
	}
	if chunk.MatchString(name) {
		digest := sha256.Sum256(data)
		h := hex.EncodeToString(digest[:])
		if offset != 0 || name != "payload/"+h[:2]+"/"+h {
			return fmt.Errorf("%w: a chunk is written whole and named by its digest", errRefused)
		}
	}
	unlock, err := d.lock(log)
	if err != nil {
		return err
	}
	defer unlock()
	return d.append(d.path(log, name), name, offset, data)
}

func (d *Dir) append(path, name string, offset int64, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making the mirror's folder: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("appending to the mirror: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("appending to the mirror: %w", err)
	}
	size := info.Size()
	if offset > size {
		return fmt.Errorf("%w: %s has %d bytes, what comes begins at %d", ErrConflict, name, size, offset)
	}
	if have := min(size-offset, int64(len(data))); have > 0 {
		old := make([]byte, have)
		if _, err := f.ReadAt(old, offset); err != nil {
			return fmt.Errorf("reading the mirror's %s: %w", name, err)
		}
		if !bytes.Equal(old, data[:have]) {
			return fmt.Errorf("%w in %s between %d and %d: it overwrites nothing", ErrConflict, name, offset, offset+have)
		}
		data = data[have:]
	}
	if len(data) == 0 {
		return nil
	}
	if _, err := f.WriteAt(data, size); err != nil {
		return errors.Join(fmt.Errorf("appending to the mirror's %s: %w", name, err), f.Truncate(size))
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("syncing the mirror's %s: %w", name, err)
	}
	if size > 0 {
		return nil
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Digest implements [Target].
func (d *Dir) Digest(ctx context.Context, log, name string, size int64) (sum [32]byte, err error) {
	r, err := d.Read(ctx, log, name, 0)
	if err != nil {
		return sum, err
	}
	defer r.Close()
	return digestOf(r, size)
}

func digestOf(r io.Reader, size int64) (sum [32]byte, err error) {
	h := sha256.New()
	if _, err := io.CopyN(h, r, size); err != nil {
		return sum, fmt.Errorf("reading %d bytes: %w", size, err)
	}
	h.Sum(sum[:0])
	return sum, nil
}

// Read implements [Target].
func (d *Dir) Read(_ context.Context, log, name string, offset int64) (io.ReadCloser, error) {
	if err := validName(log, name); err != nil {
		return nil, err
	}
	f, err := regular.Open(d.path(log, name))
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Publish implements [Target].
func (d *Dir) Publish(ctx context.Context, log string, note []byte) error {
	if err := validName(log, genesisFile); err != nil {
		return err
	}
	genesis, err := regular.ReadFile(d.path(log, genesisFile))
	if err != nil {
		return fmt.Errorf("%w: the genesis comes first", errRefused)
	}
	unlock, err := d.lock(log)
	if err != nil {
		return err
	}
	defer unlock()
	heads, err := d.Heads(ctx, log)
	if err != nil {
		return err
	}
	var last *checkpoint.Note
	if len(heads) > 0 {
		if last, err = checkpoint.Parse([]byte(heads[len(heads)-1].Note)); err != nil {
			return fmt.Errorf("the mirror's own list of checkpoints: %w", err)
		}
	}
	n, err := checkHead(genesis, note, last)
	if err != nil {
		return err
	}
	if last != nil && n.Size == last.Size {
		return nil // it has that one
	}
	line, err := json.Marshal(Head{Time: d.now().UnixNano(), Note: string(note)})
	if err != nil {
		return err
	}
	path := d.path(log, headsFile)
	size := int64(0)
	if info, err := os.Stat(path); err == nil {
		size = info.Size()
	}
	if err := d.append(path, headsFile, size, append(line, '\n')); err != nil {
		return err
	}
	// A copy of the last one where a verifier looks for it.
	tmp := d.path(log, headFile+".new")
	if err := os.WriteFile(tmp, note, 0o600); err != nil {
		return fmt.Errorf("writing the mirror's checkpoint: %w", err)
	}
	return os.Rename(tmp, d.path(log, headFile))
}

// Heads implements [Target].
func (d *Dir) Heads(_ context.Context, log string) ([]Head, error) {
	if err := validName(log, genesisFile); err != nil {
		return nil, err
	}
	b, err := regular.ReadFile(d.path(log, headsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the mirror's checkpoints: %w", err)
	}
	return parseHeads(b)
}

// parseHeads reads a list of checkpoints. A last line that is cut is left out: it was never acknowledged.
func parseHeads(b []byte) ([]Head, error) {
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		b = b[:i+1]
	} else {
		b = nil
	}
	var out []Head
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var h Head
		if err := json.Unmarshal(sc.Bytes(), &h); err != nil {
			return nil, fmt.Errorf("reading the mirror's checkpoints: %w", err)
		}
		if _, err := checkpoint.Parse([]byte(h.Note)); err != nil {
			return nil, fmt.Errorf("reading the mirror's checkpoints: %w", err)
		}
		out = append(out, h)
	}
	return out, sc.Err()
}
