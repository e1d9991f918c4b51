package sharedlog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// Mechanism enters checkpoints into a shared log.
type Mechanism struct {
	URL string
	// Root is what the log's proofs are checked against before they are kept.
	Root   proof.Root
	Client *http.Client // nil: http.DefaultClient
}

// maxAnswer bounds a log's answer.
const maxAnswer = 256 << 10

// Kind implements [anchor.Mechanism].
func (m *Mechanism) Kind() string { return proof.KindLog }

// Prepare returns the checkpoint: the entry is the ticket. To enter it twice is to have the first one's proof.
func (m *Mechanism) Prepare(_ context.Context, h anchor.Head, _ []byte) ([]byte, error) {
	return h.Marshal(), nil
}

// Advance enters the checkpoint.
func (m *Mechanism) Advance(ctx context.Context, h anchor.Head, ticket []byte) (anchor.Step, error) {
	answer, err := m.post(ctx, ticket)
	if err != nil {
		return anchor.Step{}, fmt.Errorf("entering a checkpoint into the log at %s: %w", m.URL, err)
	}
	e := &proof.Evidence{Kind: proof.KindLog, Note: h.Note, Data: answer}
	man := &proof.Manifest{Roots: map[string]proof.Root{"log": m.Root}}
	got := proof.Judge(h.Origin, []ledger.Anchor{{Kind: e.Kind, Data: e.Append(nil)}}, man).Attestations[0]
	if got.Status != ledger.StatusVerified {
		return anchor.Step{}, fmt.Errorf("the log at %s gave a proof that can't be believed: %s", m.URL, got.Why)
	}
	p, err := proof.ParseInclusion(answer)
	if err != nil {
		return anchor.Step{}, err
	}
	return anchor.Step{State: anchor.Final, Evidence: e, Detail: fmt.Sprintf("entry %d of %s", p.Index, p.Note.Origin)}, nil
}

func (m *Mechanism) post(ctx context.Context, entry []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(m.URL, "/")+"/add", bytes.NewReader(entry))
	if err != nil {
		return nil, err
	}
	client := m.Client
	if client == nil {
		client = http.DefaultClient
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answered %s: %.200q", res.Status, b)
	}
	return b, err
}
