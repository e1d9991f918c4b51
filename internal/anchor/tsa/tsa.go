// Package tsa has checkpoints stamped by a time stamp authority (RFC 3161) over HTTP.
package tsa

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"math/big"
	"net/http"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// Mechanism asks one authority.
type Mechanism struct {
	URL string
	// Root is checked before a stamp is kept, so that a false one is found while it can be asked for again. Its
	// certificates must be the authority's; nil: only what answers the request is checked.
	Root   *proof.Root
	Client *http.Client // nil: http.DefaultClient
}

// maxAnswer bounds an authority's answer.
const maxAnswer = 256 << 10

// Kind implements [anchor.Mechanism].
func (m *Mechanism) Kind() string { return proof.KindTSA }

// Prepare draws the nonce, which is the ticket.
func (m *Mechanism) Prepare(context.Context, anchor.Head, []byte) ([]byte, error) {
	nonce := make([]byte, 16)
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	nonce[0] |= 1 // not zero: as a number it keeps its length
	return nonce, nil
}

// Advance asks for the stamp. An authority keeps nothing: asked twice it stamps twice, and one of the two is kept.
func (m *Mechanism) Advance(ctx context.Context, h anchor.Head, ticket []byte) (anchor.Step, error) {
	nonce := new(big.Int).SetBytes(ticket)
	request, err := proof.TimeStampRequest(h.Text(), nonce)
	if err != nil {
		return anchor.Step{}, err
	}
	answer, err := m.ask(ctx, request)
	if err != nil {
		return anchor.Step{}, fmt.Errorf("asking %s for a time stamp: %w", m.URL, err)
	}
	token, err := proof.TimeStampToken(answer, h.Text(), nonce)
	if err != nil {
		return anchor.Step{}, fmt.Errorf("%s: %w", m.URL, err)
	}
	e := &proof.Evidence{Kind: proof.KindTSA, Note: h.Note, Data: token}
	if m.Root != nil {
		man := &proof.Manifest{Roots: map[string]proof.Root{"tsa": *m.Root}}
		got := proof.Judge(h.Origin, []ledger.Anchor{{Kind: e.Kind, Data: e.Append(nil)}}, man).Attestations[0]
		if got.Status != ledger.StatusVerified {
			return anchor.Step{}, fmt.Errorf("the time stamp of %s can't be believed: %s", m.URL, got.Why)
		}
	}
	return anchor.Step{State: anchor.Final, Evidence: e, Detail: "nonce " + hex.EncodeToString(ticket)}, nil
}

func (m *Mechanism) ask(ctx context.Context, request []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/timestamp-query")
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
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %s", res.Status)
	}
	return b, nil
}
