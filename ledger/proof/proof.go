// Package proof checks, without a network, what others attest about a log: the cosignatures of C2SP witnesses, and
// proofs that carry everything needed to check them.
//
// It holds formats and their verification only. What goes to a witness or an anchor and comes back is carried by
// others.
//
// What a run's anchors left behind are [Evidence] files. A verifier's [Manifest] says which roots he trusts and, by a
// policy ([Expression]), how many of them must vouch; [Judge] holds one against the other. What can't be checked
// without something that the verifier must have from elsewhere, such as a key, a certificate or the hash of a block, is
// unverifiable, never verified.
package proof

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// ErrSyntax is wrapped where the input isn't of the form that it should be.
var ErrSyntax = errors.New("not of the form it should be")

// maxInput bounds what is parsed; maxHashes is the longest proof of a tree of 2^63 leaves.
const (
	maxInput  = 512 << 10
	maxHashes = 63
)

// Policy says whose word counts for a log.
type Policy struct {
	// Log are the log's keys; every one must have signed.
	Log []checkpoint.Key
	// Witnesses are cosigners; Quorum of them must have cosigned, at least one where there are witnesses.
	Witnesses []checkpoint.Key
	Quorum    int
}

// Cosignature is a witness's word.
type Cosignature struct {
	Witness string
	Time    time.Time
}

// Check checks a checkpoint against the policy and returns the cosignatures that count, with the time by which at
// least Quorum of them had been given, which is the time at which the checkpoint existed if any Quorum of the
// witnesses are honest. Without witnesses that time is zero.
func (p *Policy) Check(n *checkpoint.Note) ([]Cosignature, time.Time, error) {
	for _, k := range p.Log {
		if _, err := k.Verify(n); err != nil {
			return nil, time.Time{}, fmt.Errorf("checkpoint of %s: %w", n.Origin, err)
		}
	}
	var out []Cosignature
	for _, k := range p.Witnesses {
		sec, err := k.Verify(n)
		if err != nil {
			continue // a witness that isn't there, or false: the quorum decides
		}
		out = append(out, Cosignature{k.Name, time.Unix(sec, 0).UTC()})
	}
	if len(p.Witnesses) == 0 {
		return nil, time.Time{}, nil
	}
	quorum := max(p.Quorum, 1)
	if len(out) < quorum {
		return nil, time.Time{}, fmt.Errorf("checkpoint of %s: %w: %d of %d witnesses cosigned, %d are needed", n.Origin, checkpoint.ErrSignature, len(out), len(p.Witnesses), quorum)
	}
	return out, quorumTime(out, quorum), nil
}

// quorumTime is the quorum-th earliest time.
func quorumTime(list []Cosignature, quorum int) time.Time {
	var best time.Time
	for _, c := range list {
		n := 0
		for _, d := range list {
			if !d.Time.After(c.Time) {
				n++
			}
		}
		if n >= quorum && (best.IsZero() || c.Time.Before(best)) {
			best = c.Time
		}
	}
	return best
}

// AddCheckpoint is what a log asks a witness to cosign (c2sp.org/tlog-witness).
type AddCheckpoint struct {
	Old   uint64        // size of the last checkpoint that the witness cosigned
	Proof []merkle.Hash // consistency from there
	Note  *checkpoint.Note
}

// Marshal is the request's body.
func (a *AddCheckpoint) Marshal() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "old %d\n", a.Old)
	writeHashes(&b, a.Proof)
	b.WriteByte('\n')
	b.Write(a.Note.Marshal())
	return []byte(b.String())
}

// ParseAddCheckpoint reads a request's body.
func ParseAddCheckpoint(b []byte) (*AddCheckpoint, error) {
	head, note, err := split(b)
	if err != nil {
		return nil, err
	}
	a := &AddCheckpoint{Note: note}
	if a.Old, err = number(head[0], "old "); err != nil {
		return nil, err
	}
	a.Proof, err = hashes(head[1:])
	return a, err
}

// Verify checks the consistency proof from the old head, which the witness remembers.
func (a *AddCheckpoint) Verify(old merkle.Hash) error {
	return merkle.VerifyConsistency(a.Old, a.Note.Size, a.Proof, old, a.Note.Root)
}

// AddCosignatures reads a witness's answer, which is signature lines, and adds to the note those of the given keys that
// hold. It fails where there is none.
func AddCosignatures(n *checkpoint.Note, answer []byte, keys ...checkpoint.Key) error {
	text := n.Text()
	got, err := checkpoint.Parse([]byte(text + "\n" + string(answer)))
	if err != nil {
		return fmt.Errorf("%w: a witness's answer: %w", ErrSyntax, err)
	}
	added := 0
	for _, k := range keys {
		if _, err := k.Verify(got); err != nil {
			continue
		}
		id := k.ID()
		for _, s := range got.Signatures {
			if s.Name == k.Name && s.KeyID == id {
				if _, err := k.Verify(n); err != nil {
					n.Signatures = append(n.Signatures, s)
				}
				added++
			}
		}
	}
	if added == 0 {
		return fmt.Errorf("a witness's answer: %w: none of a witness that was asked", checkpoint.ErrSignature)
	}
	return nil
}

// Inclusion is a proof that an entry stands in a log (c2sp.org/tlog-proof). For a ledger the entry is an epoch's
// header: the leaf hash is [ledger.Header]'s hash.
type Inclusion struct {
	Extra []byte // not authenticated
	Index uint64
	Proof []merkle.Hash
	Note  *checkpoint.Note
}

const inclusionHead = "c2sp.org/tlog-proof@v1"

// Marshal is the proof as text.
func (p *Inclusion) Marshal() []byte {
	var b strings.Builder
	b.WriteString(inclusionHead + "\n")
	if p.Extra != nil {
		b.WriteString("extra " + base64.StdEncoding.EncodeToString(p.Extra) + "\n")
	}
	fmt.Fprintf(&b, "index %d\n", p.Index)
	writeHashes(&b, p.Proof)
	b.WriteByte('\n')
	b.Write(p.Note.Marshal())
	return []byte(b.String())
}

// ParseInclusion reads a proof.
func ParseInclusion(b []byte) (*Inclusion, error) {
	head, note, err := split(b)
	if err != nil {
		return nil, err
	}
	p := &Inclusion{Note: note}
	if head[0] != inclusionHead {
		return nil, fmt.Errorf("%w: it begins with %.40q, not %q", ErrSyntax, head[0], inclusionHead)
	}
	head = head[1:]
	if len(head) > 0 {
		if b64, ok := strings.CutPrefix(head[0], "extra "); ok {
			if p.Extra, err = base64.StdEncoding.Strict().DecodeString(b64); err != nil {
				return nil, fmt.Errorf("%w: extra: %w", ErrSyntax, err)
			}
			head = head[1:]
		}
	}
	if len(head) == 0 {
		return nil, fmt.Errorf("%w: no index", ErrSyntax)
	}
	if p.Index, err = number(head[0], "index "); err != nil {
		return nil, err
	}
	p.Proof, err = hashes(head[1:])
	return p, err
}

// Verify checks that the leaf stands where the proof says, under a checkpoint that satisfies the policy.
func (p *Inclusion) Verify(leaf merkle.Hash, policy Policy) error {
	if _, _, err := policy.Check(p.Note); err != nil {
		return err
	}
	return merkle.VerifyInclusion(leaf, p.Index, p.Note.Size, p.Proof, p.Note.Root)
}

// split cuts what stands before the first empty line into lines, and parses the checkpoint behind it.
func split(b []byte) ([]string, *checkpoint.Note, error) {
	if len(b) > maxInput {
		return nil, nil, fmt.Errorf("%w: %d bytes", ErrSyntax, len(b))
	}
	head, rest, ok := strings.Cut(string(b), "\n\n")
	if !ok {
		return nil, nil, fmt.Errorf("%w: no empty line before the checkpoint", ErrSyntax)
	}
	n, err := checkpoint.Parse([]byte(rest))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	return strings.Split(head, "\n"), n, nil
}

func number(line, prefix string) (uint64, error) {
	s, ok := strings.CutPrefix(line, prefix)
	n, err := strconv.ParseUint(s, 10, 63)
	if !ok || err != nil || strconv.FormatUint(n, 10) != s {
		return 0, fmt.Errorf("%w: %.60q where %q and a number should stand", ErrSyntax, line, prefix)
	}
	return n, nil
}

func hashes(lines []string) ([]merkle.Hash, error) {
	if len(lines) > maxHashes {
		return nil, fmt.Errorf("%w: %d hashes, more than %d", ErrSyntax, len(lines), maxHashes)
	}
	var out []merkle.Hash
	for _, line := range lines {
		b, err := base64.StdEncoding.Strict().DecodeString(line)
		if err != nil || len(b) != len(merkle.Hash{}) || base64.StdEncoding.EncodeToString(b) != line {
			return nil, fmt.Errorf("%w: %.60q is no hash in base64", ErrSyntax, line)
		}
		out = append(out, merkle.Hash(b))
	}
	return out, nil
}

func writeHashes(b *strings.Builder, list []merkle.Hash) {
	for i := range list {
		b.WriteString(base64.StdEncoding.EncodeToString(list[i][:]) + "\n")
	}
}
