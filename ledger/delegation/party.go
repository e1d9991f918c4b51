package delegation

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// RecordType is the type of all records of delegations. Their kind, in the clear, says which.
const RecordType = ledger.TypeUser + 6

// The kinds, each with its payload.
const (
	KindRequest  = "delegation.request"  // [Terms]
	KindAccept   = "delegation.accept"   // the request's receipt
	KindAck      = "delegation.ack"      // CBOR array: the request's receipt, the acceptance's receipt
	KindProof    = "delegation.proof"    // a bundle of the other log
	KindAsserted = "delegation.asserted" // what came in a receipt's place and isn't one
)

// Errors of a party.
var (
	// ErrReplay: this log has accepted the same request before.
	ErrReplay = errors.New("this request was accepted before")
	// ErrStale: a request's receipt is older, or further in the future, than is accepted.
	ErrStale = errors.New("the request's receipt isn't fresh")
	// ErrSubject: what came isn't what the receipt is about.
	ErrSubject = errors.New("what was handed over isn't what the receipt is of")
)

// Party is one side's recorder. It is safe for concurrent use.
type Party struct {
	w       *ledger.Writer
	gen     ledger.Genesis
	fsys    fs.FS
	signers []checkpoint.Signer

	mu     sync.Mutex
	reader *ledger.Reader
	used   map[string]bool // logs and nonces of those
}

// New makes the party that a log's writer is for. fsys is the store that the writer writes to, for a record's digest is
// read from there once it is durable; signers are the writer's.
func New(w *ledger.Writer, fsys fs.FS, signers []checkpoint.Signer) *Party {
	return &Party{w: w, gen: w.Genesis(), fsys: fsys, signers: signers, used: map[string]bool{}}
}

// Close releases what the party holds open.
func (p *Party) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reader == nil {
		return nil
	}
	return p.reader.Close()
}

// Request hands work over: the terms are durable in the log when it returns. A nonce of zeros is drawn.
func (p *Party) Request(ctx context.Context, t Terms) (*Receipt, error) {
	if err := t.valid(); err != nil {
		return nil, err
	}
	if t.Nonce == [16]byte{} {
		rand.Read(t.Nonce[:])
	}
	terms := t.Append(nil)
	return p.receipt(ctx, Request, KindRequest, terms, terms)
}

// Accept takes a request's receipt: it is checked and durable in the log when it returns. maxAge bounds its age, and how far
// its clock may be ahead; 0: any. subject is the digest of what came with it, where the receipt names one; nil: not compared.
//
// A receipt of another log that isn't signed by its keys is an error that wraps [ErrSignature]: see [Party.Asserted].
func (p *Party) Accept(ctx context.Context, r *Receipt, maxAge time.Duration, subject *ledger.Hash) (*Receipt, error) {
	terms, err := r.Terms()
	if err != nil {
		return nil, err
	}
	if err := r.Verify(); err != nil {
		return nil, err
	}
	if r.Log() == p.gen.ID() {
		return nil, fmt.Errorf("%w: the request comes from this log itself", ErrReplay)
	}
	if age := time.Since(r.When()); maxAge > 0 && (age > maxAge || age < -maxAge) {
		return nil, fmt.Errorf("%w: it was signed at %s", ErrStale, r.When().Format(time.RFC3339))
	}
	if terms.Subject != nil && subject != nil && *terms.Subject != *subject {
		return nil, ErrSubject
	}
	log := r.Log()
	key := string(log[:]) + string(terms.Nonce[:])
	p.mu.Lock()
	again := p.used[key]
	p.used[key] = true
	p.mu.Unlock()
	if again {
		return nil, ErrReplay
	}
	hash := r.Hash()
	out, err := p.receipt(ctx, Accept, KindAccept, r.Append(nil), hash[:])
	if err != nil {
		p.mu.Lock()
		delete(p.used, key)
		p.mu.Unlock()
	}
	return out, err
}

// Acknowledge embeds the other side's acceptance, once it has checked that it is one of this request.
func (p *Party) Acknowledge(ctx context.Context, request, accept *Receipt) error {
	if err := accept.answers(request); err != nil {
		return err
	}
	return p.append(ctx, KindAck, ackPayload(request, accept))
}

func ackPayload(request, accept *Receipt) []byte {
	b := dcbor.AppendArray(nil, 2)
	b = dcbor.AppendBytes(b, request.Append(nil))
	return dcbor.AppendBytes(b, accept.Append(nil))
}

func parseAck(b []byte) (request, accept *Receipt, err error) {
	d := dcbor.NewDecoder(b)
	if d.Array() != 2 && d.Err() == nil {
		return nil, nil, fmt.Errorf("%w: an acknowledgement holds two receipts", ErrSyntax)
	}
	first, second := d.Bytes(), d.Bytes()
	if err := d.Done(); err != nil {
		return nil, nil, fmt.Errorf("%w: an acknowledgement: %w", ErrSyntax, err)
	}
	if request, err = ParseReceipt(first); err == nil {
		accept, err = ParseReceipt(second)
	}
	if err == nil && !bytes.Equal(ackPayload(request, accept), b) {
		err = fmt.Errorf("%w: encoding an acknowledgement again gives other bytes", ErrSyntax)
	}
	return request, accept, err
}

// answers checks that it is a signed acceptance of that request.
func (r *Receipt) answers(request *Receipt) error {
	if r.Role != Accept || request.Role != Request {
		return fmt.Errorf("%w: it isn't the acceptance of a request", ErrSyntax)
	}
	if want := request.Hash(); !bytes.Equal(want[:], r.Content) {
		return fmt.Errorf("%w: it answers another request", ErrSubject)
	}
	return r.Verify()
}

// Asserted records what came in a receipt's place and isn't one: work was said to be handed over, and nothing proves it.
func (p *Party) Asserted(ctx context.Context, what []byte) error {
	return p.append(ctx, KindAsserted, what[:min(len(what), ledger.MaxInline)])
}

// Prove embeds a bundle of the other log, which holds its records of a delegation under a signed checkpoint. What it is
// worth, [Judge] says.
func (p *Party) Prove(ctx context.Context, b *ledger.Bundle) error {
	return p.append(ctx, KindProof, b.Append(nil))
}

func (p *Party) append(ctx context.Context, kind string, payload []byte) error {
	_, err := p.w.Append(ctx, ledger.Entry{Type: RecordType, Kind: kind, Payload: payload, Durability: ledger.DurableEvent})
	if err != nil {
		return fmt.Errorf("recording %s: %w", kind, err)
	}
	return nil
}

// receipt appends a record and signs for it.
func (p *Party) receipt(ctx context.Context, role Role, kind string, payload, content []byte) (*Receipt, error) {
	seq, err := p.w.Append(ctx, ledger.Entry{Type: RecordType, Kind: kind, Payload: payload, Durability: ledger.DurableEvent})
	if err != nil {
		return nil, fmt.Errorf("recording %s: %w", kind, err)
	}
	rec, err := p.record(seq)
	if err != nil {
		return nil, fmt.Errorf("reading the record of %s again: %w", kind, err)
	}
	r := &Receipt{Role: role, Genesis: &p.gen, Incarnation: rec.Incarnation, Seq: seq, Record: rec.Digest, Content: content, Time: time.Now().UnixNano()}
	return r, r.sign(p.signers)
}

func (p *Party) record(seq uint64) (*ledger.ReadRecord, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reader == nil {
		r, err := ledger.OpenReader(p.fsys)
		if err != nil {
			return nil, err
		}
		p.reader = r
	} else if err := p.reader.Refresh(); err != nil {
		return nil, err
	}
	return p.reader.Record(seq)
}
