// Package judge says what a text is to a declaration (in scope, near, out), what a reply does with a request (answers,
// refuses, …) and whether a tool belongs to a skill. Its verdicts carry probabilities, and a judge that can't tell
// abstains; a failure is an error and never a score.
//
// [Local] is the embedded judge: the sentence encoder in package minilm and small heads, fitted by the program in fit from
// the data beside it. It uses no network and gives the same verdict on every machine. [Model] asks a language model, and
// [Panel] several judges. docs/JUDGES.md has the measured figures.
package judge

import (
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/bodycam-dev/bodycam/internal/trust/judge/minilm"
)

//go:generate go run ./fit

//go:embed data/heads.json
var headsFile []byte

// Heads are all that was fitted.
type Heads struct {
	Scope []Head `json:"scope"` // in or not: one each of ScopeHeads
	Near  Head   `json:"near"`  // near or out, of texts that aren't in
	Band  Band   `json:"band"`

	Reply      Head    `json:"reply"`       // what a reply does
	ReplyDoubt float64 `json:"reply_doubt"` // the least probability of a verdict on a reply

	Tool Head `json:"tool"` // whether a tool belongs to a skill
}

// Band is where the scope judge abstains: a probability of being in scope strictly between Low and High.
type Band struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

func (h *Heads) check() error {
	if len(h.Scope) != len(ScopeHeads) {
		return fmt.Errorf("there are %d scope heads, want %d", len(h.Scope), len(ScopeHeads))
	}
	for i := range h.Scope {
		if err := h.Scope[i].check("scope", ScopeFeatures); err != nil {
			return err
		}
	}
	if err := h.Near.check("near", NearFeatures); err != nil {
		return err
	}
	names, err := ReplyFeatures()
	if err != nil {
		return err
	}
	if err := h.Reply.check("reply", names); err != nil {
		return err
	}
	return h.Tool.check("tool", ToolFeatures)
}

// Local is the embedded judge. It is safe for concurrent use.
type Local struct {
	model *minilm.Model
	enc   *minilm.Cache
	bg    *background
	heads *Heads
	cards cards
	// digest is of the heads, the background and the encoder: everything that verdicts depend on.
	digest [sha256.Size]byte
}

// remembered is how many vectors a judge keeps (1.5 kB each).
const remembered = 8192

// NewLocal returns the embedded judge, or [minilm.ErrNoModel] in a build without the encoder.
func NewLocal() (*Local, error) {
	h := new(Heads)
	if err := json.Unmarshal(headsFile, h); err != nil {
		return nil, fmt.Errorf("read the judges' heads: %w", err)
	}
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("read the judges' heads: %w", err)
	}
	l, err := NewLocalWith(h, backgroundVectors)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	for _, part := range []string{l.model.Header.SHA256, string(headsFile), backgroundVectors, operationsText, languagesText, patternsText} {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	sum.Sum(l.digest[:0])
	return l, nil
}

// NewLocalWith is NewLocal with heads and background vectors that are being fitted.
func NewLocalWith(h *Heads, vectors string) (*Local, error) {
	m, err := minilm.Default()
	if err != nil {
		return nil, err
	}
	bg, err := unpackBackground(vectors, m.Header.Width)
	if err != nil {
		return nil, err
	}
	return &Local{model: m, enc: minilm.NewCache(m, remembered), bg: bg, heads: h}, nil
}

// Card makes a declaration ready for judging texts against it. That encodes its texts: about 30 ms a skill.
func (l *Local) Card(d Declaration) *Card { return newCard(d, l.enc, l.bg) }
