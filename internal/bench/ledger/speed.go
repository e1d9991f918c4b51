package ledgerbench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/internal/store/payload"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
)

// Cost is what an event costs under one configuration.
type Cost struct {
	Config string        `json:"config"`
	N      int           `json:"n"`
	Seeds  int           `json:"seeds"`
	Median time.Duration `json:"median_ns"`
	P95    time.Duration `json:"p95_ns"`
	P99    time.Duration `json:"p99_ns"`
	Mean   time.Duration `json:"mean_ns"` // whole run, with closing, over N
	Bytes  float64       `json:"bytes"`   // on storage, an event
}

// SpeedResult is the outcome of Speed.
type SpeedResult struct {
	Costs   []Cost  `json:"costs"`
	Payload float64 `json:"payload_bytes"` // of an event in CBOR
	JSON    float64 `json:"json_bytes"`    // in JSON
	Batch   *Batch  `json:"batch"`
	Parts   []Part  `json:"parts"` // of the path of an encrypted event, each alone
}

// Batch is what kernel events cost in batches, and how quickly they are verified.
type Batch struct {
	Events  int           `json:"events"`
	Size    int           `json:"event_bytes"`
	Each    time.Duration `json:"each_ns"`
	Over    float64       `json:"bytes_over"`                // beyond the event's own
	Records float64       `json:"verify_records_per_second"` // single records, structure and commitments
	Content float64       `json:"verify_opened_per_second"`
}

// Part is the cost of one primitive on the event's bytes, as this machine has it.
type Part struct {
	Name string        `json:"name"`
	Each time.Duration `json:"each_ns"`
}

// SpeedOptions say what is measured.
type SpeedOptions struct {
	Sizes []int // Ns, over the seeds
	Seeds int
	Once  int          // N measured once; 0: none
	Lines [][]byte     // events of real transcripts; nil: the synthetic workload
	Told  func(string) // hears what is being measured; nil: nobody
}

// sample are the events: calls or lines, taken again from the first where n is more.
type sample struct {
	n     int
	calls []call
	lines [][]byte
}

// mostCalls bounds the calls that are made, so that the workload's memory isn't what is measured.
const mostCalls = 10_000

func (s *sample) call(i int) *call { return &s.calls[i%len(s.calls)] }

// config writes events one by one.
type config struct {
	name string
	open func(dir string) (*run, error)
}

// run is a log that is being written under a configuration.
type run struct {
	add    func(i int, s *sample) error
	close  func() error
	copies []string // what lies beside the ledger and isn't counted
}

var configs = []config{
	{"encoding/json", func(dir string) (*run, error) {
		return buffered(dir, func(w *bufio.Writer, i int, s *sample) error {
			b, err := s.json(i)
			if err == nil {
				_, err = w.Write(append(b, '\n'))
			}
			return err
		})
	}},
	{"schema", func(dir string) (*run, error) { return stages(dir, 0) }},
	{"chain", func(dir string) (*run, error) { return stages(dir, 1) }},
	{"Merkle", func(dir string) (*run, error) { return stages(dir, 2) }},
	{"full, clear", func(dir string) (*run, error) { return whole(dir, true) }},
	{"full, encrypted", func(dir string) (*run, error) { return whole(dir, false) }},
	{"a run's writer", runWriter},
}

// line is what the baseline writes: the event and what a record says besides.
type line struct {
	Seq     int    `json:"seq"`
	Time    int64  `json:"time"`
	Kind    string `json:"kind"`
	Payload any    `json:"payload"`
}

func (s *sample) json(i int) ([]byte, error) {
	if s.lines != nil {
		return json.Marshal(&line{i, time.Now().UnixNano(), "row", json.RawMessage(s.lines[i%len(s.lines)])})
	}
	c := s.call(i)
	return json.Marshal(&line{i, time.Now().UnixNano(), c.Intent.Tool, &c.Action})
}

// encode is the payload as the ledger gets it: an action as a run writes it.
func (s *sample) encode(b []byte, i int) ([]byte, string, uint64) {
	if s.lines != nil {
		return append(b, s.lines[i%len(s.lines)]...), "row", 0
	}
	c := s.call(i)
	return payload.AppendAction(b, &c.Action), c.Intent.Tool, c.Group
}

func buffered(dir string, add func(*bufio.Writer, int, *sample) error) (*run, error) {
	f, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	w := bufio.NewWriterSize(f, 64<<10)
	return &run{
		add:   func(i int, s *sample) error { return add(w, i, s) },
		close: func() error { return errors.Join(w.Flush(), f.Sync(), f.Close()) },
	}, nil
}

// stages are the parts of the construction, one after another: record and payload in CBOR; commitment and chain; tree.
func stages(dir string, stage int) (*run, error) {
	var body, enc []byte
	var digests []ledger.Hash
	var root ledger.Hash
	r := ledger.Record{Type: ledger.TypeUser, Form: ledger.FormInline | ledger.FormClear}
	return buffered(dir, func(w *bufio.Writer, i int, s *sample) error {
		body, r.Kind, r.Group = s.encode(body[:0], i)
		r.Seq, r.Wall = uint64(i), time.Now().UnixNano()
		if stage > 0 {
			r.Commitment = sha256.Sum256(body)
		}
		enc = r.AppendCBOR(enc[:0])
		if stage > 0 {
			r.Prev = sha256.Sum256(enc)
		}
		if stage > 1 {
			if digests = append(digests, r.Prev); len(digests) == perEpoch {
				root = ledger.AFRRoot(merkle.Root(digests), root)
				digests = digests[:0]
				if _, err := w.Write(root[:]); err != nil {
					return err
				}
			}
		}
		if _, err := w.Write(enc); err != nil {
			return err
		}
		_, err := w.Write(body)
		return err
	})
}

// keys are those of a recorder with both algorithms and a recipient that resists quantum computers.
func keys() ([]checkpoint.Signer, []age.Recipient, error) {
	var signers []checkpoint.Signer
	for _, alg := range []checkpoint.Algorithm{checkpoint.Ed25519, checkpoint.MLDSA44} {
		s, err := checkpoint.NewSigner(alg, make([]byte, 32))
		if err != nil {
			return nil, nil, err
		}
		signers = append(signers, s)
	}
	id, err := age.GenerateHybridIdentity()
	if err != nil {
		return nil, nil, err
	}
	return signers, []age.Recipient{id.Recipient()}, nil
}

// whole is the ledger as it is: signed by two algorithms, epochs durable.
func whole(dir string, plain bool) (*run, error) {
	o := ledger.Options{Recorder: "bench", Clear: plain}
	var err error
	if o.Signers, o.Recipients, err = keys(); err != nil {
		return nil, err
	}
	if plain {
		o.Recipients = nil
	}
	w, err := ledger.Create(posixstore.New(dir), o)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 0, 64<<10)
	ctx := context.Background()
	return &run{
		add: func(i int, s *sample) error {
			e := ledger.Entry{Type: ledger.TypeUser}
			buf, e.Kind, e.Group = s.encode(buf[:0], i)
			e.Payload = buf
			_, err := w.Append(ctx, e)
			return err
		},
		close: w.Close,
	}, nil
}

// runWriter is what `bodycam run` does with an agent's actions: the run directory's writer.
func runWriter(dir string) (*run, error) {
	signers, recipients, err := keys()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "run")
	w, err := store.Create(dir, bodycam.Run{ID: "bench"}, &store.Sealing{Signers: signers, Recipients: recipients, Recorder: "bench"})
	if err != nil {
		return nil, err
	}
	return &run{
		add: func(i int, s *sample) error {
			if s.lines != nil {
				return w.Action(&bodycam.Action{Intent: bodycam.Intent{Tool: "row", Args: s.lines[i%len(s.lines)]}})
			}
			return w.Action(&s.call(i).Action)
		},
		close:  w.Close,
		copies: []string{filepath.Join(dir, store.EventsFile), filepath.Join(dir, store.InfoFile)},
	}, nil
}

// Speed measures every configuration. Seeds alternate between configurations, so that what else the machine does hits
// all alike.
func Speed(ctx context.Context, o SpeedOptions) (*SpeedResult, error) {
	tell := func(format string, args ...any) {
		if o.Told != nil {
			o.Told(fmt.Sprintf(format, args...))
		}
	}
	res := &SpeedResult{}
	for _, n := range o.Sizes {
		tell("%d events over %d seeds", n, o.Seeds)
		if err := res.sizes(ctx, n, o.Seeds, o.Lines); err != nil {
			return nil, err
		}
	}
	if o.Once > 0 {
		tell("%d events once", o.Once)
		if err := res.sizes(ctx, o.Once, 1, o.Lines); err != nil {
			return nil, err
		}
	}
	if o.Lines != nil {
		return res, nil
	}
	tell("kernel events in batches")
	var err error
	if res.Batch, err = batches(ctx, 1_000_000); err != nil {
		return nil, err
	}
	res.Parts = parts()
	return res, nil
}

func (res *SpeedResult) sizes(ctx context.Context, n, seeds int, lines [][]byte) error {
	lat := make([][]time.Duration, len(configs))
	costs := make([]Cost, len(configs))
	total := make([]time.Duration, len(configs))
	for seed := range seeds {
		s := &sample{n: n}
		if lines != nil {
			s.lines = lines
		} else {
			s.calls = workload(min(n, mostCalls), uint64(seed))
			res.payloadSizes(s)
		}
		for i := range configs {
			if err := ctx.Err(); err != nil {
				return err
			}
			lat[i] = slices.Grow(lat[i], n)
			took, bytes, err := measure(&configs[i], s, &lat[i])
			if err != nil {
				return fmt.Errorf("%s: %w", configs[i].name, err)
			}
			total[i] += took
			costs[i].Bytes += float64(bytes)
		}
	}
	for i := range costs {
		c := &costs[i]
		slices.Sort(lat[i])
		at := func(p float64) time.Duration { return lat[i][int(p*float64(len(lat[i])-1))] }
		c.Config, c.N, c.Seeds, c.Median, c.P95, c.P99 = configs[i].name, n, seeds, at(.5), at(.95), at(.99)
		c.Mean = total[i] / time.Duration(n*seeds)
		c.Bytes /= float64(n * seeds)
	}
	res.Costs = append(res.Costs, costs...)
	return nil
}

func (res *SpeedResult) payloadSizes(s *sample) {
	n := min(len(s.calls), 1000)
	cb, js := 0, 0
	for i := range n {
		cb += len(payload.AppendAction(nil, &s.calls[i].Action))
		if b, err := json.Marshal(&s.calls[i].Action); err == nil {
			js += len(b)
		}
	}
	res.Payload, res.JSON = float64(cb)/float64(n), float64(js)/float64(n)
}

// measure writes the events under a configuration.
func measure(c *config, s *sample, lat *[]time.Duration) (took time.Duration, bytes int64, err error) {
	dir, err := os.MkdirTemp("", "bodycam-bench-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	runtime.GC() // what the configuration before left behind isn't this one's to clear away
	r, err := c.open(dir)
	if err != nil {
		return 0, 0, err
	}
	n := s.n
	begin := time.Now()
	last := begin
	for i := range n {
		if err := r.add(i, s); err != nil {
			return 0, 0, errors.Join(err, r.close())
		}
		now := time.Now()
		*lat = append(*lat, now.Sub(last))
		last = now
	}
	if err := r.close(); err != nil {
		return 0, 0, err
	}
	took = time.Since(begin)
	bytes, err = size(dir)
	for _, name := range r.copies {
		info, serr := os.Stat(name)
		if err = errors.Join(err, serr); serr == nil {
			bytes -= info.Size()
		}
	}
	return took, bytes, err
}

func size(dir string) (n int64, err error) {
	err = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return err
	})
	return n, err
}

// batches writes kernel events of 100 bytes in batches of 512 and verifies them.
func batches(ctx context.Context, n int) (*Batch, error) {
	const eventSize, perBatch = 100, 512
	dir, err := os.MkdirTemp("", "bodycam-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b := &Batch{Events: n, Size: eventSize}
	ids, err := writeBatches(ctx, dir, n, eventSize, perBatch, &b.Each)
	if err != nil {
		return nil, err
	}
	bytes, err := size(dir)
	if err != nil {
		return nil, err
	}
	b.Over = float64(bytes)/float64(n) - eventSize
	took, rep, err := verified(ctx, dir, ids)
	if err != nil {
		return nil, err
	}
	b.Content = float64(rep.Events) / took.Seconds()
	b.Records, err = recordRate(ctx, n)
	return b, err
}

// verified verifies a log that must hold.
func verified(ctx context.Context, dir string, ids []age.Identity) (time.Duration, *ledger.Report, error) {
	begin := time.Now()
	rep, err := ledger.Verify(ctx, os.DirFS(dir), ledger.VerifyOptions{Trust: ledger.Trust{Self: true}, Identities: ids})
	if err == nil && rep.Verdict != ledger.Verified {
		err = fmt.Errorf("the log doesn't verify: %s", rep.Verdict)
	}
	return time.Since(begin), rep, err
}

// recordRate is how many single records are verified in a second, without their payloads.
func recordRate(ctx context.Context, n int) (float64, error) {
	dir, err := os.MkdirTemp("", "bodycam-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	r, err := whole(dir, false)
	if err != nil {
		return 0, err
	}
	s := &sample{calls: workload(1000, 1)}
	for i := range n {
		if err := r.add(i, s); err != nil {
			return 0, errors.Join(err, r.close())
		}
	}
	if err := r.close(); err != nil {
		return 0, err
	}
	took, rep, err := verified(ctx, dir, nil)
	if err != nil {
		return 0, err
	}
	return float64(rep.Records) / took.Seconds(), nil
}

func writeBatches(ctx context.Context, dir string, n, eventSize, perBatch int, each *time.Duration) ([]age.Identity, error) {
	s, err := checkpoint.NewSigner(checkpoint.Ed25519, make([]byte, 32))
	if err != nil {
		return nil, err
	}
	id, err := age.GenerateHybridIdentity()
	if err != nil {
		return nil, err
	}
	w, err := ledger.Create(posixstore.New(dir), ledger.Options{Recorder: "bench", Signers: []checkpoint.Signer{s}, Recipients: []age.Recipient{id.Recipient()}})
	if err != nil {
		return nil, err
	}
	events := make([][]byte, perBatch)
	for i := range events {
		events[i] = bytes.Repeat([]byte{byte(i)}, eventSize)
	}
	begin := time.Now()
	for left := n; left > 0; left -= perBatch {
		if _, err := w.AppendBatch(ctx, ledger.Entry{Type: ledger.TypeUser, Kind: "events"}, events[:min(left, perBatch)]); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	*each = time.Since(begin) / time.Duration(n)
	return []age.Identity{id}, nil
}

// parts measures what the path of an encrypted event of 350 bytes can't do without: two digests, a cipher's key, an
// encryption.
func parts() []Part {
	const rounds = 200_000
	payload, record := make([]byte, 350), make([]byte, 220)
	key, nonce := make([]byte, 32), make([]byte, 12)
	out := make([]byte, 0, 512)
	each := func(name string, f func()) Part {
		begin := time.Now()
		for range rounds {
			f()
		}
		return Part{name, time.Since(begin) / rounds}
	}
	var sink [32]byte
	seal := func() {
		block, err := aes.NewCipher(key)
		if err != nil {
			return // a key of 32 bytes is one
		}
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			return
		}
		out = gcm.Seal(out[:0], nonce, payload, nil)
	}
	p := []Part{
		each("SHA-256 of a record", func() { sink = sha256.Sum256(record) }),
		each("SHA-256 of the payload", func() { sink = sha256.Sum256(payload) }),
		each("AES-256-GCM of the payload, with its key", seal),
		each("reading the clock twice", func() { begun := time.Now(); _ = time.Since(begun) }),
	}
	_, _ = io.Discard.Write(sink[:])
	return p
}

// Text is the result in Markdown.
func (r *SpeedResult) Text() string {
	rows := [][]string{{"configuration", "N", "median", "P95", "P99", "mean", "bytes an event"}}
	base := map[int]time.Duration{}
	for _, c := range r.Costs {
		if c.Config == configs[0].name {
			base[c.N] = c.Median
		}
	}
	for _, c := range r.Costs {
		med := micro(c.Median)
		if b := base[c.N]; b > 0 && c.Config != configs[0].name {
			med += fmt.Sprintf(" (×%.2f)", float64(c.Median)/float64(b))
		}
		rows = append(rows, []string{c.Config, fmt.Sprint(c.N), med, micro(c.P95), micro(c.P99), micro(c.Mean), fmt.Sprintf("%.0f", c.Bytes)})
	}
	text := table(rows)
	if r.Payload > 0 {
		text += fmt.Sprintf("\nThe event has %.0f bytes in CBOR, %.0f in JSON.\n", r.Payload, r.JSON)
	}
	if b := r.Batch; b != nil {
		text += fmt.Sprintf("\nKernel events of %d bytes in batches: %d ns each, %.1f bytes over their own; verified, opened one by one, at %.2f million a second.\nSingle records without their payloads are verified at %.2f million a second.\n",
			b.Size, b.Each.Nanoseconds(), b.Over, b.Content/1e6, b.Records/1e6)
	}
	for _, p := range r.Parts {
		text += fmt.Sprintf("- %s: %d ns\n", p.Name, p.Each.Nanoseconds())
	}
	return text
}

func micro(d time.Duration) string { return fmt.Sprintf("%.2f µs", float64(d.Nanoseconds())/1000) }
