package ledger

import (
	"encoding/hex"
	"fmt"
	"slices"
)

// Verdict is what a verification comes to.
type Verdict string

// The verdicts.
const (
	Verified   Verdict = "verified"   // everything asked for holds
	Tampered   Verdict = "tampered"   // something isn't what was recorded
	Incomplete Verdict = "incomplete" // nothing false was found, but something is missing: records, keys, or a root of trust
)

// Status is what a verification says of one claim.
type Status string

// The statuses.
const (
	StatusVerified     Status = "verified"
	StatusTampered     Status = "tampered"
	StatusIncomplete   Status = "incomplete"   // a part is missing: a crash or a cut, a gap, a lost event
	StatusUnverifiable Status = "unverifiable" // nothing to check it against: unknown key, no independent root
)

// Claim is one line of the matrix.
type Claim struct {
	Status  Status   `json:"status"`
	RestsOn []string `json:"rests_on,omitempty"` // what must hold for the status to be true
	Reasons []string `json:"reasons,omitempty"`  // why it isn't more
}

// Claims is the matrix.
type Claims struct {
	Integrity Claim `json:"integrity"`  // no record was changed, added or removed
	Order     Claim `json:"order"`      // records are in the order they were appended
	ExistedBy Claim `json:"existed_by"` // they existed at a time that doesn't rest on the recorder's clock
	Identity  Claim `json:"identity"`   // the log is that of whom it says
	Content   Claim `json:"content"`    // payloads are those that were recorded
	Coverage  Claim `json:"coverage"`   // what was to be recorded was
}

// ClaimNames are the names of the claims, as in JSON.
var claimNames = []string{"integrity", "order", "existed_by", "identity", "content", "coverage"}

func (c *Claims) all() []*Claim {
	return []*Claim{&c.Integrity, &c.Order, &c.ExistedBy, &c.Identity, &c.Content, &c.Coverage}
}

// IsClaim tells whether there is a claim of that name.
func IsClaim(name string) bool { return slices.Contains(claimNames, name) }

// Each calls f for every claim with its name.
func (c *Claims) Each(f func(name string, c *Claim)) {
	for i, claim := range c.all() {
		f(claimNames[i], claim)
	}
}

// FirstBad is the first place where a log isn't what was recorded.
type FirstBad struct {
	Epoch uint64 `json:"epoch"`
	Seq   uint64 `json:"seq"`
	// Exact: the record Seq itself is bad. Otherwise what is bad lies at Seq or after it.
	Exact bool   `json:"exact"`
	What  string `json:"what"`
}

// Report is the outcome of a verification.
type Report struct {
	Verdict  Verdict   `json:"verdict"`
	FirstBad *FirstBad `json:"first_bad"`
	Claims   Claims    `json:"claims"`

	Log        string     `json:"log"` // identity, hexadecimal
	Origin     string     `json:"origin"`
	Recorder   string     `json:"recorder"`
	Profile    string     `json:"profile"`
	Epochs     uint64     `json:"epochs"`
	Records    uint64     `json:"records"`    // sealed
	Events     uint64     `json:"events"`     // within batches, sealed
	Unsealed   uint64     `json:"unsealed"`   // records after the last sealed epoch
	Checkpoint uint64     `json:"checkpoint"` // epochs under the last checkpoint
	Opened     uint64     `json:"opened"`     // payloads and batches that were opened
	Erased     uint64     `json:"erased"`     // payloads whose keys were destroyed, as recorded
	Closed     bool       `json:"closed"`     // the log ended as it should
	Heads      []Head     `json:"heads,omitempty"`
	Sensors    []Coverage `json:"sensors,omitempty"` // totals over all incarnations
}

// Head is a tree head that the log was compared with.
type Head struct {
	Size   uint64 `json:"size"`
	Root   string `json:"root"`
	Source string `json:"source"`
	Time   int64  `json:"time,omitempty"` // nanoseconds since 1970 UTC, where the source vouches for one
}

func (c *Claim) restsOn(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	if !slices.Contains(c.RestsOn, s) {
		c.RestsOn = append(c.RestsOn, s)
	}
}

// worse lowers the status, never raises it.
func (c *Claim) worse(s Status, format string, args ...any) {
	rank := map[Status]int{"": 0, StatusVerified: 1, StatusUnverifiable: 2, StatusIncomplete: 3, StatusTampered: 4}
	if rank[s] > rank[c.Status] {
		c.Status = s
	}
	reason := fmt.Sprintf(format, args...)
	if !slices.Contains(c.Reasons, reason) {
		c.Reasons = append(c.Reasons, reason)
	}
}

// bad notes a flaw; the earliest one is the first bad record.
func (r *Report) bad(f *Flaw) {
	if b := r.FirstBad; b == nil || f.Epoch < b.Epoch || f.Epoch == b.Epoch && f.Seq < b.Seq {
		r.FirstBad = &FirstBad{f.Epoch, f.Seq, f.Exact, f.What}
	}
}

// conclude draws the verdict from the claims. required names those that must be verified.
func (r *Report) conclude(required []string) {
	r.Verdict = Verified
	r.Claims.Each(func(name string, c *Claim) {
		switch {
		case c.Status == StatusTampered:
			r.Verdict = Tampered
		case r.Verdict == Tampered:
		case c.Status == StatusIncomplete, c.Status != StatusVerified && slices.Contains(required, name):
			r.Verdict = Incomplete
		}
	})
	if r.Verdict != Tampered {
		r.FirstBad = nil
	}
}

// Unreadable is the report on input that isn't even of the right form: a strict reader can't tell damage from
// forgery, and what was disclosed or recorded is not what it was.
func Unreadable(err error) *Report {
	r := &Report{}
	for _, c := range r.Claims.all() {
		c.Status = StatusUnverifiable
	}
	r.tampered(&Flaw{What: err.Error()})
	r.conclude(nil)
	return r
}

// Missing is the report where there is no log to verify: nothing is known to be false, and nothing to be true.
func Missing(why string) *Report {
	r := &Report{}
	for _, c := range r.Claims.all() {
		c.Status = StatusUnverifiable
	}
	r.Claims.Integrity.worse(StatusIncomplete, "%s", why)
	r.conclude(nil)
	return r
}

func hexOf(h Hash) string { return hex.EncodeToString(h[:]) }
