package proof

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// Chain is what the signed digests of one root come to, taken together: each names the one before, so that one that was
// removed, put in or moved shows.
type Chain struct {
	Root    string        `json:"root"`
	Digests int           `json:"digests"`
	Last    uint64        `json:"last"`   // number of the newest
	Status  ledger.Status `json:"status"` // verified, incomplete where one is missing, tampered where two contradict each other
	Why     []string      `json:"why,omitempty"`
}

// digestEvidence reads a digest as it lies in its keeper's folder, without a signed note.
func digestEvidence(b []byte) (*Evidence, error) {
	d, err := ParseDigest(b)
	if err != nil {
		return nil, err
	}
	return &Evidence{Kind: KindDigest, Note: &checkpoint.Note{Checkpoint: d.Checkpoint}, Data: b}, nil
}

// readEvidence reads an anchor's proof, or a digest from its keeper's folder.
func readEvidence(b []byte) (*Evidence, error) {
	if bytes.HasPrefix(b, []byte(digestHead+"\n")) {
		return digestEvidence(b)
	}
	return ParseEvidence(b)
}

// findChains judges the continuity of every root's digests. Two that contradict each other are a conflict.
func (j *Judgement) findChains() {
	lists := map[string][]*Digest{}
	var roots []string
	for i := range j.Attestations {
		a := &j.Attestations[i]
		if a.digest == nil || a.Status != ledger.StatusVerified {
			continue
		}
		if lists[a.Root] == nil {
			roots = append(roots, a.Root)
		}
		lists[a.Root] = append(lists[a.Root], a.digest)
	}
	slices.Sort(roots)
	for _, root := range roots {
		c := chainOf(root, lists[root])
		j.Chains = append(j.Chains, c)
		if c.Status == ledger.StatusTampered {
			j.Conflicts = append(j.Conflicts, c.Why...)
		}
	}
}

// chainOf judges one root's digests. A key may deliver to several folders, each with a chain of its own from number 0; what
// it may not do is to let one digest be followed by two.
func chainOf(root string, list []*Digest) Chain {
	c := Chain{Root: root, Status: ledger.StatusVerified}
	g := digestGraph{byHash: map[merkle.Hash]*Digest{}, next: map[merkle.Hash]*Digest{}}
	for _, d := range list {
		h := d.Hash()
		if g.byHash[h] != nil {
			continue // the run's copy and the keeper's
		}
		g.byHash[h] = d
		g.sorted = append(g.sorted, d)
		if d.Number == 0 {
			g.chains++
		}
	}
	slices.SortStableFunc(g.sorted, func(a, b *Digest) int { return cmp.Compare(a.Number, b.Number) })
	c.Digests, c.Last = len(g.sorted), g.sorted[len(g.sorted)-1].Number
	for i := range g.sorted {
		status, why := g.judge(i)
		if why == "" {
			continue
		}
		if c.Status != ledger.StatusTampered {
			c.Status = status
		}
		c.Why = append(c.Why, fmt.Sprintf("the digests of %s: %s", root, why))
	}
	return c
}

// digestGraph is a set of digests, ascending by number.
type digestGraph struct {
	sorted []*Digest
	byHash map[merkle.Hash]*Digest
	next   map[merkle.Hash]*Digest // what follows a digest
	chains int                     // that begin
}

// judge holds a digest against the one before it.
func (g *digestGraph) judge(i int) (ledger.Status, string) {
	d := g.sorted[i]
	prev := g.byHash[d.Previous]
	if d.Number == 0 || prev != nil {
		if err := d.Follows(prev); err != nil {
			return ledger.StatusTampered, err.Error()
		}
		if prev == nil {
			return "", ""
		}
		if g.next[d.Previous] != nil {
			return ledger.StatusTampered, fmt.Sprintf("two follow number %d: their keeper continued one chain in two ways", prev.Number)
		}
		g.next[d.Previous] = d
		return "", ""
	}
	var below *Digest // the nearest that is there
	for _, o := range g.sorted[:i] {
		if o.Number < d.Number {
			below = o
		}
	}
	from := uint64(0)
	if below != nil {
		from = below.Number + 1
		if g.chains == 1 && (from == d.Number || d.Size < below.Size || d.Time.Before(below.Time)) {
			return ledger.StatusTampered, fmt.Sprintf("number %d doesn't continue number %d, or goes back behind it", d.Number, below.Number)
		}
	}
	switch from {
	case d.Number:
		return ledger.StatusIncomplete, fmt.Sprintf("the one before number %d is missing in one of %d chains", d.Number, g.chains)
	case d.Number - 1:
		return ledger.StatusIncomplete, fmt.Sprintf("number %d is missing", from)
	}
	return ledger.StatusIncomplete, fmt.Sprintf("numbers %d to %d are missing", from, d.Number-1)
}

// ReadDigests reads the digests of a log from their keeper's folder: DIR/LOG/N.digest, where LOG is SHA-256 of the log's
// origin in hexadecimal.
func ReadDigests(dir fs.FS, origin string) ([]ledger.Anchor, error) {
	log := ChainLog(origin)
	names, err := fs.Glob(dir, hex.EncodeToString(log[:])+"/*.digest")
	if err != nil {
		return nil, fmt.Errorf("reading the digests of %s: %w", origin, err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("reading the digests of %s: %w: none is there", origin, fs.ErrNotExist)
	}
	if len(names) > maxFiles {
		return nil, fmt.Errorf("reading the digests of %s: more than %d", origin, maxFiles)
	}
	var out []ledger.Anchor
	for _, name := range names {
		b, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, fmt.Errorf("reading the digests of %s: %w", origin, err)
		}
		out = append(out, ledger.Anchor{Kind: KindDigest, Data: b})
	}
	return out, nil
}
