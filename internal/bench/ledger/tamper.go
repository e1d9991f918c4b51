package ledgerbench

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
)

// Cell is how much of one manipulation one configuration found.
type Cell struct {
	Found int `json:"found"`
	Tried int `json:"tried"`
}

func (c Cell) String() string {
	if c.Tried == 0 {
		return "–"
	}
	return fmt.Sprintf("%d %%", 100*c.Found/c.Tried)
}

// TamperRow is one configuration of the table.
type TamperRow struct {
	Config      string          `json:"config"`
	Cells       map[string]Cell `json:"cells"` // by manipulation
	FalseAlarms Cell            `json:"false_alarms"`
}

// TamperResult is the table.
type TamperResult struct {
	Events    int         `json:"events"`
	Positions []int       `json:"positions"`
	Rows      []TamperRow `json:"rows"`
}

// positions are eight inside a log of n events, and the last two.
func positions(n int) []int {
	var out []int
	for k := 1; k <= 8; k++ {
		out = append(out, k*n/9)
	}
	return append(out, n-2, n-1)
}

// Tamper tries every manipulation at ten positions of a log of n events under every configuration.
func Tamper(ctx context.Context, n int, seed uint64) (*TamperResult, error) {
	if n < 20 {
		return nil, fmt.Errorf("a log of %d events is too short for ten positions", n)
	}
	res := &TamperResult{Events: n, Positions: positions(n)}
	payloads := make([][]byte, n)
	for i, c := range workload(n, seed) {
		b, err := json.Marshal(&c)
		if err != nil {
			return nil, err
		}
		payloads[i] = b
	}
	for i := range ablations {
		row, err := tamperAblation(&ablations[i], payloads, res.Positions)
		if err != nil {
			return nil, err
		}
		res.Rows = append(res.Rows, *row)
	}
	f, err := newFull(ctx, payloads, res.Positions)
	if err != nil {
		return nil, err
	}
	defer f.remove()
	rows, err := f.rows(ctx)
	res.Rows = append(res.Rows, rows...)
	return res, err
}

func tamperAblation(a *ablation, payloads [][]byte, at []int) (*TamperRow, error) {
	row := &TamperRow{Config: a.name, Cells: map[string]Cell{}}
	l := a.write(payloads)
	row.FalseAlarms = Cell{Tried: 1}
	if a.verify(l) != nil {
		row.FalseAlarms.Found = 1
	}
	for _, what := range manipulations {
		var c Cell
		for _, p := range at {
			t := tamper(a, l, what, p)
			if len(t.entries) == len(l.entries) && bytes.Equal(t.entries[p].payload, l.entries[p].payload) {
				return nil, fmt.Errorf("%s, %s at %d: %w", a.name, what, p, errMissed)
			}
			c.Tried++
			if a.verify(t) != nil {
				c.Found++
			}
		}
		row.Cells[what] = c
	}
	var cut Cell
	for _, p := range at {
		t := &log{entries: l.entries[:p]}
		if l.roots != nil {
			t.roots = roots(t) // the root of the epoch that was cut into is made anew: nothing outside knows it
		}
		cut.Tried++
		if a.verify(t) != nil {
			cut.Found++
		}
	}
	row.Cells["cut tail"] = cut
	return row, nil
}

// full is the ledger itself, with a copy of it as it was at every position: what somebody with the recorder's keys goes
// on from to write another history.
type full struct {
	root     string
	payloads [][]byte
	at       []int
	opts     ledger.Options
	pin      ledger.Pinned // the head at the end, as the world outside knows it
	early    []ledger.Pinned
	keys     []ledger.PublicKey
	ids      []age.Identity
}

func newFull(ctx context.Context, payloads [][]byte, at []int) (*full, error) {
	root, err := os.MkdirTemp("", "bodycam-tamper-")
	if err != nil {
		return nil, err
	}
	f := &full{root: root, payloads: payloads, at: at}
	if err := f.record(ctx); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return f, nil
}

func (f *full) remove() error { return os.RemoveAll(f.root) }

func (f *full) setUp() error {
	f.opts = ledger.Options{Recorder: "bench", EpochRecords: perEpoch}
	for _, alg := range []checkpoint.Algorithm{checkpoint.Ed25519, checkpoint.MLDSA44} {
		s, err := checkpoint.NewSigner(alg, make([]byte, 32))
		if err != nil {
			return err
		}
		f.opts.Signers = append(f.opts.Signers, s)
		a, pub := s.Public()
		f.keys = append(f.keys, ledger.PublicKey{Alg: a, Public: pub})
	}
	id, err := age.GenerateHybridIdentity()
	if err != nil {
		return err
	}
	f.opts.Recipients, f.ids = []age.Recipient{id.Recipient()}, []age.Identity{id}
	return nil
}

// record writes the true log and keeps a copy at every position.
func (f *full) record(ctx context.Context) error {
	if err := f.setUp(); err != nil {
		return err
	}
	dir := filepath.Join(f.root, "true")
	w, err := ledger.Create(posixstore.New(dir), f.opts)
	if err != nil {
		return err
	}
	from := 0
	for i, at := range f.at {
		if err := appendAll(ctx, w, f.payloads[from:at]); err != nil {
			return err
		}
		if err := w.Detach(); err != nil {
			return err
		}
		if err := os.CopyFS(f.snapshot(i), os.DirFS(dir)); err != nil {
			return err
		}
		p, err := headOf(dir)
		if err != nil {
			return err
		}
		f.early = append(f.early, *p)
		if w, err = ledger.Open(posixstore.New(dir), f.opts); err != nil {
			return err
		}
		from = at
	}
	if err := appendAll(ctx, w, f.payloads[from:]); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	p, err := headOf(dir)
	if err == nil {
		f.pin = *p
	}
	return err
}

func (f *full) snapshot(i int) string { return filepath.Join(f.root, fmt.Sprintf("at-%d", i)) }

func appendAll(ctx context.Context, w *ledger.Writer, payloads [][]byte) error {
	for _, p := range payloads {
		if _, err := w.Append(ctx, ledger.Entry{Type: ledger.TypeUser, Kind: "action", Payload: p}); err != nil {
			return err
		}
	}
	return nil
}

func headOf(dir string) (*ledger.Pinned, error) {
	b, err := os.ReadFile(filepath.Join(dir, "ledger", "checkpoint"))
	if err != nil {
		return nil, err
	}
	n, err := checkpoint.Parse(b)
	if err != nil {
		return nil, err
	}
	return &ledger.Pinned{Checkpoint: n.Checkpoint, Source: "the checkpoint outside", Time: time.Now().UnixNano()}, nil
}

// alarm verifies a log and tells whether it was found to be tampered with.
func (f *full) alarm(ctx context.Context, dir string, pins ...ledger.Pinned) (bool, error) {
	rep, err := ledger.Verify(ctx, os.DirFS(dir), ledger.VerifyOptions{Trust: ledger.Trust{Keys: f.keys, Pinned: pins}, Payloads: true, Identities: f.ids})
	if err != nil {
		return false, err
	}
	return rep.Verdict == ledger.Tampered, nil
}

// rows tries the manipulations in two ways: on the bytes as they lie, against the log's own checkpoint; and by writing
// another history with the recorder's own keys, against a head that is known outside.
func (f *full) rows(ctx context.Context) ([]TamperRow, error) {
	own := TamperRow{Config: "full, its own checkpoint", Cells: map[string]Cell{}}
	pinned := TamperRow{Config: "full, a head outside", Cells: map[string]Cell{}}
	for _, what := range append(manipulations, "cut tail") {
		for i := range f.at {
			dir := filepath.Join(f.root, "forged")
			rewrite := what == "fork" || what == "cut tail"
			if !rewrite {
				if err := f.inPlace(dir, what, i); err != nil {
					return nil, err
				}
				if err := f.count(ctx, &own, what, dir); err != nil {
					return nil, err
				}
			}
			if err := f.another(ctx, dir, what, i); err != nil {
				return nil, err
			}
			if rewrite {
				if err := f.count(ctx, &own, what, dir); err != nil {
					return nil, err
				}
			}
			if err := f.count(ctx, &pinned, what, dir, f.pin); err != nil {
				return nil, err
			}
		}
	}
	return []TamperRow{own, pinned}, f.falseAlarms(ctx, &own, &pinned)
}

func (f *full) count(ctx context.Context, row *TamperRow, what, dir string, pins ...ledger.Pinned) error {
	found, err := f.alarm(ctx, dir, pins...)
	if err != nil {
		return err
	}
	c := row.Cells[what]
	c.Tried++
	if found {
		c.Found++
	}
	row.Cells[what] = c
	return nil
}

// falseAlarms verifies what is true: the log against its own checkpoint and every head that it ever had, and the copy
// at every position against those before it.
func (f *full) falseAlarms(ctx context.Context, own, pinned *TamperRow) error {
	check := func(row *TamperRow, dir string, pins ...ledger.Pinned) error {
		found, err := f.alarm(ctx, dir, pins...)
		row.FalseAlarms.Tried++
		if found {
			row.FalseAlarms.Found++
		}
		return err
	}
	dir := filepath.Join(f.root, "true")
	if err := errors.Join(check(own, dir), check(pinned, dir, f.pin), check(pinned, dir, append(f.early, f.pin)...)); err != nil {
		return err
	}
	for i := range f.at {
		if err := errors.Join(check(own, f.snapshot(i)), check(pinned, f.snapshot(i), f.early[:i+1]...), check(pinned, dir, f.early[i])); err != nil {
			return err
		}
	}
	return nil
}

// another writes another history from a position on with the recorder's keys.
func (f *full) another(ctx context.Context, dir, what string, i int) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.CopyFS(dir, os.DirFS(f.snapshot(i))); err != nil {
		return err
	}
	if what == "cut tail" {
		return nil // a log that was signed at that position, by the recorder itself
	}
	rest := append([][]byte(nil), f.payloads[f.at[i]:]...)
	switch {
	case what == "edit":
		rest[0] = forged(rest[0])
	case what == "delete":
		rest = rest[1:]
	case what == "reorder" && len(rest) > 1:
		rest[0], rest[1] = rest[1], rest[0]
	case what == "reorder": // the last one has no neighbour behind it: it is recorded in another's place
		rest[0] = f.payloads[f.at[i]-1]
	case what == "fork":
		for j := range rest {
			rest[j] = forged(rest[j])
		}
	}
	w, err := ledger.Open(posixstore.New(dir), f.opts)
	if err != nil {
		return err
	}
	return errors.Join(appendAll(ctx, w, rest), w.Close())
}

// inPlace changes the bytes of the log as they lie.
func (f *full) inPlace(dir, what string, i int) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(f.root, "true"))); err != nil {
		return err
	}
	path := filepath.Join(dir, "ledger", "00000000.log")
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	frames, err := splitFrames(b)
	if err != nil {
		return err
	}
	at, err := userFrame(frames, f.at[i])
	if err != nil {
		return err
	}
	switch what {
	case "edit":
		frame := bytes.Clone(frames[at])
		frame[30] ^= 1 // within the commitment
		frames[at] = frame
	case "delete":
		frames = append(frames[:at:at], frames[at+1:]...)
	case "reorder":
		other := at + 1
		if other == len(frames) || !isUser(frames[other]) {
			other = at - 1
		}
		frames[at], frames[other] = frames[other], frames[at]
	}
	return os.WriteFile(path, bytes.Join(frames, nil), 0o600)
}

// splitFrames divides a segment as docs/FORMAT.md says: uvarint length, body, four check bytes.
func splitFrames(b []byte) ([][]byte, error) {
	var out [][]byte
	for len(b) > 0 {
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)-k-4) {
			return nil, io.ErrUnexpectedEOF
		}
		size := k + int(n) + 4
		out = append(out, b[:size:size])
		b = b[size:]
	}
	return out, nil
}

// isUser tells a record of a program's from the ledger's own and from what opens an epoch.
func isUser(frame []byte) bool {
	_, k := binary.Uvarint(frame)
	t, _ := binary.Uvarint(frame[k:])
	return t >= uint64(ledger.TypeUser)
}

// userFrame finds the frame of the n-th event.
func userFrame(frames [][]byte, n int) (int, error) {
	for i, fr := range frames {
		if isUser(fr) {
			if n == 0 {
				return i, nil
			}
			n--
		}
	}
	return 0, errors.New("the segment has fewer records than were written")
}

// Text is the table in Markdown.
func (r *TamperResult) Text() string {
	rows := [][]string{{fmt.Sprintf("found of %d, in a log of %d events", len(r.Positions), r.Events), "edit", "delete", "reorder", "fork", "cut tail", "false alarms"}}
	for _, row := range r.Rows {
		line := []string{row.Config}
		for _, what := range append(manipulations, "cut tail") {
			line = append(line, row.Cells[what].String())
		}
		line = append(line, fmt.Sprintf("%d of %d", row.FalseAlarms.Found, row.FalseAlarms.Tried))
		rows = append(rows, line)
	}
	return table(rows)
}
