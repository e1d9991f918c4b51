package ledger

import (
	"errors"
	"io"
	"io/fs"
)

// epochWorker verifies one epoch after another. Its buffers are used again.
type epochWorker struct {
	v        *verification
	files    span
	payloads span
	keys     keyring // of its own: epochs of one worker come in order
	cur      cursor
	data     []byte
	pay      []byte
	scratch  [1 + keySize + MaxInline]byte
}

func (w *epochWorker) verify(j epochJob) (r epochResult) {
	e := j.entry
	data, err := w.files.read(logName(e.segment), int64(e.logOff), int64(e.logLen), w.data)
	if err != nil {
		if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, fs.ErrNotExist) {
			r.err = err
			return r
		}
		flaw := &Flaw{Epoch: e.Epoch, Seq: e.First, What: "its records are missing"}
		if j.published {
			w.locate(e, flaw)
			r.flaw = flaw
		} else {
			r.lost = flaw
		}
		return r
	}
	w.data = data
	err = e.walk(w.v.gen, data, &w.cur, func(s *stored, off uint64) error {
		r.records++
		r.events += s.Count
		return w.record(e, s, off, &r)
	})
	if err != nil && !errors.As(err, &r.flaw) {
		r.err = err
	}
	return r
}

// locate looks for the first record that is missing where the segment is too short.
func (w *epochWorker) locate(e *entry, flaw *Flaw) {
	if w.files.size <= int64(e.logOff) {
		flaw.Exact = true
		return
	}
	part, err := w.files.read(logName(e.segment), int64(e.logOff), w.files.size-int64(e.logOff), nil)
	if err != nil {
		return
	}
	var short *Flaw
	if errors.As(e.walk(w.v.gen, part, &w.cur, nil), &short) {
		*flaw = *short
	}
}

// record looks at what a record's payload is worth.
func (w *epochWorker) record(e *entry, s *stored, off uint64, r *epochResult) error {
	own := s.Type < TypeUser
	if !own && len(w.v.opts.Identities) == 0 && !w.v.opts.Payloads {
		return nil
	}
	bad := func(err error) error {
		if r.bad == nil {
			r.bad = &Flaw{e.Epoch, s.Seq, true, err.Error()}
		}
		return nil
	}
	var err error
	if w.pay, err = checkPayload(&w.payloads, e.segment, s, off, w.pay); err != nil {
		if errors.Is(err, ErrMissing) || errors.Is(err, ErrPayload) {
			return bad(err)
		}
		return err
	}
	pay := w.pay[:s.size]
	if own {
		if commitInline(w.v.gen.Profile, s.Form, nil, pay, w.scratch[:0]) != s.Commitment {
			return bad(ErrPayload)
		}
		r.notes = append(r.notes, systemNote{s.Record, e.Epoch, append([]byte(nil), pay...)})
		return nil
	}
	if s.Form.Clear() || len(w.v.opts.Identities) > 0 {
		return w.open(e, s, pay, r, bad)
	}
	return nil
}

// open opens a payload and compares it with its commitment.
func (w *epochWorker) open(e *entry, s *stored, pay []byte, r *epochResult, bad func(error) error) error {
	var o opened
	var err error
	if !s.Form.Clear() {
		o.key, err = w.keys.event(e.segment, e.Epoch, &s.Record)
	}
	if err == nil {
		err = o.decrypt(w.v.gen.Profile, s.Form, pay)
	}
	if err == nil {
		if s.Form.Batch() {
			_, _, err = o.events(&s.Record)
		} else {
			chunk := func(h *Hash) ([]byte, error) { return loadChunk(w.v.fsys, h) }
			err = o.payloadTo(w.v.gen.Profile, s.Form, &s.Commitment, chunk, io.Discard)
		}
	}
	switch {
	case err == nil:
		r.content.opened++
	case errors.Is(err, ErrNoKey):
		r.content.noKey++
	case errors.Is(err, ErrErased):
		r.content.erased++
		if errors.Is(err, errNoWrap) {
			if r.content.epochs == nil {
				r.content.epochs = map[uint64]uint64{}
			}
			r.content.epochs[e.Epoch]++
		} else {
			r.content.events = append(r.content.events, s.Seq)
		}
	case errors.Is(err, ErrPayload), errors.Is(err, ErrMissing):
		return bad(err)
	default:
		return err
	}
	return nil
}
