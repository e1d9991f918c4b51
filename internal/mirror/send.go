package mirror

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// SendOptions say how a log is mirrored.
type SendOptions struct {
	Keys     bool          // the wraps of the keys too: an erasure won't reach them
	Follow   bool          // until the log has ended
	Patience time.Duration // how long an outage may last; 0: for ever
	// Told hears of progress and of outages. Nil: nobody.
	Told func(Progress)
}

// Progress says how far a mirror has got.
type Progress struct {
	Epochs uint64
	Bytes  int64
	Outage error         // what is tried again
	Wait   time.Duration // until then
}

// The pauses between tries double from the first to the longest.
const (
	firstPause = 250 * time.Millisecond
	longPause  = 30 * time.Second
	pollPause  = 500 * time.Millisecond
)

// Send brings a target up to what the last checkpoint of a log covers; with Follow it goes on until the log has
// ended. It begins where the target has got to. dir holds the log.
func Send(ctx context.Context, dir string, to Target, o SendOptions) (Progress, error) {
	s := &sender{dir: dir, to: to, o: o}
	pause, since := firstPause, time.Time{}
	for {
		before := s.done.Bytes
		ended, err := s.pass(ctx)
		if s.done.Bytes > before || err == nil {
			pause, since = firstPause, time.Time{}
		}
		switch {
		case err == nil && (ended || !o.Follow):
			return s.done, nil
		case err == nil:
			s.tell(nil, 0)
			if err := sleep(ctx, pollPause); err != nil {
				return s.done, err
			}
			continue
		case ctx.Err() != nil:
			return s.done, fmt.Errorf("%w: %w", ctx.Err(), err)
		case !transient(err):
			return s.done, err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if o.Patience > 0 && time.Since(since) > o.Patience {
			return s.done, fmt.Errorf("the mirror couldn't be reached for %v: %w", o.Patience, err)
		}
		wait := pause/2 + rand.N(pause/2)
		s.tell(err, wait)
		if ended := sleep(ctx, wait); ended != nil {
			return s.done, fmt.Errorf("%w while the mirror couldn't be reached: %w", ended, err)
		}
		pause = min(2*pause, longPause)
	}
}

// lasting are the failures that waiting doesn't mend: a folder that isn't there or is no folder, no permission, a disk
// that can't be written. A full disk and one that fails are outages.
var lasting = []error{ErrConflict, errRefused, errLocal, fs.ErrNotExist, fs.ErrPermission, syscall.EROFS, syscall.ENOTDIR,
	syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EINVAL}

// transient tells whether it is worth trying again.
func transient(err error) bool {
	var untrusted *tls.CertificateVerificationError
	return !errors.As(err, &untrusted) && !slices.ContainsFunc(lasting, func(l error) bool { return errors.Is(err, l) })
}

// errLocal: what fails is this side.
var errLocal = errors.New("reading the log")

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

type sender struct {
	dir  string
	to   Target
	o    SendOptions
	done Progress
	last uint64 // epochs under the checkpoint that was published last
	same bool   // what the target had is what is here
}

// sameSoFar makes sure that what the target has is the beginning of what is here: a log that was rolled back and went
// on otherwise must not be grafted on.
func (s *sender) sameSoFar(ctx context.Context, log string, have map[string]int64) error {
	c := &Comparison{Where: s.to.String()}
	for _, name := range sortedKeys(have) {
		if strings.HasSuffix(name, ".keys") {
			continue // an erasure changes them
		}
		if err := c.file(ctx, s.dir, s.to, log, name, have[name]); err != nil {
			return err
		}
	}
	if len(c.Reasons) > 0 {
		return fmt.Errorf("%w: %s", ErrConflict, strings.Join(c.Reasons, "; "))
	}
	return nil
}

func (s *sender) tell(outage error, wait time.Duration) {
	if s.o.Told != nil {
		p := s.done
		p.Outage, p.Wait = outage, wait
		s.o.Told(p)
	}
}

// pass sends what the present checkpoint covers and tells whether the log has ended.
func (s *sender) pass(ctx context.Context) (ended bool, err error) {
	lr, err := ledger.OpenReader(regular.FS(s.dir))
	if err != nil {
		return false, fmt.Errorf("%w: %w", errLocal, err)
	}
	defer lr.Close()
	note, err := lr.Checkpoint()
	if err != nil {
		return false, fmt.Errorf("%w: %w", errLocal, err)
	}
	if note == nil || note.Size == s.last && s.last > 0 {
		return note != nil && s.ended(lr, note), nil
	}
	if err := lr.Refresh(); err != nil { // the checkpoint may be younger than the reader
		return false, fmt.Errorf("%w: %w", errLocal, err)
	}
	extents, err := lr.Extents(note.Size)
	if err != nil {
		return false, fmt.Errorf("%w: its checkpoint covers more than it has: %w", errLocal, err)
	}
	if extents, err = s.more(extents); err != nil {
		return false, fmt.Errorf("%w: %w", errLocal, err)
	}
	gen := lr.Genesis()
	id := gen.ID()
	log := fmt.Sprintf("%x", id[:])
	have, err := s.to.Files(ctx, log)
	if err != nil {
		return false, err
	}
	if !s.same {
		if err := s.sameSoFar(ctx, log, have); err != nil {
			return false, err
		}
		s.same = true
	}
	for _, e := range extents {
		err := s.file(ctx, log, e, have[e.Name])
		if errors.Is(err, ErrConflict) && strings.HasSuffix(e.Name, ".keys") {
			continue // an erasure changed the wraps here; the mirror keeps those it has
		}
		if err != nil {
			return false, err
		}
	}
	if err := s.to.Publish(ctx, log, note.Marshal()); err != nil {
		return false, err
	}
	s.last, s.done.Epochs = note.Size, note.Size
	return s.ended(lr, note), nil
}

// ended tells whether the log's last record, under its checkpoint, is the one that ends it.
func (s *sender) ended(lr *ledger.Reader, note *checkpoint.Note) bool {
	if n := lr.Len(); n > 0 && lr.Epochs() == note.Size {
		rec, err := lr.Record(n - 1)
		return err == nil && rec.Type == ledger.TypeClose
	}
	return false
}

// more adds the genesis, which comes first, the chunks and, where they are asked for, the wraps of the keys.
func (s *sender) more(extents []ledger.Extent) ([]ledger.Extent, error) {
	out := []ledger.Extent{}
	info, err := os.Stat(filepath.Join(s.dir, genesisFile))
	if err != nil {
		return nil, err
	}
	out = append(out, ledger.Extent{Name: genesisFile, Size: info.Size()})
	err = filepath.WalkDir(filepath.Join(s.dir, "payload"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(s.dir, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if !chunk.MatchString(name) {
			return nil
		}
		info, err := d.Info()
		out = append(out, ledger.Extent{Name: name, Size: info.Size()})
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if s.o.Keys {
		for _, e := range slices.Clone(extents) {
			keys, ok := strings.CutSuffix(e.Name, ".log")
			if !ok {
				continue
			}
			if info, err := os.Stat(filepath.Join(s.dir, keys+".keys")); err == nil {
				out = append(out, ledger.Extent{Name: keys + ".keys", Size: info.Size()})
			}
		}
	}
	return append(out, extents...), nil
}

// file sends what the target doesn't have of a file.
func (s *sender) file(ctx context.Context, log string, e ledger.Extent, have int64) error {
	if have > e.Size {
		return fmt.Errorf("%w: %d bytes of %s, where the log's checkpoint covers %d: the log was cut or rolled back", ErrConflict, have, e.Name, e.Size)
	}
	if have == e.Size {
		return nil
	}
	f, err := regular.Open(filepath.Join(s.dir, filepath.FromSlash(e.Name)))
	if err != nil {
		return fmt.Errorf("%w: %w", errLocal, err)
	}
	defer f.Close()
	buf := make([]byte, min(maxAppend, e.Size-have))
	for have < e.Size {
		n := min(int64(len(buf)), e.Size-have)
		if _, err := f.ReadAt(buf[:n], have); err != nil {
			return fmt.Errorf("%w: %s: %w", errLocal, e.Name, err)
		}
		if err := s.to.Append(ctx, log, e.Name, have, buf[:n]); err != nil {
			return err
		}
		have += n
		s.done.Bytes += n
	}
	return nil
}

func sortedKeys(m map[string]int64) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
