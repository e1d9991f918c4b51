package delegation

import (
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
)

// doc is a record's payload for people and for queries.
type doc struct {
	Role    string  `json:"role,omitempty"` // request, accept
	To      string  `json:"to,omitempty"`
	Scope   string  `json:"scope,omitempty"`
	Nonce   string  `json:"nonce,omitempty"`
	Subject string  `json:"subject,omitempty"`
	Parent  *uint64 `json:"parent,omitempty"`
	Log     string  `json:"log,omitempty"` // that signed
	Signer  string  `json:"signer,omitempty"`
	Record  *uint64 `json:"record,omitempty"`
	Digest  string  `json:"digest,omitempty"`
	Time    string  `json:"time,omitempty"`
	Request *doc    `json:"request,omitempty"`
	Accept  *doc    `json:"accept,omitempty"`
	Records int     `json:"records,omitempty"` // of a proof
	Raw     string  `json:"raw,omitempty"`     // what is no receipt
}

// JSON is a payload of [RecordType] as JSON: what it says, without signatures. It is made for reading: what a receipt is
// worth, [Judge] says.
func JSON(payload []byte) ([]byte, error) {
	if t, err := ParseTerms(payload); err == nil {
		d := &doc{}
		d.terms(t)
		return json.Marshal(d)
	}
	if r, err := ParseReceipt(payload); err == nil {
		return json.Marshal(r.doc())
	}
	if request, accept, err := parseAck(payload); err == nil {
		return json.Marshal(&doc{Request: request.doc(), Accept: accept.doc()})
	}
	if ledger.IsBundle(payload) {
		if b, err := ledger.ParseBundle(payload); err == nil {
			id := b.Genesis.ID()
			return json.Marshal(&doc{Log: hex.EncodeToString(id[:]), Signer: b.Genesis.Recorder, Records: len(b.Items)})
		}
	}
	return json.Marshal(&doc{Raw: hex.EncodeToString(payload)})
}

func (d *doc) terms(t *Terms) {
	d.To, d.Scope, d.Nonce, d.Parent = t.To, t.Scope, hex.EncodeToString(t.Nonce[:]), t.Parent
	if t.Subject != nil {
		d.Subject = hex.EncodeToString(t.Subject[:])
	}
}

func (r *Receipt) doc() *doc {
	id := r.Log()
	d := &doc{Role: "accept", Log: hex.EncodeToString(id[:]), Signer: r.Genesis.Recorder, Record: &r.Seq, Digest: hex.EncodeToString(r.Record[:]),
		Time: r.When().Format(time.RFC3339Nano)}
	if t, err := r.Terms(); err == nil {
		d.Role = "request"
		d.terms(t)
	}
	return d
}
