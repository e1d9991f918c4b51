package ledgerbench

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// The ablations are logs with a part of the construction only, written and verified for themselves.

// entry is one event in a log that is an ablation.
type entry struct {
	record  []byte // chain, Merkle: the record in CBOR
	payload []byte
}

// log is such a log.
type log struct {
	entries []entry
	roots   []ledger.Hash // Merkle: R_t of every epoch
}

const perEpoch = 100

// ablation is a configuration: how a log is made of payloads, and what its verifier demands.
type ablation struct {
	name   string
	write  func(payloads [][]byte) *log
	verify func(*log) error
}

var ablations = []ablation{
	{"baseline", plainLog, func(l *log) error {
		for i := range l.entries {
			if !json.Valid(l.entries[i].payload) {
				return fmt.Errorf("line %d is no JSON", i)
			}
		}
		return nil
	}},
	{"schema", plainLog, func(l *log) error {
		for i := range l.entries {
			d := json.NewDecoder(bytes.NewReader(l.entries[i].payload))
			d.DisallowUnknownFields()
			var c call
			if err := d.Decode(&c); err != nil || c.Intent.Tool == "" || c.Execution.Command == "" {
				return fmt.Errorf("line %d isn't of the schema: %v", i, err)
			}
		}
		return nil
	}},
	{"chain", chainLog, verifyChain},
	{"Merkle", func(p [][]byte) *log { l := chainLog(p); l.roots = roots(l); return l }, verifyMerkle},
}

func plainLog(payloads [][]byte) *log {
	l := &log{}
	for _, p := range payloads {
		l.entries = append(l.entries, entry{payload: p})
	}
	return l
}

// chainLog makes records that each name the digest of the one before.
func chainLog(payloads [][]byte) *log {
	l := &log{}
	r := ledger.Record{Type: ledger.TypeUser, Form: ledger.FormInline | ledger.FormClear}
	for i, p := range payloads {
		r.Seq, r.Commitment = uint64(i), sha256.Sum256(p)
		l.entries = append(l.entries, entry{r.AppendCBOR(nil), p})
		r.Prev = r.Digest(ledger.ProfileAFR)
	}
	return l
}

// verifyChain demands that each record names the one before by its digest, and carries its payload's. That of the last
// record is named by nobody: nothing says what it was.
func verifyChain(l *log) error {
	var prev ledger.Hash
	for i := range l.entries {
		r, err := ledger.ParseRecord(l.entries[i].record)
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		if r.Prev != prev {
			return fmt.Errorf("record %d: it doesn't follow", i)
		}
		if r.Commitment != sha256.Sum256(l.entries[i].payload) {
			return fmt.Errorf("record %d: its payload is another", i)
		}
		prev = r.Digest(ledger.ProfileAFR)
	}
	return nil
}

// roots are the published R_t: the head of each epoch's tree, hashed with the root before.
func roots(l *log) []ledger.Hash {
	var out []ledger.Hash
	var prev ledger.Hash
	for part := range slices.Chunk(l.entries, perEpoch) {
		digests := make([]ledger.Hash, len(part))
		for i := range part {
			digests[i] = sha256.Sum256(part[i].record)
		}
		prev = ledger.AFRRoot(merkle.Root(digests), prev)
		out = append(out, prev)
	}
	return out
}

func verifyMerkle(l *log) error {
	if err := verifyChain(l); err != nil {
		return err
	}
	now := roots(l)
	if len(now) != len(l.roots) {
		return fmt.Errorf("there are %d roots for %d epochs", len(l.roots), len(now))
	}
	for i := range now {
		if now[i] != l.roots[i] {
			return fmt.Errorf("epoch %d has another root", i)
		}
	}
	return nil
}

// The manipulations. Each is what somebody does who can write where the log lies.
//
// Edit: the payload is changed and its record's commitment with it. Delete: the record goes. Reorder: it changes
// places with its neighbour. Fork: everything from it on is made anew, as the recorder itself would have, and so are
// the roots that lie beside the log.
var manipulations = []string{"edit", "delete", "reorder", "fork"}

func tamper(a *ablation, l *log, what string, at int) *log {
	t := &log{entries: slices.Clone(l.entries), roots: slices.Clone(l.roots)}
	switch what {
	case "edit":
		t.entries[at] = forge(t.entries[at])
	case "delete":
		t.entries = slices.Delete(t.entries, at, at+1)
	case "reorder":
		other := at + 1
		if other == len(t.entries) {
			other = at - 1
		}
		t.entries[at], t.entries[other] = t.entries[other], t.entries[at]
	case "fork":
		payloads := make([][]byte, len(l.entries))
		for i := range payloads {
			payloads[i] = l.entries[i].payload
			if i >= at {
				payloads[i] = forged(payloads[i])
			}
		}
		return a.write(payloads)
	}
	return t
}

// forged is a payload that says something else and is as well formed.
func forged(p []byte) []byte {
	return bytes.Replace(p, []byte(`"done"`), []byte(`"gone"`), 1)
}

// forge changes a payload, and the record's commitment so that it fits.
func forge(e entry) entry {
	e.payload = forged(e.payload)
	if e.record == nil {
		return e
	}
	r, err := ledger.ParseRecord(e.record)
	if err != nil {
		return e
	}
	r.Commitment = sha256.Sum256(e.payload)
	e.record = r.AppendCBOR(nil)
	return e
}

// errMissed marks a manipulation that must have an effect and had none.
var errMissed = errors.New("the manipulation changed nothing")
