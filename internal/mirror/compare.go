package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// Comparison is how a log compares with its mirror.
type Comparison struct {
	Where   string        `json:"where"`
	Status  ledger.Status `json:"status"`
	Reasons []string      `json:"reasons,omitempty"`
	Heads   int           `json:"heads"`  // checkpoints that the mirror has
	Epochs  uint64        `json:"epochs"` // under its last one
	Bytes   int64         `json:"bytes"`  // compared
	// Undated says why the times at which its checkpoints arrived date nothing; empty where they do.
	Undated string `json:"undated,omitempty"`
	// Pinned is the mirror's last checkpoint, for the verifier; nil where it has none.
	Pinned *ledger.Pinned `json:"-"`
}

// CompareOptions say what a mirror is taken for.
type CompareOptions struct {
	// Trusted: whoever keeps the mirror is none of those who are judged, and its clock is taken. A mirror behind TLS
	// is asked for under its own name and counts as such; a folder is anybody's who can write to it.
	Trusted bool
	Now     func() time.Time // nil: time.Now
}

// clockSlack is how far two honest clocks may be apart.
const clockSlack = 5 * time.Minute

// Compare holds a log against its mirror: every byte that the mirror has must be here, the same, and it must have every
// byte that its own last checkpoint covers. A mirror that is behind is none the worse: it is said how far it has got.
func Compare(ctx context.Context, dir string, m Target, o CompareOptions) (*Comparison, error) {
	b, err := regular.ReadFile(filepath.Join(dir, genesisFile))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLocal, err)
	}
	c := &Comparison{Where: "the mirror at " + m.String(), Status: ledger.StatusVerified}
	gen, err := ledger.ParseGenesis(b)
	if err != nil {
		c.bad("the log's genesis can't be read, so that its copy can't be found: %v", err)
		return c, nil
	}
	id := gen.ID()
	log := fmt.Sprintf("%x", id[:])
	files, err := m.Files(ctx, log)
	if err != nil {
		return nil, err
	}
	heads, err := m.Heads(ctx, log)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 && len(heads) == 0 {
		c.lacks("it has no copy of this log")
		return c, nil
	}
	for _, h := range heads {
		n, err := checkpoint.Parse([]byte(h.Note))
		if err != nil {
			return nil, fmt.Errorf("the mirror's checkpoints: %w", err)
		}
		c.Epochs = n.Size
		c.Pinned = &ledger.Pinned{Checkpoint: n.Checkpoint, Source: c.Where, Time: h.Time}
	}
	c.Heads = len(heads)
	if c.Pinned == nil {
		c.lacks("it has files and no checkpoint of this log: its heads.jsonl is gone or empty")
	}
	for _, name := range sortedKeys(files) {
		if strings.HasSuffix(name, ".keys") {
			continue // an erasure changes them here, and not there
		}
		if err := c.file(ctx, dir, m, log, name, files[name]); err != nil {
			return nil, err
		}
	}
	c.date(gen, heads, m, o)
	return c, c.whole(dir, files)
}

// date decides whether the mirror's clock dates the log.
func (c *Comparison) date(gen *ledger.Genesis, heads []Head, m Target, o CompareOptions) {
	if c.Pinned == nil {
		return
	}
	now := time.Now
	if o.Now != nil {
		now = o.Now
	}
	from, to := time.Unix(0, gen.Created).Add(-clockSlack), now().Add(clockSlack)
	for _, h := range heads {
		at := time.Unix(0, h.Time)
		said := at.UTC().Format(time.RFC3339)
		switch {
		case at.Before(from):
			c.Undated = fmt.Sprintf("it says that a checkpoint arrived at %s, before the log began at %s", said, time.Unix(0, gen.Created).UTC().Format(time.RFC3339))
		case at.After(to):
			c.Undated = fmt.Sprintf("it says that a checkpoint arrived at %s, which is still to come", said)
		default:
			continue
		}
		c.lacks("%s", c.Undated)
		c.Pinned.Time = 0
		return
	}
	if _, folder := m.(*Dir); folder && !o.Trusted {
		c.Undated = "its times are written in a folder that the operator can change"
		c.Pinned.Time = 0
	}
}

// whole makes sure that the mirror has what its last checkpoint covers, and says how far it is behind.
func (c *Comparison) whole(dir string, files map[string]int64) error {
	lr, err := ledger.OpenReader(regular.FS(dir))
	if err != nil {
		return nil // the log is damaged: for its own verification to say
	}
	defer lr.Close()
	extents, err := lr.Extents(c.Epochs)
	if err != nil {
		return nil // the log has less than the checkpoint covers, which is tampering: the verifier is told of the checkpoint
	}
	s := &sender{dir: dir}
	extents, err = s.more(extents)
	if err != nil {
		return fmt.Errorf("%w: %w", errLocal, err)
	}
	behind := lr.Epochs() > c.Epochs
	for _, e := range extents {
		have, ok := files[e.Name]
		switch {
		case behind && chunk.MatchString(e.Name) || have >= e.Size:
			// A chunk may belong to an epoch that the mirror doesn't have yet.
		case !ok:
			c.lacks("it lacks %s, %s of which its checkpoint covers", e.Name, bytesOf(e.Size))
		default:
			c.lacks("it has %s of %s, where its checkpoint covers %d", bytesOf(have), e.Name, e.Size)
		}
	}
	if behind && c.Status == ledger.StatusVerified {
		at := ""
		if c.Pinned.Time != 0 {
			at = ", since " + time.Unix(0, c.Pinned.Time).UTC().Format(time.RFC3339)
		}
		c.Reasons = append(c.Reasons, fmt.Sprintf("it is behind: it has %d of %d epochs%s", c.Epochs, lr.Epochs(), at))
		c.Pinned.Time = 0 // it can't vouch for the time of all of it
	}
	return nil
}

func bytesOf(n int64) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

// lacks: nothing false was found, but the mirror doesn't have what it should.
func (c *Comparison) lacks(format string, args ...any) {
	if c.Status == ledger.StatusVerified {
		c.Status = ledger.StatusIncomplete
	}
	c.Reasons = append(c.Reasons, fmt.Sprintf(format, args...))
}

func (c *Comparison) bad(format string, args ...any) {
	c.Status = ledger.StatusTampered
	c.Reasons = append(c.Reasons, fmt.Sprintf(format, args...))
}

func (c *Comparison) file(ctx context.Context, dir string, m Target, log, name string, size int64) error {
	f, err := regular.Open(filepath.Join(dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		c.bad("%s is gone; the mirror has %d bytes of it", name, size)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errLocal, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("%w: %w", errLocal, err)
	}
	if info.Size() < size {
		c.bad("%s was cut: it has %d bytes, the mirror %d", name, info.Size(), size)
		return nil
	}
	here, err := digestOf(f, size)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errLocal, name, err)
	}
	there, err := m.Digest(ctx, log, name, size)
	if err != nil {
		return err
	}
	c.Bytes += size
	if here == there {
		return nil
	}
	at, err := differ(ctx, f, m, log, name, size)
	if err != nil {
		return err
	}
	c.bad("%s differs from byte %d on", name, at)
	return nil
}

// differ finds the first byte that differs.
func differ(ctx context.Context, f *os.File, m Target, log, name string, size int64) (int64, error) {
	r, err := m.Read(ctx, log, name, 0)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); at < size; {
		n := min(int64(len(a)), size-at)
		if _, err := f.ReadAt(a[:n], at); err != nil {
			return 0, fmt.Errorf("%w: %s: %w", errLocal, name, err)
		}
		if _, err := io.ReadFull(r, b[:n]); err != nil {
			return 0, fmt.Errorf("reading the mirror's %s: %w", name, err)
		}
		if !bytes.Equal(a[:n], b[:n]) {
			for i := range a[:n] {
				if a[i] != b[i] {
					return at + int64(i), nil
				}
			}
		}
		at += n
	}
	return 0, nil
}
