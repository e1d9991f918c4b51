// Package witness is both sides of the witness protocol (c2sp.org/tlog-witness): a client that collects cosignatures for
// a log's checkpoints, and a server that gives them.
package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// Witness is a server to ask.
type Witness struct {
	URL string // submission prefix
	Key checkpoint.Key
}

// Mechanism collects cosignatures.
type Mechanism struct {
	Witnesses []Witness
	Quorum    int          // how many are enough; 0: all
	Client    *http.Client // nil: http.DefaultClient
}

// maxAnswer bounds a witness's answer.
const maxAnswer = 64 << 10

// Kind implements [anchor.Mechanism].
func (m *Mechanism) Kind() string { return proof.KindWitness }

// Prepare returns the checkpoint, which is the ticket. It takes the cosignatures as they come.
func (m *Mechanism) Prepare(_ context.Context, h anchor.Head, _ []byte) ([]byte, error) {
	if len(m.Witnesses) == 0 || m.Quorum > len(m.Witnesses) {
		return nil, fmt.Errorf("%d of %d witnesses can't cosign", max(m.Quorum, 1), len(m.Witnesses))
	}
	return h.Marshal(), nil
}

// Advance asks the witnesses that haven't cosigned yet. To ask one twice is harmless: it has the size and cosigns again.
func (m *Mechanism) Advance(ctx context.Context, h anchor.Head, ticket []byte) (anchor.Step, error) {
	note, err := checkpoint.Parse(ticket)
	if err != nil {
		return anchor.Step{}, err
	}
	quorum := m.Quorum
	if quorum == 0 {
		quorum = len(m.Witnesses)
	}
	var errs []error
	var names []string
	for _, w := range m.Witnesses {
		if _, err := w.Key.Verify(note); err == nil {
			names = append(names, w.Key.Name)
			continue
		}
		if err := Cosign(ctx, m.Client, w, h, note); err != nil {
			errs = append(errs, err)
			continue
		}
		names = append(names, w.Key.Name)
	}
	step := anchor.Step{State: anchor.Submitted, Ticket: note.Marshal(), Detail: strings.Join(names, ", ")}
	if len(names) > 0 {
		step.Evidence = &proof.Evidence{Kind: proof.KindWitness, Note: note}
	}
	switch {
	case len(names) >= quorum:
		step.State = anchor.Final
	case bytes.Equal(step.Ticket, ticket): // nothing new
		return anchor.Step{}, errors.Join(errs...)
	}
	return step, nil
}

// Cosign asks a witness for its cosignature and adds it to the note. Where the witness's last size isn't zero, it is asked
// for first, by a request that it must refuse.
func Cosign(ctx context.Context, client *http.Client, w Witness, h anchor.Head, note *checkpoint.Note) error {
	bare := &checkpoint.Note{Checkpoint: note.Checkpoint}
	for _, s := range note.Signatures {
		if s.Name == note.Origin {
			bare.Signatures = append(bare.Signatures, s)
		}
	}
	request := &proof.AddCheckpoint{Note: bare}
	for range 3 { // another of our processes may be asking at the same time
		code, answer, err := post(ctx, client, w.URL, request.Marshal())
		if err != nil {
			return fmt.Errorf("asking witness %s: %w", w.Key.Name, err)
		}
		switch code {
		case http.StatusOK:
			return proof.AddCosignatures(note, answer, w.Key)
		case http.StatusConflict:
			size, err := strconv.ParseUint(strings.TrimSuffix(string(answer), "\n"), 10, 63)
			if err != nil || size == request.Old {
				return fmt.Errorf("%w: witness %s cosigned another head of size %d", anchor.ErrConflict, w.Key.Name, request.Old)
			}
			if size > note.Size {
				return fmt.Errorf("%w: witness %s cosigned size %d of this log, and this head is of size %d", anchor.ErrConflict, w.Key.Name, size, note.Size)
			}
			request.Old = size
			if request.Proof, err = h.Consistency(size); err != nil {
				return err
			}
		case http.StatusUnprocessableEntity:
			return fmt.Errorf("%w: the head that witness %s cosigned, of size %d, is no prefix of this one", anchor.ErrConflict, w.Key.Name, request.Old)
		case http.StatusNotFound:
			return fmt.Errorf("witness %s doesn't know the log %s: give its keeper the log's verifier keys", w.Key.Name, note.Origin)
		case http.StatusForbidden:
			return fmt.Errorf("witness %s knows other keys of the log %s", w.Key.Name, note.Origin)
		default:
			return fmt.Errorf("witness %s answered %d: %.200q", w.Key.Name, code, answer)
		}
	}
	return fmt.Errorf("witness %s changed its mind on the size of %s three times", w.Key.Name, note.Origin)
}

func post(ctx context.Context, client *http.Client, prefix string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(prefix, "/")+"/add-checkpoint", bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if client == nil {
		client = http.DefaultClient
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return res.StatusCode, b, err
}
