package ledgerbench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/query"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// Step is one thing that was done with a large log.
type Step struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took_ns"`
	Peak int64         `json:"peak_bytes"` // resident, of the process so far
}

// LargeResult is what a large log took.
type LargeResult struct {
	Events int    `json:"events"`
	Bytes  int64  `json:"bytes"`
	Steps  []Step `json:"steps"`
}

// Large writes a run of n kernel events, verifies it, and looks for one of them, without an index and with one.
func Large(ctx context.Context, n int) (*LargeResult, error) {
	root, err := os.MkdirTemp("", "bodycam-large-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root)
	p, err := newParty(root, "run", 1)
	if err != nil {
		return nil, err
	}
	res := &LargeResult{Events: n}
	step := func(name string, f func() error) error {
		begin := time.Now()
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		peak, err := peakMemory()
		res.Steps = append(res.Steps, Step{name, time.Since(begin), peak})
		return err
	}
	want := n * 2 / 3
	if err := step("written", func() error { return p.observe(n) }); err != nil {
		return nil, err
	}
	if res.Bytes, err = size(filepath.Join(p.dir, "ledger")); err != nil {
		return nil, err
	}
	more, err := size(filepath.Join(p.dir, "payload"))
	if err != nil {
		return nil, err
	}
	res.Bytes += more
	if err := step("verified, structure", func() error { _, _, err := verified(ctx, p.dir, nil); return err }); err != nil {
		return nil, err
	}
	if err := step("verified, opened", func() error {
		_, rep, err := verified(ctx, p.dir, []age.Identity{p.id})
		if err == nil && rep.Events != uint64(n) {
			err = fmt.Errorf("%d events", rep.Events)
		}
		return err
	}); err != nil {
		return nil, err
	}
	for _, q := range []struct {
		name  string
		index bool
	}{{"queried, every event looked at", false}, {"queried, the index made first", true}, {"queried, by the index", true}} {
		if err := step(q.name, func() error { return p.seek(ctx, want, q.index) }); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// observe records n kernel events.
func (p *party) observe(n int) error {
	w, err := store.Create(p.dir, bodycam.Run{ID: "large", Started: time.Now()},
		&store.Sealing{Signers: p.signers, Recipients: []age.Recipient{p.id.Recipient()}, Recorder: "bench"})
	if err != nil {
		return err
	}
	e := bodycam.Event{NR: 257, Sensor: "bpf"}
	for i := range n {
		e.Type, e.Proc, e.Boot = bodycam.TypeOpen, bodycam.Proc{PID: int32(100 + i/5000%50), Start: uint64(1 + i/5000%50)}, uint64(i+1)*1000
		e.Path = fmt.Sprintf("/workspace/src/pkg%d/file%d.go", i%97, i%1009)
		if i == n*2/3-1 {
			e.Path = "/workspace/needle"
		}
		if err := w.Event(&e); err != nil {
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

// seek looks for the one event and makes sure that it is found.
func (p *party) seek(ctx context.Context, want int, index bool) error {
	x, err := query.Parse(`path == "/workspace/needle"`)
	if err != nil {
		return err
	}
	lr, err := p.run.Ledger()
	if err != nil {
		return err
	}
	defer lr.Close()
	res, err := query.Run(ctx, p.run, lr, x, query.Options{Index: index})
	if err != nil {
		return err
	}
	if len(res.Answers) != 1 || res.Answers[0].Event != uint64(want) || !res.Scope.Exhaustive {
		return fmt.Errorf("%d answers, want event %d alone", len(res.Answers), want)
	}
	return nil
}

// peakMemory is the most memory that the process has had resident, as the kernel counts it.
func peakMemory() (int64, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), "VmHWM:"); ok {
			var kb int64
			_, err := fmt.Sscanf(rest, "%d kB", &kb)
			return kb << 10, err
		}
	}
	return 0, errors.New("the kernel doesn't tell the process's memory")
}

// Text is the result in Markdown.
func (r *LargeResult) Text() string {
	rows := [][]string{{fmt.Sprintf("%d kernel events, %d MB of ledger", r.Events, r.Bytes>>20), "time", "peak memory"}}
	for _, s := range r.Steps {
		rows = append(rows, []string{s.Name, fmt.Sprintf("%.1f s", s.Took.Seconds()), fmt.Sprintf("%d MiB", s.Peak>>20)})
	}
	return table(rows)
}
