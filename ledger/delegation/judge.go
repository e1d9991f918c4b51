package delegation

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
)

// Status is what is known of a delegation.
type Status string

// The statuses, from best to worst.
const (
	Verified     Status = "verified"     // both logs hold it, and each embeds what the other signed
	Unverifiable Status = "unverifiable" // the other side isn't shown, or its keys aren't known
	Incomplete   Status = "incomplete"   // one side doesn't embed it, and hasn't signed that it does
	Asserted     Status = "asserted"     // said, without a valid signature
	Replayed     Status = "replayed"     // a signed request that was another's, or was accepted before
	Tampered     Status = "tampered"     // a side signed that its log holds it, and the log that is shown doesn't
)

// rank orders the statuses.
var rank = map[Status]int{Verified: 0, Unverifiable: 1, Incomplete: 2, Asserted: 3, Replayed: 4, Tampered: 5}

// Delegation is one, as far as it is shown.
type Delegation struct {
	Status Status   `json:"status"`
	From   string   `json:"from"`         // log that handed the work over, hexadecimal; "" where it isn't known
	To     string   `json:"to,omitempty"` // log that took it
	Name   string   `json:"name,omitempty"`
	Scope  string   `json:"scope,omitempty"`
	Nonce  string   `json:"nonce,omitempty"`
	Time   string   `json:"time,omitempty"` // on the clock of whoever asked, RFC 3339
	Seq    *uint64  `json:"request_record,omitempty"`
	Accept *uint64  `json:"accept_record,omitempty"`
	Why    []string `json:"why,omitempty"`

	log     ledger.Hash
	request *Receipt
	accepts []acceptance
	closed  *record // a record that can't be read, of that log
}

// acceptance is what is known of one log's acceptance.
type acceptance struct {
	log     ledger.Hash
	signed  *Receipt // embedded by the side that asked; nil: it isn't
	record  *record  // in the log that took it; nil: not shown
	request *Receipt // as that log embeds it
}

func (d *Delegation) worse(s Status, format string, args ...any) {
	if rank[s] > rank[d.Status] {
		d.Status = s
	}
	if why := fmt.Sprintf(format, args...); !slices.Contains(d.Why, why) {
		d.Why = append(d.Why, why)
	}
}

// Judgement is what all delegations of the logs that were shown come to.
type Judgement struct {
	Status      Status       `json:"status"`
	Delegations []Delegation `json:"delegations"`

	sides []*Side
	keys  []ledger.PublicKey
	list  []*Delegation

	replays []*Delegation
}

// Judge holds logs and bundles against each other. Each of them must have been verified by itself, against [Side.Heads] of
// the others too. keys are recorders' keys that are known from elsewhere: what a log embeds of another that isn't shown
// counts where it stands under them.
func Judge(keys []ledger.PublicKey, sides ...*Side) *Judgement {
	j := &Judgement{Status: Verified, Delegations: []Delegation{}, sides: slices.Clone(sides), keys: keys}
	for _, s := range sides {
		j.embedded(s)
	}
	for _, s := range j.sides {
		for i := range s.records {
			j.take(s, &s.records[i])
		}
	}
	for _, d := range j.list {
		j.judge(d)
	}
	for _, d := range append(j.list, j.replays...) {
		if d.closed != nil && j.named(d) {
			continue // what the other side embeds says all that is needed of it
		}
		if rank[d.Status] > rank[j.Status] {
			j.Status = d.Status
		}
		j.Delegations = append(j.Delegations, *d)
	}
	return j
}

// embedded makes sides of the proofs that a log holds of logs that aren't shown themselves.
func (j *Judgement) embedded(s *Side) {
	for _, p := range s.proofs {
		id := p.bundle.Genesis.ID()
		if o := j.side(id); o != nil && o.Whole {
			continue
		}
		if p.bundle.Verify(ledger.Trust{Self: true}).Verdict != ledger.Verified {
			continue
		}
		o := FromBundle(p.bundle, fmt.Sprintf("the proof in record %d of %s", p.seq, s.Source))
		o.Trusted = known(j.keys, p.bundle.Genesis.Keys)
		j.sides = append(j.sides, o)
	}
}

// known tells whether all keys of a log are among those that the verifier knows.
func known(keys, log []ledger.PublicKey) bool {
	for _, k := range log {
		if !slices.ContainsFunc(keys, func(o ledger.PublicKey) bool { return o.Alg == k.Alg && bytes.Equal(o.Public, k.Public) }) {
			return false
		}
	}
	return len(log) > 0
}

func (j *Judgement) side(id ledger.Hash) *Side {
	for _, s := range j.sides {
		if s.ID == id {
			return s
		}
	}
	return nil
}

func (j *Judgement) valid(r *Receipt) error {
	var later [][]ledger.PublicKey
	for _, s := range j.sides {
		if s.ID == r.Log() {
			later = append(later, s.keys...)
		}
	}
	return r.Verify(later...)
}

// take sorts a record in.
func (j *Judgement) take(s *Side, e *record) {
	alone := func(status Status, format string, args ...any) {
		d := &Delegation{Status: Verified, Seq: &e.seq}
		d.worse(status, "record %d of %s (%s) "+format, append([]any{e.seq, s.Source, e.kind}, args...)...)
		j.list = append(j.list, d)
	}
	if e.kind == KindAsserted {
		alone(Asserted, "says that work was handed over, without a receipt: %s", printable(e.payload))
		return
	}
	if e.payload == nil {
		alone(Unverifiable, "stays closed: %s", e.why)
		j.list[len(j.list)-1].closed, j.list[len(j.list)-1].log = e, s.ID
		return
	}
	switch e.kind {
	case KindRequest:
		t, err := ParseTerms(e.payload)
		if err != nil {
			alone(Asserted, "has no terms: %v", err)
			return
		}
		j.find(s.ID, t)
	case KindAccept:
		r, err := ParseReceipt(e.payload)
		if err == nil {
			err = j.valid(r)
		}
		if err != nil {
			alone(Asserted, "is no receipt that holds: %v", err)
			return
		}
		t, err := r.Terms()
		if err != nil {
			alone(Asserted, "is no request: %v", err)
			return
		}
		a := j.find(r.Log(), t).by(s.ID, r)
		if a.record != nil && a.record.seq != e.seq {
			alone(Replayed, "accepts a request of %s that record %d had accepted before", name(r.Log()), a.record.seq)
			return
		}
		a.record, a.request = e, r
	case KindAck:
		j.takeAck(s, e, alone)
	case KindProof:
		if _, err := ledger.ParseBundle(e.payload); err != nil {
			alone(Asserted, "is no proof: %v", err)
		}
	default:
		alone(Asserted, "is of a kind that isn't known")
	}
}

func (j *Judgement) takeAck(s *Side, e *record, alone func(Status, string, ...any)) {
	req, acc, err := parseAck(e.payload)
	for _, r := range []*Receipt{req, acc} {
		if err == nil {
			err = j.valid(r)
		}
	}
	if hash := func() []byte { h := req.Hash(); return h[:] }; err == nil && (!bytes.Equal(hash(), acc.Content) || req.Log() != s.ID) {
		err = fmt.Errorf("it isn't the answer to a request of this log")
	}
	if err != nil {
		alone(Asserted, "is no answer that holds: %v", err)
		return
	}
	t, err := req.Terms()
	if err != nil {
		alone(Asserted, "is no answer that holds: %v", err)
		return
	}
	a := j.find(req.Log(), t).by(acc.Log(), req)
	a.signed = acc
}

// named tells whether a closed record is one that a receipt names which is embedded elsewhere.
func (j *Judgement) named(d *Delegation) bool {
	names := func(r *Receipt) bool {
		return r != nil && r.Log() == d.log && r.Seq == d.closed.seq && r.Record == d.closed.digest
	}
	for _, o := range j.list {
		if names(o.request) {
			return true
		}
		for i := range o.accepts {
			if names(o.accepts[i].signed) {
				return true
			}
		}
	}
	return false
}

// find returns the delegation of a log with that nonce.
func (j *Judgement) find(log ledger.Hash, t *Terms) *Delegation {
	nonce := hex.EncodeToString(t.Nonce[:])
	for _, d := range j.list {
		if d.log == log && d.Nonce == nonce {
			return d
		}
	}
	d := &Delegation{Status: Verified, From: hex.EncodeToString(log[:]), Name: t.To, Scope: t.Scope, Nonce: nonce, log: log}
	j.list = append(j.list, d)
	return d
}

// by returns what is known of a log's acceptance of it.
func (d *Delegation) by(log ledger.Hash, request *Receipt) *acceptance {
	if d.request == nil {
		d.request = request
	}
	for i := range d.accepts {
		if d.accepts[i].log == log {
			return &d.accepts[i]
		}
	}
	d.accepts = append(d.accepts, acceptance{log: log, request: request})
	return &d.accepts[len(d.accepts)-1]
}

// judge judges one delegation whose parts are together.
func (j *Judgement) judge(d *Delegation) {
	if d.From == "" {
		return // a record that stands alone
	}
	j.judgeRequest(d)
	if len(d.accepts) == 0 {
		status := Incomplete
		if len(j.shown(d.log)) == 0 {
			status = Unverifiable
		}
		d.worse(status, "no log that is shown accepted it, and none signed that it did: the other side left it out, or it never came there")
	}
	answered := false
	for i := range d.accepts {
		answered = answered || d.accepts[i].signed != nil
	}
	for i := range d.accepts {
		j.judgeAcceptance(d, &d.accepts[i], answered)
	}
}

// shown are the logs that are shown, other than one.
func (j *Judgement) shown(but ledger.Hash) (out []*Side) {
	for _, s := range j.sides {
		if s.ID != but {
			out = append(out, s)
		}
	}
	return out
}

// judgeRequest holds the request's receipt against the log of whoever asked.
func (j *Judgement) judgeRequest(d *Delegation) {
	r := d.request
	if r == nil {
		j.setSeq(d)
		return
	}
	d.Seq, d.Time = &r.Seq, r.When().Format(time.RFC3339)
	seen, trusted := false, false
	for _, s := range j.sides {
		if s.ID != d.log {
			continue
		}
		is, found := s.holds(r)
		switch {
		case found && !is:
			d.worse(Tampered, "%s signed that its record %d hands this over, and %s has no such record there: it was left out, moved or changed", name(d.log), r.Seq, s.Source)
		case found && s.at(r.Seq).payload != nil && !bytes.Equal(s.at(r.Seq).payload, r.Content):
			d.worse(Tampered, "the terms in the receipt aren't those of record %d of %s", r.Seq, s.Source)
		}
		seen, trusted = seen || found, trusted || found && s.Trusted
	}
	switch {
	case !seen:
		d.worse(Unverifiable, "the side that asked, %s, isn't shown", name(d.log))
	case !trusted:
		d.worse(Unverifiable, "a proof of the side that asked, %s, is embedded and holds, but you haven't said whose keys those are", name(d.log))
	}
}

// setSeq finds the record of a request that no receipt is known of.
func (j *Judgement) setSeq(d *Delegation) {
	for _, s := range j.sides {
		for i := range s.records {
			e := &s.records[i]
			if s.ID != d.log || e.kind != KindRequest {
				continue
			}
			if t, err := ParseTerms(e.payload); err == nil && hex.EncodeToString(t.Nonce[:]) == d.Nonce {
				d.Seq = &e.seq
			}
		}
	}
}

// judgeAcceptance holds an acceptance against the log that took the work. answered: the side that asked embeds some answer.
func (j *Judgement) judgeAcceptance(d *Delegation, a *acceptance, answered bool) {
	if d.request.Hash() != a.request.Hash() {
		d.worse(Tampered, "%s signed two receipts for one request", name(d.log))
	}
	if a.signed == nil && answered {
		r := &Delegation{Status: Verified, From: d.From, To: hex.EncodeToString(a.log[:]), Name: d.Name, Scope: d.Scope, Nonce: d.Nonce, Time: d.Time, Seq: d.Seq}
		r.worse(Replayed, "%s accepted a request that another log answered, as the side that asked says", name(a.log))
		j.replays = append(j.replays, r)
		return
	}
	d.To = hex.EncodeToString(a.log[:])
	if a.record != nil {
		d.Accept = &a.record.seq
	}
	if a.signed == nil {
		if s := j.side(d.log); s != nil && s.Whole {
			d.worse(Incomplete, "%s doesn't embed the answer of %s: bodycam delegate prove adds it", s.Source, name(a.log))
		} else {
			d.worse(Unverifiable, "whether %s embeds the answer isn't shown", name(d.log))
		}
		return
	}
	d.Accept = &a.signed.Seq
	seen, trusted := false, false
	for _, s := range j.sides {
		if s.ID != a.log {
			continue
		}
		is, found := s.holds(a.signed)
		switch {
		case found && !is:
			d.worse(Tampered, "%s signed that its record %d accepts this, and %s has no such record there: it was left out, moved or changed", name(a.log), a.signed.Seq, s.Source)
		case found && s.at(a.signed.Seq).kind != KindAccept:
			d.worse(Tampered, "record %d of %s isn't the acceptance that %s signed", a.signed.Seq, s.Source, name(a.log))
		}
		seen, trusted = seen || found, trusted || found && s.Trusted
	}
	switch {
	case !seen:
		d.worse(Unverifiable, "the other side, %s, isn't shown", name(a.log))
	case !trusted:
		d.worse(Unverifiable, "a proof of the other side, %s, is embedded and holds, but you haven't said whose keys those are", name(a.log))
	}
}

// printable shortens somebody else's bytes for a line of text.
func printable(b []byte) string { return fmt.Sprintf("%.80q", b) }

// Lower is a verdict on logs in the light of their delegations. What can't be verified, or is only asserted, is said and
// lowers nothing: nobody claimed more.
func (j *Judgement) Lower(v ledger.Verdict) ledger.Verdict {
	for i := range j.Delegations {
		switch s := j.Delegations[i].Status; {
		case s == Tampered || v == ledger.Tampered:
			v = ledger.Tampered
		case s == Incomplete || s == Replayed:
			v = ledger.Incomplete
		}
	}
	return v
}

// Summary counts them by status.
func (j *Judgement) Summary() string {
	count := map[Status]int{}
	for i := range j.Delegations {
		count[j.Delegations[i].Status]++
	}
	var parts []string
	for _, s := range []Status{Verified, Unverifiable, Incomplete, Asserted, Replayed, Tampered} {
		if n := count[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
