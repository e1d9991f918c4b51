package proof

import (
	"bytes"
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

func chainOf(root string, list []*Digest) Chain {
	c := Chain{Root: root, Status: ledger.StatusVerified}
	worse := func(s ledger.Status, format string, args ...any) {
		if c.Status != ledger.StatusTampered {
			c.Status = s
		}
		c.Why = append(c.Why, fmt.Sprintf("the digests of %s: ", root)+fmt.Sprintf(format, args...))
	}
	slices.SortStableFunc(list, func(a, b *Digest) int {
		switch {
		case a.Number < b.Number:
			return -1
		case a.Number > b.Number:
			return 1
		}
		return 0
	})
	seen := map[merkle.Hash]bool{}
	var prev *Digest
	for _, d := range list {
		if seen[d.Hash()] {
			continue // the run's copy and the keeper's
		}
		seen[d.Hash()] = true
		c.Digests++
		next := uint64(0)
		if prev != nil {
			next = prev.Number + 1
		}
		switch {
		case prev != nil && d.Number == prev.Number:
			worse(ledger.StatusTampered, "there are two of number %d: their keeper signed two chains", d.Number)
		case d.Number == next+1:
			worse(ledger.StatusIncomplete, "number %d is missing", next)
		case d.Number > next:
			worse(ledger.StatusIncomplete, "numbers %d to %d are missing", next, d.Number-1)
		default:
			if err := d.Follows(prev); err != nil {
				worse(ledger.StatusTampered, "%v", err)
			}
		}
		if prev != nil && d.Number > next && (d.Size < prev.Size || d.Time.Before(prev.Time)) {
			worse(ledger.StatusTampered, "number %d goes back behind number %d", d.Number, prev.Number)
		}
		prev = d
	}
	c.Last = prev.Number
	return c
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
