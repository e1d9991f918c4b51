package proof

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// ErrNoRoot is wrapped where a proof can't be checked for want of something that the verifier must have from elsewhere.
var ErrNoRoot = errors.New("no independent root for it")

// checker checks the evidence of one kind against one root. It returns the time that the root vouches for, zero where it
// has no clock.
type checker interface {
	check(e *Evidence) (vouched, error)
}

// vouched is what a root vouches for.
type vouched struct {
	time time.Time
	note string // what weakens it
	place
}

// checker makes a root's checker, and so validates the root.
func (r *Root) checker() (checker, error) {
	switch r.Kind {
	case KindWitness:
		k, err := checkpoint.ParseKey(r.Key)
		if err == nil && k.Alg == checkpoint.Ed25519 {
			err = fmt.Errorf("%w: a witness signs with a cosignature key, not a plain one", ErrSyntax)
		}
		return witnessRoot{k}, err
	case KindDigest:
		k, err := checkpoint.ParseKey(r.Key)
		if err == nil && k.Alg != checkpoint.Ed25519 {
			err = fmt.Errorf("%w: a digest is signed by an Ed25519 key", ErrSyntax)
		}
		return digestRoot{k}, err
	case KindLog:
		return newLogRoot(r)
	case KindTSA:
		return newTSARoot(r)
	case KindEVM:
		return newEVMRoot(r)
	}
	return nil, fmt.Errorf("%w: there is no kind of anchor %.40q; they are %v", ErrSyntax, r.Kind, Kinds())
}

// Attestation is what one root says, in one proof.
type Attestation struct {
	Root   string        `json:"root,omitempty"` // "" where no root of the verifier's fits
	Kind   string        `json:"kind"`
	Size   uint64        `json:"size"` // epochs that the anchored head covers
	Time   *time.Time    `json:"time,omitempty"`
	Status ledger.Status `json:"status"`
	Why    string        `json:"why,omitempty"`

	head   checkpoint.Checkpoint
	place  place
	digest *Digest // of kind digest
}

// place is where on a chain an anchor is: block, transaction, event. Zero elsewhere.
type place [3]uint64

func (p place) before(o place) bool { return slices.Compare(p[:], o[:]) < 0 }

// Judgement is what all the anchors of a log come to under a manifest.
type Judgement struct {
	Policy string        `json:"policy,omitempty"`
	Status ledger.Status `json:"status"` // of the policy; without one, of the best attestation
	Why    string        `json:"why,omitempty"`
	// Attestations are what the roots say, ascending by size.
	Attestations []Attestation `json:"attestations"`
	// Anchored is how many epochs are under a head for which the policy is met, Unanchored how many come after.
	Anchored   uint64 `json:"anchored"`
	Unanchored uint64 `json:"unanchored"`
	// WorstWindow is the longest time between two heads for which the policy was met one after the other, Promised the
	// longest that the genesis allows, 0 for none. Both in nanoseconds as JSON.
	WorstWindow time.Duration `json:"worst_window"`
	Promised    time.Duration `json:"promised,omitempty"`
	Late        bool          `json:"late,omitempty"`
	// Chains are the signed digests of each root, taken together.
	Chains []Chain `json:"chains,omitempty"`
	// Conflicts are pairs of heads that can't both be of one history.
	Conflicts []string `json:"conflicts,omitempty"`

	origin string
	policy *Expression
}

// Judge checks every anchor of the log of that origin against every root of its kind. The log itself is verified
// afterwards, against [Judgement.Pinned]; then [Judgement.Conclude] judges the policy.
func Judge(origin string, anchors []ledger.Anchor, m *Manifest) *Judgement {
	j := &Judgement{Policy: m.Policy, policy: m.policy, origin: origin, Attestations: []Attestation{}}
	delivered := map[string]bool{}
	for _, a := range anchors {
		e, err := readEvidence(a.Data)
		if err != nil {
			j.Attestations = append(j.Attestations, Attestation{Kind: a.Kind, Status: ledger.StatusTampered, Why: err.Error()})
			continue
		}
		if e.Kind == KindDigest {
			key := e.Note.Checkpoint.Text() + string(e.Data)
			if delivered[key] {
				continue // the run's copy and the keeper's
			}
			delivered[key] = true
		}
		j.Attestations = append(j.Attestations, attest(origin, e, m)...)
	}
	sort.SliceStable(j.Attestations, func(a, b int) bool { return j.Attestations[a].Size < j.Attestations[b].Size })
	j.findConflicts()
	j.findChains()
	return j
}

// attest asks all roots of the evidence's kind. Those that know nothing of it don't count where another does.
func attest(origin string, e *Evidence, m *Manifest) []Attestation {
	base := Attestation{Kind: e.Kind, Size: e.Note.Size, head: e.Note.Checkpoint, Status: ledger.StatusUnverifiable}
	if e.Note.Origin != origin {
		base.Status, base.Why = ledger.StatusTampered, "it is of another log, "+e.Note.Origin
		return []Attestation{base}
	}
	var good, open []Attestation
	for _, name := range m.names() {
		r := m.Roots[name]
		if r.Kind != e.Kind {
			continue
		}
		a := base
		a.Root = name
		c, err := r.checker()
		if err == nil {
			var v vouched
			if v, err = c.check(e); err == nil {
				a.Status, a.Why, a.place = ledger.StatusVerified, v.note, v.place
				if !v.time.IsZero() {
					a.Time = &v.time
				}
				if e.Kind == KindDigest {
					a.digest, _ = ParseDigest(e.Data) // check has read it
				}
				good = append(good, a)
				continue
			}
		}
		a.Why = err.Error()
		if !errors.Is(err, ErrNoRoot) {
			a.Status = ledger.StatusTampered
		}
		open = append(open, a)
	}
	switch {
	case len(good) > 0:
		return good
	case len(open) > 0:
		return open
	}
	base.Why = "you have no root of this kind"
	return []Attestation{base}
}

// findConflicts looks for verified heads of one size that differ. Heads of different sizes are compared with the log. Of two
// that one account anchored on a chain for one position, the first included counts; the other is evidence against him.
func (j *Judgement) findConflicts() {
	seen := map[uint64]*Attestation{}
	for i := range j.Attestations {
		a := &j.Attestations[i]
		if a.Status != ledger.StatusVerified {
			continue
		}
		if b := seen[a.Size]; b != nil && b.head.Root != a.head.Root {
			why := fmt.Sprintf("%s vouches for head %s of size %d, %s for %s", b.Root, short(b.head.Root), a.Size, a.Root, short(a.head.Root))
			if a.Kind == KindEVM && a.Root == b.Root {
				if a.place.before(b.place) {
					a, b, seen[a.Size] = b, a, a
				}
				why += fmt.Sprintf("; %s was included first and counts", short(b.head.Root))
				a.Status, a.Why = ledger.StatusTampered, "another head of this size was included before it"
			}
			j.Conflicts = append(j.Conflicts, why)
			continue
		}
		seen[a.Size] = a
	}
}

func short(h merkle.Hash) string { return hex.EncodeToString(h[:8]) + "…" }

// Pinned are the heads that were verified, for [ledger.Trust].
func (j *Judgement) Pinned() []ledger.Pinned {
	var out []ledger.Pinned
	for _, a := range j.Attestations {
		if a.Status != ledger.StatusVerified {
			continue
		}
		p := ledger.Pinned{Checkpoint: a.head, Source: fmt.Sprintf("anchor %s (%s)", a.Root, a.Kind)}
		if a.Time != nil {
			p.Time = a.Time.UnixNano()
		}
		out = append(out, p)
	}
	return out
}

// Conclude judges the policy over a log of that many epochs, which was found to be consistent with all of Pinned.
// created is the recorder's own clock, for the first window; promised the genesis's longest time between two anchors.
func (j *Judgement) Conclude(epochs uint64, created time.Time, promised time.Duration) {
	j.Promised, j.Unanchored, j.Status = promised, epochs, ledger.StatusUnverifiable
	expression := j.policy
	if expression == nil {
		expression = j.anyRoot()
	}
	if len(j.Conflicts) > 0 {
		j.Status, j.Why = ledger.StatusTampered, j.Conflicts[0]
	}
	if expression == nil {
		if j.Why == "" {
			j.Why = "no anchor of the log could be verified"
		}
		return
	}
	last := created
	timed := false
	for _, size := range j.sizes() {
		t, ok := expression.Met(func(name string) (time.Time, bool) { return j.earliest(name, size) })
		if !ok {
			continue
		}
		j.Anchored = max(j.Anchored, size)
		if !t.IsZero() {
			j.WorstWindow, last, timed = max(j.WorstWindow, t.Sub(last)), t, true
		}
	}
	j.Unanchored = epochs - min(epochs, j.Anchored)
	j.Late = promised > 0 && timed && j.WorstWindow > promised
	switch {
	case j.Status == ledger.StatusTampered:
	case j.Anchored == 0:
		j.Why = "the policy isn't met for any head: " + j.missing(expression)
	case j.Unanchored > 0:
		j.Status, j.Why = ledger.StatusIncomplete, fmt.Sprintf("the last %d of %d epochs are under no head for which it is met", j.Unanchored, epochs)
	default:
		j.Status = ledger.StatusVerified
	}
}

// anyRoot is the policy of a verifier who has none: whoever vouches.
func (j *Judgement) anyRoot() *Expression {
	e := &Expression{need: 1}
	for _, a := range j.Attestations {
		if a.Status == ledger.StatusVerified {
			e.kids = append(e.kids, &Expression{name: a.Root})
		}
	}
	if len(e.kids) == 0 {
		return nil
	}
	return e
}

// missing says which roots of a policy don't vouch for anything.
func (j *Judgement) missing(e *Expression) string {
	var out []string
	for _, name := range e.Names() {
		if _, ok := j.earliest(name, 0); !ok {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return "its roots vouch for heads that are too far apart"
	}
	return fmt.Sprintf("nothing that could be verified comes from %v", out)
}

func (j *Judgement) sizes() []uint64 {
	var out []uint64
	for _, a := range j.Attestations {
		if a.Status == ledger.StatusVerified {
			out = append(out, a.Size)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// earliest is when a root first vouched for a head of at least that size.
func (j *Judgement) earliest(name string, size uint64) (best time.Time, ok bool) {
	for _, a := range j.Attestations {
		if a.Root != name || a.Status != ledger.StatusVerified || a.Size < size {
			continue
		}
		ok = true
		if a.Time != nil && (best.IsZero() || a.Time.Before(best)) {
			best = *a.Time
		}
	}
	return best, ok
}

// JudgeBundle is Judge for a bundle: a proof counts where its head is the bundle's checkpoint, or its consistency proof
// leads from one to the other and every disclosed epoch is under it. What it returns is pinned as the bundle's checkpoint.
func JudgeBundle(b *ledger.Bundle, m *Manifest) *Judgement {
	var fit []ledger.Anchor
	var unfit []Attestation
	for _, a := range b.Anchors {
		e, err := ParseEvidence(a.Data)
		if err == nil && e.Kind != a.Kind {
			err = fmt.Errorf("%w: the bundle calls it %.40q", ErrSyntax, a.Kind)
		}
		if err == nil {
			err = e.leadsTo(b)
		}
		if err != nil {
			bad := Attestation{Kind: a.Kind, Status: ledger.StatusTampered, Why: err.Error()}
			if errors.Is(err, ErrNoRoot) {
				bad.Status = ledger.StatusUnverifiable
			}
			unfit = append(unfit, bad)
			continue
		}
		fit = append(fit, a)
	}
	j := Judge(b.Genesis.Origin(), fit, m)
	j.Chains = nil // a bundle holds the newest digest alone
	for i := range j.Attestations {
		if a := &j.Attestations[i]; a.Status == ledger.StatusVerified {
			a.head, a.Size = b.Checkpoint.Checkpoint, b.Checkpoint.Size
		}
	}
	j.Attestations = append(j.Attestations, unfit...)
	return j
}

// leadsTo checks that the anchored head and a bundle's checkpoint are of one history and the head covers what is disclosed.
func (e *Evidence) leadsTo(b *ledger.Bundle) error {
	c, head := b.Checkpoint.Checkpoint, e.Note.Checkpoint
	if c.Origin != head.Origin {
		return fmt.Errorf("it is of another log, %s: %w", head.Origin, merkle.ErrProof)
	}
	if head.Size < c.Size {
		for i := range b.Epochs {
			if b.Epochs[i].Header.Epoch >= head.Size {
				return fmt.Errorf("%w: it covers %d epochs, and epoch %d is disclosed", ErrNoRoot, head.Size, b.Epochs[i].Header.Epoch)
			}
		}
		return merkle.VerifyConsistency(head.Size, c.Size, e.Consistency, head.Root, c.Root)
	}
	return merkle.VerifyConsistency(c.Size, head.Size, e.Consistency, c.Root, head.Root)
}

// Lower is a log's verdict in the light of its anchors. Without a policy they are additional: what they vouch for was
// compared with the log already.
func (j *Judgement) Lower(v ledger.Verdict) ledger.Verdict {
	switch {
	case v == ledger.Tampered || len(j.Conflicts) > 0:
		return ledger.Tampered
	case j.policy != nil && j.Status != ledger.StatusVerified:
		return ledger.Incomplete
	}
	for _, c := range j.Chains {
		if c.Status != ledger.StatusVerified {
			return ledger.Incomplete
		}
	}
	return v
}

// Reasons say what is to be known of it besides the status.
func (j *Judgement) Reasons() []string {
	var out []string
	if j.Why != "" {
		out = append(out, j.Why)
	}
	for _, c := range j.Conflicts {
		if c != j.Why {
			out = append(out, c)
		}
	}
	for _, a := range j.Attestations {
		if a.Why != "" {
			out = append(out, fmt.Sprintf("%s anchor of %d epochs (%s): %s", a.Kind, a.Size, a.Status, a.Why))
		}
	}
	for _, c := range j.Chains {
		if c.Status == ledger.StatusIncomplete {
			out = append(out, c.Why...)
		}
	}
	if j.Late {
		out = append(out, fmt.Sprintf("%v passed between two anchors, where the genesis promises %v", j.WorstWindow, j.Promised))
	}
	return out
}

// Summary is the rest of it in a line.
func (j *Judgement) Summary() string {
	s := fmt.Sprintf("%d epochs anchored, %d in the tail that isn't", j.Anchored, j.Unanchored)
	if j.WorstWindow > 0 {
		s += fmt.Sprintf("; longest time between two anchors %v", j.WorstWindow.Round(time.Second))
	}
	if j.Policy != "" {
		s += "; policy " + j.Policy
	}
	return s
}
