package ledgerbench

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/query"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/internal/store/payload"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// Score is how well answers agree with the truth. Precision of no answer is 1 where nothing was to be found, else 0.
type Score struct {
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	Answers   int     `json:"answers"`
}

// Asked is one question with both ways of answering it.
type Asked struct {
	Scene    string `json:"scene"`
	Question string `json:"question"`
	Query    string `json:"query"`
	Words    string `json:"words"`
	Truth    int    `json:"truth"`
	Ledger   Score  `json:"ledger"`
	Text     Score  `json:"text"`
}

// Settled says who can settle a dispute under a configuration.
type Settled struct {
	Config string `json:"config"`
	// A and B: what each party can show the other or a third, in words; "" for nothing.
	Honest   string `json:"honest_log"`  // B shows its true log
	Altered  string `json:"altered_log"` // B shows one that it altered
	Verdict  string `json:"who_can_settle"`
	Disclose int    `json:"disclosed_events"` // how much B gives away to settle it; -1: it can't
}

// ForensicsResult is the outcome of Forensics.
type ForensicsResult struct {
	Asked   []Asked         `json:"questions"`
	Chains  map[string]bool `json:"chains"` // of a scene: the causal chain named every call it should
	Dispute []Settled       `json:"dispute"`
}

// Forensics plays the scenes: each is sealed into a ledger, asked its questions, and searched as text.
func Forensics(ctx context.Context) (*ForensicsResult, error) {
	res := &ForensicsResult{Chains: map[string]bool{}}
	for _, s := range []scene{injection(), misTargeting()} {
		if err := res.play(ctx, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	var err error
	res.Dispute, err = dispute(ctx)
	if err != nil {
		return nil, fmt.Errorf("cross-organisation dispute: %w", err)
	}
	return res, nil
}

// party is somebody who records.
type party struct {
	dir     string
	signers []checkpoint.Signer
	keys    []ledger.PublicKey
	id      *age.HybridIdentity
	run     *store.Run
	records []uint64 // of the calls, by index
}

func newParty(root, name string, seed byte) (*party, error) {
	p := &party{dir: filepath.Join(root, name)}
	raw := make([]byte, 32)
	raw[0] = seed
	s, err := checkpoint.NewSigner(checkpoint.Ed25519, raw)
	if err != nil {
		return nil, err
	}
	alg, pub := s.Public()
	p.signers, p.keys = []checkpoint.Signer{s}, []ledger.PublicKey{{Alg: alg, Public: pub}}
	p.id, err = age.GenerateHybridIdentity()
	return p, err
}

// seal records the calls. What a call says of upstream calls are indexes; they become the records' numbers.
func (p *party) seal(calls []bodycam.Action) error {
	w, err := store.Create(p.dir, bodycam.Run{ID: filepath.Base(p.dir), Started: time.Now()},
		&store.Sealing{Signers: p.signers, Recipients: []age.Recipient{p.id.Recipient()}, Recorder: filepath.Base(p.dir)})
	if err != nil {
		return err
	}
	p.records = nil
	for i := range calls {
		a := calls[i]
		a.Context.Upstream = nil
		for _, n := range calls[i].Context.Upstream {
			a.Context.Upstream = append(a.Context.Upstream, p.records[n])
		}
		p.records = append(p.records, uint64(i+1)) // the log's opening is record 0
		if err := w.Action(&a); err != nil {
			return err
		}
	}
	if err := errors.Join(w.Update(func(r *bodycam.Run) { r.Ended = time.Now() }), w.Close()); err != nil {
		return err
	}
	p.run, err = store.Open(p.dir)
	if err == nil {
		p.run.Identities = []age.Identity{p.id}
	}
	return err
}

func (res *ForensicsResult) play(ctx context.Context, s *scene) error {
	root, err := os.MkdirTemp("", "bodycam-forensics-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	p, err := newParty(root, "run", 1)
	if err == nil {
		err = p.seal(s.calls)
	}
	if err != nil {
		return err
	}
	lr, err := p.run.Ledger()
	if err != nil {
		return err
	}
	defer lr.Close()
	for i := range s.questions {
		q := &s.questions[i]
		x, err := query.Parse(q.query)
		if err != nil {
			return fmt.Errorf("%s: %w", q.text, err)
		}
		found, err := query.Run(ctx, p.run, lr, x, query.Options{Index: true})
		if err != nil {
			return err
		}
		var structured []int
		for _, a := range found.Answers {
			structured = append(structured, slices.Index(p.records, a.Record))
		}
		text, err := search(s.calls, q.words)
		if err != nil {
			return err
		}
		res.Asked = append(res.Asked, Asked{s.name, q.text, q.query, strings.Join(q.words, " "), len(q.truth), score(structured, q.truth), score(text, q.truth)})
	}
	chain, err := query.WhyRecord(ctx, lr, p.records[s.from])
	if err != nil {
		return err
	}
	var named []int
	for _, c := range chain {
		if c.Record != nil && (c.What == "call" || c.What == "upstream") {
			named = append(named, slices.Index(p.records, *c.Record))
		}
	}
	res.Chains[s.name] = slices.Equal(named, s.chain)
	return nil
}

// search is what one does with a JSON log: look for lines with the words.
func search(calls []bodycam.Action, words []string) ([]int, error) {
	var out []int
	for i := range calls {
		b, err := json.Marshal(&calls[i])
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(string(b), w) }) {
			out = append(out, i)
		}
	}
	return out, nil
}

func score(got, truth []int) Score {
	s := Score{Answers: len(got)}
	right := 0
	for _, g := range got {
		if slices.Contains(truth, g) {
			right++
		}
	}
	switch {
	case len(got) > 0:
		s.Precision = float64(right) / float64(len(got))
	case len(truth) == 0:
		s.Precision = 1
	}
	s.Recall = 1
	if len(truth) > 0 {
		s.Recall = float64(right) / float64(len(truth))
	}
	return s
}

// dispute: organisation A's agent asked B's agent to refund 100. B's agent refunded 1,000. A says that it never asked
// for that, B that it did. What settles it, under which configuration, and how much must B show?
func dispute(ctx context.Context) ([]Settled, error) {
	root, err := os.MkdirTemp("", "bodycam-dispute-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root)
	d := &disputed{root: root}
	if err := d.record(); err != nil {
		return nil, err
	}
	out, err := d.ablations()
	if err != nil {
		return nil, err
	}
	whole, err := d.whole(ctx)
	if err != nil {
		return nil, err
	}
	return append(out, *whole), nil
}

type disputed struct {
	root   string
	a, b   *party
	asked  *ledger.Bundle // A's proof of what it asked for
	parent string         // digest of A's record, which B's call names
	calls  []bodycam.Action
}

const disputedAt = 37 // B's call in question

func request(tool, args string) bodycam.Action {
	return bodycam.Action{Intent: bodycam.Intent{Tool: tool, Args: json.RawMessage(args)}, Execution: bodycam.Execution{Command: tool},
		Effects: bodycam.Effects{Return: "done"}}
}

func (d *disputed) record() error {
	var err error
	if d.a, err = newParty(d.root, "a", 1); err != nil {
		return err
	}
	if d.b, err = newParty(d.root, "b", 2); err != nil {
		return err
	}
	if err := d.a.seal([]bodycam.Action{request("delegate", `{"to":"b","ask":"refund","amount":100}`)}); err != nil {
		return err
	}
	la, err := d.a.run.Ledger()
	if err != nil {
		return err
	}
	defer la.Close()
	rec, err := la.Record(d.a.records[0])
	if err != nil {
		return err
	}
	d.parent = hex.EncodeToString(rec.Digest[:])
	if d.asked, err = la.Disclose([]ledger.Disclose{{Seq: rec.Seq}}); err != nil {
		return err
	}
	gen := la.Genesis()
	id := gen.ID()
	for i := range 100 {
		c := request("refund", fmt.Sprintf(`{"amount":%d}`, 10+i))
		if i == disputedAt {
			c = request("refund", `{"amount":1000}`)
			c.Delegation = &bodycam.Delegation{Requester: "a", Parent: d.parent, Log: hex.EncodeToString(id[:])}
		}
		d.calls = append(d.calls, c)
	}
	return d.b.seal(d.calls)
}

// altered are B's calls as it would like them to have been: it did what it was asked to.
func (d *disputed) altered() []bodycam.Action {
	out := slices.Clone(d.calls)
	out[disputedAt].Intent.Args = json.RawMessage(`{"amount":100}`)
	return out
}

// ablations: whoever holds a log without a head outside can write another that verifies as well.
func (d *disputed) ablations() ([]Settled, error) {
	encode := func(calls []bodycam.Action) ([][]byte, error) {
		var out [][]byte
		for i := range calls {
			b, err := json.Marshal(&calls[i])
			if err != nil {
				return nil, err
			}
			out = append(out, b)
		}
		return out, nil
	}
	honest, err := encode(d.calls)
	if err != nil {
		return nil, err
	}
	forged, err := encode(d.altered())
	if err != nil {
		return nil, err
	}
	var out []Settled
	for i := range ablations {
		a := &ablations[i]
		if a.name == "schema" {
			continue // its records are another program's
		}
		s := Settled{Config: a.name, Honest: "verifies", Altered: "verifies too", Verdict: "nobody", Disclose: -1}
		if a.verify(a.write(honest)) != nil {
			s.Honest = "doesn't verify"
		}
		if a.verify(a.write(forged)) != nil {
			s.Altered, s.Verdict = "is found out", "anybody"
		}
		out = append(out, s)
	}
	return out, nil
}

// whole: B's head was anchored when the run ended. B gives a bundle of the one call; A gives one of its request. A third
// party checks both, and that B's call names A's record.
func (d *disputed) whole(ctx context.Context) (*Settled, error) {
	pin, err := headOf(d.b.dir)
	if err != nil {
		return nil, err
	}
	s := &Settled{Config: "full, heads outside", Honest: "is refused", Altered: "verifies too", Verdict: "nobody", Disclose: -1}
	ok, err := d.settles(ctx, d.b, *pin, 1000)
	if err != nil {
		return nil, err
	}
	if ok {
		s.Honest, s.Disclose = "verifies", 1
	}
	forger := *d.b
	forger.dir = filepath.Join(d.root, "forged")
	if err := forger.seal(d.altered()); err != nil { // with B's own keys
		return nil, err
	}
	found, err := d.settles(ctx, &forger, *pin, 100)
	if err != nil {
		return nil, err
	}
	if !found {
		s.Altered = "is found out"
		if ok {
			s.Verdict = "anybody who has the heads"
		}
	}
	return s, nil
}

// settles tells whether a party's bundle of the call in question convinces a third: it verifies under the known key and
// the head outside, it says that amount, and it names the request that A proves.
func (d *disputed) settles(_ context.Context, p *party, pin ledger.Pinned, amount int) (bool, error) {
	lr, err := p.run.Ledger()
	if err != nil {
		return false, err
	}
	defer lr.Close()
	b, err := lr.Disclose([]ledger.Disclose{{Seq: p.records[disputedAt]}})
	if err != nil {
		return false, err
	}
	if b, err = ledger.ParseBundle(b.Append(nil)); err != nil {
		return false, err
	}
	if rep := b.Verify(ledger.Trust{Keys: d.b.keys, Pinned: []ledger.Pinned{pin}}); rep.Verdict != ledger.Verified {
		return false, nil
	}
	if rep := d.asked.Verify(ledger.Trust{Keys: d.a.keys}); rep.Verdict != ledger.Verified {
		return false, nil
	}
	call, err := payload.ParseAction(b.Items[0].Payload)
	if err != nil {
		return false, err
	}
	gen := d.asked.Genesis
	digest := d.asked.Items[0].Record.Digest(gen.Profile)
	id := gen.ID()
	return string(call.Intent.Args) == fmt.Sprintf(`{"amount":%d}`, amount) && call.Delegation != nil &&
		call.Delegation.Parent == hex.EncodeToString(digest[:]) && call.Delegation.Log == hex.EncodeToString(id[:]), nil
}

// Text is the result in Markdown.
func (r *ForensicsResult) Text() string {
	rows := [][]string{{"question", "true", "ledger: precision", "recall", "text search: precision", "recall", "lines"}}
	last := ""
	for _, a := range r.Asked {
		q := a.Question
		if a.Scene != last {
			q = a.Scene + ": " + q
			last = a.Scene
		}
		rows = append(rows, []string{q, fmt.Sprint(a.Truth), num(a.Ledger.Precision), num(a.Ledger.Recall), num(a.Text.Precision), num(a.Text.Recall), fmt.Sprint(a.Text.Answers)})
	}
	text := table(rows) + "\n"
	for _, name := range []string{"prompt injection", "production mis-targeting"} {
		verdict := "incomplete"
		if r.Chains[name] {
			verdict = "complete"
		}
		text += fmt.Sprintf("causal chain, %s: %s\n", name, verdict)
	}
	rows = [][]string{{"cross-organisation dispute", "the true log", "one that B altered", "who can settle it", "events that B shows"}}
	for _, s := range r.Dispute {
		shown := "–"
		if s.Disclose >= 0 {
			shown = fmt.Sprint(s.Disclose)
		}
		rows = append(rows, []string{s.Config, s.Honest, s.Altered, s.Verdict, shown})
	}
	return text + "\n" + table(rows)
}

func num(f float64) string { return fmt.Sprintf("%.3f", f) }
