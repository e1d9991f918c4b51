package proof

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// The kinds of anchors.
const (
	KindDigest  = "digest"  // signed digest, chained
	KindWitness = "witness" // cosignatures
	KindLog     = "tlog"    // entry of a transparency log that many share
	KindTSA     = "tsa"     // time stamp of RFC 3161
	KindEVM     = "evm"     // transaction on an Ethereum-like chain
)

// Kinds are all kinds.
func Kinds() []string { return []string{KindDigest, KindWitness, KindLog, KindTSA, KindEVM} }

// Evidence is what is kept of one anchor of one head, to be checked offline. It is one CBOR map:
//
//	1  text   kind
//	2  bytes  the anchored checkpoint, as a signed note
//	3  bytes  what the kind calls for
//	4  array  hashes: consistency proof between the anchored head and the checkpoint of the bundle that holds it;
//	          empty where both are one, and in a run's directory
type Evidence struct {
	Kind        string
	Note        *checkpoint.Note
	Data        []byte
	Consistency []merkle.Hash
}

// Append appends the one encoding.
func (e *Evidence) Append(b []byte) []byte {
	b = dcbor.AppendMap(b, 4)
	b = dcbor.AppendText(append(b, 1), e.Kind)
	b = dcbor.AppendBytes(append(b, 2), e.Note.Marshal())
	b = dcbor.AppendBytes(append(b, 3), e.Data)
	b = dcbor.AppendArray(append(b, 4), len(e.Consistency))
	for i := range e.Consistency {
		b = dcbor.AppendBytes(b, e.Consistency[i][:])
	}
	return b
}

// ParseEvidence reads an evidence. It accepts no other encoding.
func ParseEvidence(b []byte) (*Evidence, error) { return parseEvidence(b) }

// parseEvidence also takes kinds that no anchor is of.
func parseEvidence(b []byte, others ...string) (*Evidence, error) {
	if len(b) > maxEvidence {
		return nil, fmt.Errorf("%w: an anchor's proof of %d bytes", ErrSyntax, len(b))
	}
	d := dcbor.NewDecoder(b)
	e := &Evidence{}
	d.Map()
	d.Key(1)
	e.Kind = d.Text()
	d.Key(2)
	note := d.Bytes()
	d.Key(3)
	e.Data = d.Bytes()
	d.Key(4)
	for range d.Array() {
		var h merkle.Hash
		if d.Fixed(h[:]); d.Err() != nil {
			break
		}
		e.Consistency = append(e.Consistency, h)
	}
	err := d.Done()
	if err == nil {
		e.Note, err = checkpoint.Parse(note)
	}
	if err == nil && string(e.Append(nil)) != string(b) {
		err = fmt.Errorf("encoding it again gives other bytes")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: an anchor's proof: %w", ErrSyntax, err)
	}
	if !slices.Contains(append(Kinds(), others...), e.Kind) || len(e.Consistency) > 2*maxHashes {
		return nil, fmt.Errorf("%w: an anchor's proof of kind %.40q with %d hashes", ErrSyntax, e.Kind, len(e.Consistency))
	}
	return e, nil
}

const (
	maxEvidence = 1 << 20
	maxFiles    = 100_000
)

// Dir is the folder of a run's directory that holds the proofs of its anchors, Suffix what their names end with.
const (
	Dir    = "anchors"
	Suffix = ".proof"
)

// Read reads all proofs of a run's directory, in the order of their names. There may be none. A file that is no proof
// is returned as an anchor of an unknown kind, so that it shows.
func Read(fsys fs.FS) ([]ledger.Anchor, error) {
	entries, err := fs.ReadDir(fsys, Dir)
	if err != nil {
		if _, serr := fs.Stat(fsys, Dir); serr != nil {
			return nil, nil
		}
		return nil, fmt.Errorf("reading the anchors' proofs: %w", err)
	}
	var out []ledger.Anchor
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, Suffix) || !entry.Type().IsRegular() {
			continue
		}
		if len(out) == maxFiles {
			return nil, fmt.Errorf("reading the anchors' proofs: more than %d", maxFiles)
		}
		b, err := fs.ReadFile(fsys, path.Join(Dir, name))
		if err != nil {
			return nil, fmt.Errorf("reading an anchor's proof: %w", err)
		}
		e, err := ParseEvidence(b)
		kind := "unreadable: " + name
		if err == nil {
			kind = e.Kind
		}
		out = append(out, ledger.Anchor{Kind: kind, Data: b})
	}
	return out, nil
}
