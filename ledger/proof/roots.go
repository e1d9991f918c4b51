package proof

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// witnessRoot is a witness's key. The evidence is the note with its cosignature; there is no data.
type witnessRoot struct{ key checkpoint.Key }

func (r witnessRoot) check(e *Evidence) (vouched, error) {
	id := r.key.ID()
	for _, s := range e.Note.Signatures {
		if s.Name != r.key.Name || s.KeyID != id {
			continue
		}
		sec, err := r.key.Verify(e.Note)
		if err != nil {
			return vouched{}, err
		}
		if sec == 0 {
			return vouched{}, fmt.Errorf("%w: the cosignature of %s has no time", checkpoint.ErrSignature, r.key.Name)
		}
		return vouched{time: time.Unix(sec, 0).UTC()}, nil
	}
	return vouched{}, fmt.Errorf("%w: it isn't cosigned by %s", ErrNoRoot, r.key.Name)
}

// digestRoot is the key of whoever signs digests. The data is the digest.
type digestRoot struct{ key checkpoint.Key }

func (r digestRoot) check(e *Evidence) (vouched, error) {
	d, err := ParseDigest(e.Data)
	if err != nil {
		return vouched{}, err
	}
	if d.Checkpoint != e.Note.Checkpoint {
		return vouched{}, fmt.Errorf("%w: the digest is of another head", merkle.ErrProof)
	}
	if err := d.Verify(r.key); err != nil {
		return vouched{}, err
	}
	return vouched{time: d.Time, note: "worth as much as the keeper of its key is independent of the operator"}, nil
}

// logRoot is a transparency log's key with its witnesses. The data is a C2SP proof of inclusion (tlog-proof) of the
// checkpoint as an entry: the note of the evidence, as it is.
type logRoot struct{ policy Policy }

func newLogRoot(r *Root) (checker, error) {
	k, err := checkpoint.ParseKey(r.Key)
	if err != nil {
		return nil, err
	}
	out := logRoot{Policy{Log: []checkpoint.Key{k}, Quorum: r.Quorum}}
	for _, s := range r.Witnesses {
		w, err := checkpoint.ParseKey(s)
		if err != nil {
			return nil, err
		}
		for _, o := range out.policy.Witnesses {
			if bytes.Equal(o.Public, w.Public) {
				return nil, fmt.Errorf("%w: the witnesses %s and %s have one key, which would count twice", ErrSyntax, o.Name, w.Name)
			}
		}
		out.policy.Witnesses = append(out.policy.Witnesses, w)
	}
	if out.policy.Quorum == 0 {
		out.policy.Quorum = len(out.policy.Witnesses)
	}
	if out.policy.Quorum < 0 || out.policy.Quorum > len(out.policy.Witnesses) {
		return nil, fmt.Errorf("%w: %d of %d witnesses", ErrSyntax, r.Quorum, len(out.policy.Witnesses))
	}
	return out, nil
}

func (r logRoot) check(e *Evidence) (vouched, error) {
	p, err := ParseInclusion(e.Data)
	if err != nil {
		return vouched{}, err
	}
	if p.Note.Origin != r.policy.Log[0].Name {
		return vouched{}, fmt.Errorf("%w: it is an entry of %s, not of %s", ErrNoRoot, p.Note.Origin, r.policy.Log[0].Name)
	}
	_, t, err := r.policy.Check(p.Note)
	if err != nil {
		return vouched{}, err
	}
	if err := merkle.VerifyInclusion(merkle.LeafHash(e.Note.Marshal()), p.Index, p.Note.Size, p.Proof, p.Note.Root); err != nil {
		return vouched{}, err
	}
	v := vouched{time: t}
	if len(r.policy.Witnesses) == 0 {
		v.note = "no witness watches this log: its keeper could show others another history"
	}
	return v, nil
}

// asError is errors.As for a value.
func asError[T error](err error, target *T) bool { return errors.As(err, target) }
