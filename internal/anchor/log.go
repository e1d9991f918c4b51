package anchor

import (
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// Source is where a runner's heads come from.
type Source interface {
	// Head returns the newest head, or one without a note where there is none yet.
	Head() (Head, error)
	// At is a head that was the newest once.
	At(n *checkpoint.Note) Head
	// Origin is the log's.
	Origin() string
	// Promised is the longest time between two anchors that the log declares; 0: none.
	Promised() time.Duration
}

// Log is the log of a run's directory.
type Log struct{ r *ledger.Reader }

// OpenLog opens the log of a run's directory. No key is needed.
func OpenLog(dir string) (*Log, error) {
	r, err := ledger.OpenReader(regular.FS(dir))
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", dir, err)
	}
	return &Log{r}, nil
}

// Close closes the log.
func (l *Log) Close() error { return l.r.Close() }

// Genesis is what the log declares of itself.
func (l *Log) Genesis() ledger.Genesis { return l.r.Genesis() }

// Headers are the headers of the log's sealed epochs.
func (l *Log) Headers() iter.Seq2[*ledger.Header, error] { return l.r.Headers(0) }

// Origin implements [Source].
func (l *Log) Origin() string {
	gen := l.r.Genesis()
	return gen.Origin()
}

// Promised implements [Source].
func (l *Log) Promised() time.Duration { return l.r.Genesis().AnchorEvery }

// Head implements [Source].
func (l *Log) Head() (Head, error) {
	n, err := l.r.Checkpoint()
	if err != nil || n == nil {
		return Head{}, err
	}
	return l.At(n), nil
}

// At implements [Source].
func (l *Log) At(n *checkpoint.Note) Head {
	var roots []merkle.Hash // by size
	return Head{
		Note:        n,
		Consistency: func(old uint64) ([]merkle.Hash, error) { return l.Consistency(old, n.Size) },
		RootAt: func(size uint64) (merkle.Hash, error) {
			if roots == nil {
				var err error
				if roots, err = l.roots(n.Size); err != nil {
					return merkle.Hash{}, err
				}
			}
			if size >= uint64(len(roots)) {
				return merkle.Hash{}, fmt.Errorf("the log has %d sealed epochs, not %d", len(roots)-1, size)
			}
			return roots[size], nil
		},
	}
}

// roots are the heads of the log's trees, up to a size.
func (l *Log) roots(size uint64) ([]merkle.Hash, error) {
	var tree merkle.Range
	out := []merkle.Hash{tree.Root()}
	for h, err := range l.r.Headers(0) {
		if err != nil {
			return nil, err
		}
		if tree.Size() == size {
			break
		}
		tree.Append(h.Hash())
		out = append(out, tree.Root())
	}
	return out, nil
}

// Consistency is the proof that the log's first old epochs are a prefix of its first size epochs.
func (l *Log) Consistency(old, size uint64) ([]merkle.Hash, error) {
	var leaves []merkle.Hash
	if old > 0 && old < size {
		for h, err := range l.r.Headers(0) {
			if err != nil {
				return nil, err
			}
			if leaves = append(leaves, h.Hash()); uint64(len(leaves)) == size {
				break
			}
		}
		if uint64(len(leaves)) < size {
			return nil, fmt.Errorf("the log has %d sealed epochs, not %d", len(leaves), size)
		}
		return merkle.Consistency(leaves, int(old))
	}
	if old > size {
		return nil, fmt.Errorf("no tree of %d epochs is a prefix of one of %d", old, size)
	}
	return nil, nil
}

// ForBundle are the newest proofs of every anchor of a run, each with its consistency proof to or from the checkpoint of
// a bundle that is disclosed from the run.
func ForBundle(run string, c *checkpoint.Note) ([]ledger.Anchor, error) {
	names, err := filepath.Glob(filepath.Join(run, proof.Dir, "*"+proof.Suffix))
	if err != nil || len(names) == 0 {
		return nil, err
	}
	log, err := OpenLog(run)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	newest := map[string]string{}
	for _, name := range names { // sorted, and sizes have a fixed width
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			newest[name[:i]] = name
		}
	}
	var out []ledger.Anchor
	for _, prefix := range slices.Sorted(maps.Keys(newest)) {
		b, err := regular.ReadFile(newest[prefix])
		if err != nil {
			return nil, fmt.Errorf("reading an anchor's proof: %w", err)
		}
		e, err := proof.ParseEvidence(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", newest[prefix], err)
		}
		if e.Consistency, err = log.Consistency(min(e.Note.Size, c.Size), max(e.Note.Size, c.Size)); err != nil {
			return nil, err
		}
		out = append(out, ledger.Anchor{Kind: e.Kind, Data: e.Append(nil)})
	}
	return out, nil
}
