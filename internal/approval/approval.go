// Package approval tells approvals and delegations that are signed from those that are only asserted.
//
// A person's approval is signed by a key of his own over this text, of which every line ends with a line feed:
//
//	bodycam-approval/v1
//	identity of the log, hexadecimal
//	what it is about: "record N DIGEST" (a record of the log), or "call DIGEST" (a call before it was made)
//	approver
//	decision: allow or deny
//	time, nanoseconds since 1970 UTC
//	SHA-256 of what the approver was shown, hexadecimal
//
// The digest of a call is SHA-256 of the tool's name, a zero byte, and the arguments as they are recorded. The log's identity
// and the digest keep a signature from being of use anywhere else.
package approval

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/internal/store/payload"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/delegation"
)

// Record is the payload of an approval's record, as JSON: an approval of another record of the log.
type Record struct {
	Of     uint64 `json:"record"`
	Digest string `json:"digest"` // of that record, hexadecimal
	bodycam.Approval
}

// The decisions.
const (
	Allow = "allow"
	Deny  = "deny"
)

// ErrText tells that a field can't stand in what is signed.
var ErrText = errors.New("it holds a line feed, or is empty or too long")

// OfRecord is what an approval of a record is about.
func OfRecord(seq uint64, digest ledger.Hash) string { return fmt.Sprintf("record %d %x", seq, digest) }

// OfCall is what an approval of a call is about, before it was made.
func OfCall(i *bodycam.Intent) string {
	h := sha256.New()
	h.Write([]byte(i.Tool))
	h.Write([]byte{0})
	h.Write(i.Args)
	return fmt.Sprintf("call %x", h.Sum(nil))
}

// text is what is signed.
func text(log ledger.Hash, about string, a *bodycam.Approval) ([]byte, error) {
	for _, s := range []string{about, a.Approver, a.Decision} {
		if s == "" || len(s) > 1024 || strings.ContainsRune(s, '\n') {
			return nil, fmt.Errorf("%w: %.60q", ErrText, s)
		}
	}
	shown := sha256.Sum256([]byte(a.Prompt))
	return fmt.Appendf(nil, "bodycam-approval/v1\n%x\n%s\n%s\n%s\n%d\n%x\n", log, about, a.Approver, a.Decision, a.Time, shown), nil
}

// Sign signs an approval in the name of a key, which becomes the approver's.
func Sign(a *bodycam.Approval, log ledger.Hash, about string, k checkpoint.Key, s checkpoint.Signer) error {
	a.Approver, a.Key = k.Name, k.String()
	msg, err := text(log, about, a)
	if err != nil {
		return fmt.Errorf("signing an approval: %w", err)
	}
	if a.Signature, err = s.Sign(msg); err != nil {
		return fmt.Errorf("signing an approval: %w", err)
	}
	return nil
}

// Check returns nil where the approval is signed by a key that the verifier knows, under the approver's name.
func Check(a *bodycam.Approval, log ledger.Hash, about string, known []checkpoint.Key) error {
	if len(a.Signature) == 0 {
		return errors.New("it isn't signed")
	}
	msg, err := text(log, about, a)
	if err != nil {
		return err
	}
	named := false
	for _, k := range known {
		if k.Name != a.Approver {
			continue
		}
		named = true
		if k.VerifyMessage(msg, a.Signature) {
			return nil
		}
	}
	if named {
		return fmt.Errorf("its signature isn't that of %s's key over this", a.Approver)
	}
	return fmt.Errorf("no key of %s is known", a.Approver)
}

// Status is what an approval or a delegation is worth.
type Status string

// The statuses.
const (
	Signed   Status = "signed"
	Asserted Status = "asserted" // said, without a valid signature of a known key
)

// Item is an approval, or the delegation that an action names.
type Item struct {
	Record   uint64 `json:"record"` // that says it
	What     string `json:"what"`   // approval, delegation
	Status   Status `json:"status"`
	Who      string `json:"who"`
	Of       uint64 `json:"of"` // record that it is about
	Decision string `json:"decision,omitempty"`
	Scope    string `json:"scope,omitempty"`
	Time     int64  `json:"time,omitempty"`
	Why      string `json:"why,omitempty"` // why it isn't signed
}

// Reader judges the approvals of a log, and the delegations that its actions name. It takes all records, in their order.
type Reader struct {
	log      ledger.Hash
	known    []checkpoint.Key
	digests  map[uint64]ledger.Hash
	receipts []*delegation.Receipt
	items    []Item
}

// NewReader begins to read a log. known are the keys of approvers.
func NewReader(log ledger.Hash, known []checkpoint.Key) *Reader {
	return &Reader{log: log, known: known, digests: map[uint64]ledger.Hash{}}
}

// Items are what was found.
func (r *Reader) Items() []Item { return r.items }

// Read judges all approvals of a log.
func Read(lr *ledger.Reader, known []checkpoint.Key) ([]Item, error) {
	gen := lr.Genesis()
	r := NewReader(gen.ID(), known)
	for rec, err := range lr.Records(0) {
		if err == nil {
			err = r.Take(lr, rec)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the approvals: %w", err)
		}
	}
	return r.items, nil
}

// Take takes a record. One whose payload can't be opened is left out.
func (r *Reader) Take(lr *ledger.Reader, rec *ledger.ReadRecord) error {
	r.digests[rec.Seq] = rec.Digest
	if rec.Type != store.RecordAction && rec.Type != store.RecordApproval && rec.Type != store.RecordDelegation {
		return nil
	}
	b, err := lr.Payload(rec)
	if errors.Is(err, ledger.ErrNoKey) || errors.Is(err, ledger.ErrErased) {
		return nil
	}
	if err == nil {
		r.record(rec, b)
	}
	return err
}

func (r *Reader) record(rec *ledger.ReadRecord, b []byte) {
	switch rec.Type {
	case store.RecordDelegation:
		if rec.Kind != delegation.KindAccept {
			return
		}
		if got, err := delegation.ParseReceipt(b); err == nil && got.Verify() == nil {
			r.receipts = append(r.receipts, got)
		}
	case store.RecordApproval:
		r.approval(rec.Seq, b)
	case store.RecordAction:
		a, err := payload.ParseAction(b)
		if err != nil {
			return // another program's
		}
		if p := a.Approval; p != nil {
			r.add(Item{Record: rec.Seq, Of: rec.Seq, What: "approval", Who: p.Approver, Decision: p.Decision, Time: p.Time},
				Check(p, r.log, OfCall(&a.Intent), r.known))
		}
		if d := a.Delegation; d != nil {
			r.add(Item{Record: rec.Seq, Of: rec.Seq, What: "delegation", Who: d.Requester, Scope: d.Scope}, r.asked(d))
		}
	}
}

func (r *Reader) add(it Item, err error) {
	it.Status = Signed
	if err != nil {
		it.Status, it.Why = Asserted, err.Error()
	}
	r.items = append(r.items, it)
}

func (r *Reader) approval(seq uint64, b []byte) {
	var a Record
	if err := json.Unmarshal(b, &a); err != nil {
		r.add(Item{Record: seq, What: "approval"}, fmt.Errorf("it can't be read: %w", err))
		return
	}
	err := Check(&a.Approval, r.log, "record "+fmt.Sprint(a.Of)+" "+a.Digest, r.known)
	if d, ok := r.digests[a.Of]; err == nil && (!ok || hex.EncodeToString(d[:]) != a.Digest) {
		err = fmt.Errorf("record %d isn't the one that was approved", a.Of)
	}
	r.add(Item{Record: seq, Of: a.Of, What: "approval", Who: a.Approver, Decision: a.Decision, Time: a.Time}, err)
}

// asked checks that the log embeds the receipt that a call's delegation names.
func (r *Reader) asked(d *bodycam.Delegation) error {
	if len(d.Signature) == 0 {
		return errors.New("it isn't signed")
	}
	for _, got := range r.receipts {
		t, err := got.Terms()
		log := got.Log()
		if err == nil && hex.EncodeToString(log[:]) == d.Log && hex.EncodeToString(got.Record[:]) == d.Parent && t.Scope == d.Scope &&
			got.Genesis.Recorder == d.Requester && bytes.Equal(got.Signatures[0], d.Signature) {
			return nil
		}
	}
	return errors.New("the log embeds no receipt of it that holds")
}

// Summary counts them: "2 approvals signed, 1 asserted; 3 delegated calls signed".
func Summary(items []Item) string {
	count := map[string]int{}
	for i := range items {
		count[items[i].What+string(items[i].Status)]++
	}
	var parts []string
	for _, what := range []string{"approval", "delegation"} {
		signed, asserted := count[what+string(Signed)], count[what+string(Asserted)]
		if signed+asserted > 0 {
			parts = append(parts, fmt.Sprintf("%d %ss signed, %d only asserted", signed, what, asserted))
		}
	}
	return strings.Join(parts, "; ")
}
