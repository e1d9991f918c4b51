// Package anchorsbench compares the ways of anchoring side by side: latency, bytes, cost, and what an attacker who has taken
// the host can still do with each. Everything but the prices is measured: the logs are real, and so are the attacks.
package anchorsbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// Attacks are what is tried after the host is taken, with every signing key: each makes another log under the same
// genesis, consistent in itself and validly signed.
var Attacks = []string{"edit", "delete", "reorder", "fork", "truncate", "rollback"}

// Row is one mechanism.
type Row struct {
	Mechanism string `json:"mechanism"`
	Skipped   string `json:"skipped,omitempty"` // why it wasn't measured
	// Median and Worst are the time from a head to its final anchor, over Heads heads.
	Median time.Duration `json:"median"`
	Worst  time.Duration `json:"worst"`
	Heads  int           `json:"heads"`
	Bytes  int           `json:"bytes"` // of one proof
	// Caught says of each attack whether a verifier who has what the outside holds finds it.
	Caught map[string]bool `json:"caught"`
	// Refused counts the attacks whose log the outside refused to anchor afterwards, of all.
	Refused int `json:"refused"`
	// Prior, Survives and Left are known of the mechanism, not measured.
	Prior    string `json:"prior"`
	Survives string `json:"survives"`
	Left     string `json:"left"`
}

// Result is the comparison.
type Result struct {
	Rows  []Row  `json:"rows"`
	Costs []Cost `json:"costs"`
	Price Price  `json:"price"`
}

const entries = 40

// recorder is a log that can be recorded again in another way.
type recorder struct {
	dir     string
	signers []checkpoint.Signer
	keys    []ledger.PublicKey
}

func newRecorder(dir string) (*recorder, error) {
	r := &recorder{dir: dir}
	for i, alg := range []checkpoint.Algorithm{checkpoint.Ed25519, checkpoint.MLDSA44} {
		s, err := checkpoint.NewSigner(alg, slices.Repeat([]byte{byte(i + 1)}, 32))
		if err != nil {
			return nil, err
		}
		k := ledger.PublicKey{}
		k.Alg, k.Public = s.Public()
		r.signers, r.keys = append(r.signers, s), append(r.keys, k)
	}
	w, err := ledger.Create(posixstore.New(r.path("begun")), r.options())
	if err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	// The honest log, and the moment in its middle to which it can be rolled back.
	if err := r.record("begun", "middle", values(entries/2)); err != nil {
		return nil, err
	}
	return r, r.record("middle", "true", values(entries)[entries/2:])
}

func (r *recorder) path(name string) string { return filepath.Join(r.dir, name) }

func (r *recorder) options() ledger.Options {
	return ledger.Options{Name: "bench", Signers: r.signers, Clear: true, EpochRecords: 5, Recorder: "bench"}
}

func values(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("event %d", i))
	}
	return out
}

// record continues a copy of a log.
func (r *recorder) record(from, to string, what []string) error {
	if err := os.CopyFS(r.path(to), os.DirFS(r.path(from))); err != nil {
		return err
	}
	w, err := ledger.Open(posixstore.New(r.path(to)), r.options())
	if err != nil {
		return err
	}
	for _, v := range what {
		if _, err := w.Append(context.Background(), ledger.Entry{Type: ledger.TypeUser, Kind: "event", Payload: []byte(v)}); err != nil {
			return errors.Join(err, w.Close())
		}
	}
	return w.Close()
}

// attack makes the log of an attack.
func (r *recorder) attack(name string) error {
	v := values(entries)
	switch name {
	case "edit":
		v[3] = "event 3, edited"
	case "delete":
		v = slices.Delete(v, 3, 4)
	case "reorder":
		v[3], v[4] = v[4], v[3]
	case "fork":
		v = v[entries/2:]
		v[0] = "another future"
		return r.record("middle", name, v)
	case "truncate":
		v = v[:entries/2+5]
	case "rollback":
		return os.CopyFS(r.path(name), os.DirFS(r.path("middle")))
	}
	return r.record("begun", name, v)
}

// Run compares. dir is for the logs and is left behind; only names the mechanisms, nil: all.
func Run(ctx context.Context, dir string, heads int, price Price, only []string) (*Result, error) {
	r, err := newRecorder(dir)
	if err != nil {
		return nil, fmt.Errorf("recording a log: %w", err)
	}
	for _, a := range Attacks {
		if err := r.attack(a); err != nil {
			return nil, fmt.Errorf("attack %s: %w", a, err)
		}
	}
	res := &Result{Price: price, Costs: costs(price)}
	for _, m := range mechanisms() {
		if only != nil && !slices.Contains(only, m.name) {
			continue
		}
		row, err := r.measure(ctx, m, heads)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		res.Rows = append(res.Rows, *row)
	}
	return res, nil
}

// measure runs one mechanism, fresh.
func (r *recorder) measure(ctx context.Context, m mechanism, heads int) (*Row, error) {
	row := &Row{Mechanism: m.name, Prior: m.prior, Survives: m.survives, Left: m.left, Caught: map[string]bool{}, Heads: heads}
	o := &outside{manifest: &proof.Manifest{}}
	if m.start != nil {
		var err error
		if o, err = m.start(ctx, r); err != nil {
			var s skipped
			if errors.As(err, &s) {
				row.Skipped = s.Error()
				return row, nil
			}
			return nil, err
		}
		defer o.stop()
		if err := r.latency(ctx, row, o, heads); err != nil {
			return nil, err
		}
	}
	return row, r.judge(ctx, row, o)
}

// latency anchors growing logs of a copy.
func (r *recorder) latency(ctx context.Context, row *Row, o *outside, heads int) error {
	dir := filepath.Join(r.dir, "anchored-"+row.Mechanism)
	var times []time.Duration
	if err := os.CopyFS(dir, os.DirFS(r.path("true"))); err != nil {
		return err
	}
	full, err := anchor.OpenLog(dir)
	if err != nil {
		return err
	}
	defer full.Close()
	h, err := full.Head()
	if err != nil {
		return err
	}
	first := h.Size - min(uint64(heads), h.Size) + 1
	for size := first; size <= h.Size; size++ {
		k, err := anchor.NewRunner(dir, o.mechanism, &prefix{full, r, size}, anchor.Options{Name: "bench", Poll: 2 * time.Millisecond, Told: o.told})
		if err != nil {
			return err
		}
		begun := time.Now()
		err = k.Flush(ctx)
		times = append(times, time.Since(begun))
		if err = errors.Join(err, k.Close()); err != nil {
			return err
		}
	}
	slices.Sort(times)
	row.Heads, row.Median, row.Worst = len(times), times[len(times)/2], times[len(times)-1]
	list, err := proof.Read(os.DirFS(dir))
	if err != nil {
		return err
	}
	row.Bytes = len(list[len(list)-1].Data)
	o.anchors = list
	if o.roots != nil {
		o.manifest.Roots = map[string]proof.Root{"bench": o.roots()}
	}
	return nil
}

// prefix is a log as it was when it had a size.
type prefix struct {
	*anchor.Log
	r    *recorder
	size uint64
}

func (p *prefix) Head() (anchor.Head, error) {
	h, err := p.Log.Head()
	if err != nil || h.Size == p.size {
		return h, err
	}
	root, err := h.RootAt(p.size)
	if err != nil {
		return h, err
	}
	n, err := checkpoint.Sign(checkpoint.Checkpoint{Origin: h.Origin, Size: p.size, Root: root}, h.Origin, 0, p.r.signers...)
	if err != nil {
		return h, err
	}
	return p.At(n), nil
}

// judge verifies every attack's log as somebody who has the recorder's keys and what the outside holds, and lets the
// attacker anchor it.
func (r *recorder) judge(ctx context.Context, row *Row, o *outside) error {
	verify := func(name string) (*ledger.Report, error) {
		log, err := anchor.OpenLog(r.path(name))
		if err != nil {
			return nil, err
		}
		defer log.Close()
		gen := log.Genesis()
		j := proof.Judge(gen.Origin(), o.anchors, o.manifest)
		return ledger.Verify(ctx, os.DirFS(r.path(name)), ledger.VerifyOptions{Trust: ledger.Trust{Keys: r.keys, Pinned: j.Pinned()}})
	}
	honest, err := verify("true")
	if err != nil {
		return err
	}
	if honest.Verdict != ledger.Verified {
		return fmt.Errorf("the true log is %s", honest.Verdict)
	}
	for _, a := range Attacks {
		rep, err := verify(a)
		if err != nil {
			return err
		}
		row.Caught[a] = rep.Verdict != ledger.Verified
		if o.mechanism == nil {
			continue
		}
		refused, err := r.again(ctx, a, o)
		if err != nil {
			return fmt.Errorf("after attack %s: %w", a, err)
		}
		if refused {
			row.Refused++
		}
	}
	return nil
}

// again lets the attacker anchor his log, with fresh state.
func (r *recorder) again(ctx context.Context, name string, o *outside) (bool, error) {
	if err := os.RemoveAll(filepath.Join(r.path(name), proof.Dir)); err != nil {
		return false, err
	}
	log, err := anchor.OpenLog(r.path(name))
	if err != nil {
		return false, err
	}
	defer log.Close()
	k, err := anchor.NewRunner(r.path(name), o.mechanism, log, anchor.Options{Name: "attacker", Poll: 2 * time.Millisecond, Retry: time.Millisecond, Told: o.told})
	if err != nil {
		return false, err
	}
	defer k.Close()
	// A conflict while the anchor is prepared is tried again by a runner, for its log may catch up: one look is enough here.
	for range 200 {
		err := k.Step(ctx, true)
		if errors.Is(err, anchor.ErrConflict) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if k.Status().Count > 0 {
			return false, nil
		}
	}
	return false, errors.New("the outside neither took nor refused it")
}
