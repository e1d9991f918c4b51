package ledger_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
)

// action is an event of the workload of the Agent Flight Recorder's evaluation: eight semantic fields, about 350
// bytes in CBOR.
type action struct {
	Intent struct {
		Tool string         `json:"tool"`
		Args map[string]any `json:"args"`
	} `json:"intent"`
	Policy struct {
		Engine string `json:"engine"`
		Rule   string `json:"rule"`
		Result string `json:"result"`
	} `json:"policy"`
	Approval struct {
		Required bool   `json:"required"`
		By       string `json:"by,omitempty"`
	} `json:"approval"`
	Execution struct {
		Start  int64  `json:"start"`
		End    int64  `json:"end"`
		Code   int64  `json:"code"`
		Output []byte `json:"output"`
	} `json:"execution"`
	Effects struct {
		Kind     string `json:"kind"`
		Resource string `json:"resource"`
		Hash     []byte `json:"hash"`
	} `json:"effects"`
	Context struct {
		Sources []string `json:"sources"`
		Hash    []byte   `json:"hash"`
	} `json:"context"`
	Code struct {
		Commit string `json:"commit"`
		Image  string `json:"image"`
	} `json:"code"`
	Delegation struct {
		From  string `json:"from"`
		To    string `json:"to"`
		Scope string `json:"scope"`
	} `json:"delegation"`
}

var tools = []string{"file_read", "file_write", "shell", "api", "db_query", "retrieval", "code_exec", "approval_gate"}

func actions(n int) []action {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]action, n)
	for i := range out {
		h := make([]byte, 64)
		for j := range h {
			h[j] = byte(r.Uint32())
		}
		a := &out[i]
		a.Intent.Tool = tools[i%8]
		path := fmt.Sprintf("/srv/repo/pkg/mod%d/file%d.go", i%17, i)
		a.Intent.Args = map[string]any{"path": path, "mode": "rw", "limit": int64(i % 1000)}
		a.Policy.Engine, a.Policy.Rule, a.Policy.Result = "cedar", fmt.Sprintf("allow-workspace-%d", i%9), "allow"
		a.Approval.Required, a.Approval.By = i%8 == 7, "alice@example.org"
		a.Execution.Start, a.Execution.End, a.Execution.Output = 1790000000000000000+int64(i), 1790000000001234567+int64(i), h[:32]
		a.Effects.Kind, a.Effects.Resource, a.Effects.Hash = "file.write", path, h[32:]
		a.Context.Sources, a.Context.Hash = []string{"user", "tool:retrieval"}, h[:32]
		a.Code.Commit, a.Code.Image = "0f3c9a7be2d14c55a0b1", "sha256:aa11"
		a.Delegation.From, a.Delegation.To, a.Delegation.Scope = "agent-a", "agent-b", "repo:write"
	}
	return out
}

func (a *action) appendCBOR(b []byte) []byte {
	b = dcbor.AppendMap(b, 8)
	b = dcbor.AppendMap(append(b, 1), 2)
	b = dcbor.AppendText(append(b, 1), a.Intent.Tool)
	b = appendArgs(append(b, 2), a.Intent.Args)
	b = dcbor.AppendMap(append(b, 2), 3)
	b = dcbor.AppendText(append(b, 1), a.Policy.Engine)
	b = dcbor.AppendText(append(b, 2), a.Policy.Rule)
	b = dcbor.AppendText(append(b, 3), a.Policy.Result)
	b = dcbor.AppendMap(append(b, 3), 2)
	b = dcbor.AppendBool(append(b, 1), a.Approval.Required)
	b = dcbor.AppendText(append(b, 2), a.Approval.By)
	b = dcbor.AppendMap(append(b, 4), 4)
	b = dcbor.AppendInt(append(b, 1), a.Execution.Start)
	b = dcbor.AppendInt(append(b, 2), a.Execution.End)
	b = dcbor.AppendInt(append(b, 3), a.Execution.Code)
	b = dcbor.AppendBytes(append(b, 4), a.Execution.Output)
	b = dcbor.AppendMap(append(b, 5), 3)
	b = dcbor.AppendText(append(b, 1), a.Effects.Kind)
	b = dcbor.AppendText(append(b, 2), a.Effects.Resource)
	b = dcbor.AppendBytes(append(b, 3), a.Effects.Hash)
	b = dcbor.AppendMap(append(b, 6), 2)
	b = dcbor.AppendArray(append(b, 1), len(a.Context.Sources))
	for _, s := range a.Context.Sources {
		b = dcbor.AppendText(b, s)
	}
	b = dcbor.AppendBytes(append(b, 2), a.Context.Hash)
	b = dcbor.AppendMap(append(b, 7), 2)
	b = dcbor.AppendText(append(b, 1), a.Code.Commit)
	b = dcbor.AppendText(append(b, 2), a.Code.Image)
	b = dcbor.AppendMap(append(b, 8), 3)
	b = dcbor.AppendText(append(b, 1), a.Delegation.From)
	b = dcbor.AppendText(append(b, 2), a.Delegation.To)
	return dcbor.AppendText(append(b, 3), a.Delegation.Scope)
}

// appendArgs appends a tool's arguments. Their keys are sorted as CBOR wants it: shorter ones first.
func appendArgs(b []byte, args map[string]any) []byte {
	var room [8]string
	names := room[:0]
	for name := range args {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int {
		if len(x) != len(y) {
			return len(x) - len(y)
		}
		return strings.Compare(x, y)
	})
	b = dcbor.AppendMap(b, len(names))
	for _, name := range names {
		b = dcbor.AppendText(b, name)
		switch v := args[name].(type) {
		case string:
			b = dcbor.AppendText(b, v)
		case int64:
			b = dcbor.AppendInt(b, v)
		}
	}
	return b
}

// benchJSON is the baseline: encoding/json of the action alone, and of a log line with the fields that a record adds.
func benchJSON(b *testing.B, acts []action) {
	type line struct {
		ID       string  `json:"id"`
		Seq      int     `json:"seq"`
		Time     int64   `json:"time"`
		Kind     string  `json:"kind"`
		Recorder string  `json:"recorder"`
		Payload  *action `json:"payload"`
	}
	for _, name := range []string{"json-action", "json-line"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			lat := make([]time.Duration, 0, 1<<20)
			out := bufio.NewWriterSize(io.Discard, 1<<16)
			i := 0
			for b.Loop() {
				a := &acts[i%len(acts)]
				t := time.Now()
				var v any = a
				if name == "json-line" {
					v = &line{"0f8fad5b-d9cb-469f-a165-70867728950e", i, t.UnixNano(), a.Intent.Tool, "recorder-1", a}
				}
				enc, err := json.Marshal(v)
				if err != nil {
					b.Fatal(err)
				}
				out.Write(enc)
				lat = append(lat, time.Since(t))
				i++
			}
			reportLatencies(b, lat)
		})
	}
}

// benchStages adds the parts of the construction one after another, in memory: the action in CBOR and its record, the
// commitment and the chain, the tree.
func benchStages(b *testing.B, acts []action) {
	for stage, name := range []string{"schema", "chain", "merkle"} {
		b.Run(name, func(b *testing.B) {
			lat := make([]time.Duration, 0, 1<<20)
			var buf, enc []byte
			var tree merkle.Range
			r := ledger.Record{Type: ledger.TypeUser, Form: ledger.FormInline | ledger.FormClear}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				t := time.Now()
				a := &acts[i%len(acts)]
				buf = a.appendCBOR(buf[:0])
				r.Seq, r.Kind, r.Wall = uint64(i), a.Intent.Tool, t.UnixNano()
				if stage > 0 {
					r.Commitment = sha256.Sum256(buf)
				}
				enc = r.AppendCBOR(append(enc[:0], 0))
				if stage > 0 {
					r.Prev = sha256.Sum256(enc)
				}
				if stage > 1 {
					tree.Append(r.Prev)
				}
				lat = append(lat, time.Since(t))
				i++
			}
			reportLatencies(b, lat)
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	acts := actions(1000)
	benchJSON(b, acts)
	benchStages(b, acts)
	id := identity(b)
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		opts ledger.Options
	}{
		{"clear", ledger.Options{Clear: true}},
		{"encrypted", ledger.Options{Recipients: []age.Recipient{id.Recipient()}}},
		{"encrypted-hybrid", ledger.Options{Recipients: []age.Recipient{hybrid.Recipient()}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			dir := b.TempDir()
			c.opts.Signers = []checkpoint.Signer{seedSigner(b, checkpoint.Ed25519, 1), seedSigner(b, checkpoint.MLDSA44, 1)}
			w, err := ledger.Create(posixstore.New(dir), c.opts)
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			lat := make([]time.Duration, 0, 1<<20)
			var buf []byte
			payload := 0
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				t := time.Now()
				a := &acts[i%len(acts)]
				buf = a.appendCBOR(buf[:0])
				if _, err := w.Append(ctx, ledger.Entry{Type: ledger.TypeUser, Kind: a.Intent.Tool, Payload: buf}); err != nil {
					b.Fatal(err)
				}
				lat = append(lat, time.Since(t))
				payload += len(buf)
				i++
			}
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
			reportLatencies(b, lat)
			b.ReportMetric(float64(payload)/float64(i), "payload-B")
			b.ReportMetric(float64(dirSize(b, dir))/float64(i), "B/event")
		})
	}
}

func reportLatencies(b *testing.B, lat []time.Duration) {
	slices.Sort(lat)
	q := func(p float64) float64 { return float64(lat[int(p*float64(len(lat)-1))].Nanoseconds()) }
	b.ReportMetric(q(.5), "p50-ns")
	b.ReportMetric(q(.95), "p95-ns")
	b.ReportMetric(q(.99), "p99-ns")
}

func dirSize(b *testing.B, dir string) (n int64) {
	for _, sub := range []string{"ledger", "payload"} {
		list, err := os.ReadDir(dir + "/" + sub)
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range list {
			info, err := e.Info()
			if err != nil {
				b.Fatal(err)
			}
			n += info.Size()
		}
	}
	return n
}

func BenchmarkBatch(b *testing.B) {
	id := identity(b)
	for _, size := range []int{100, 180} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			dir := b.TempDir()
			w, err := ledger.Create(posixstore.New(dir), ledger.Options{
				Signers: []checkpoint.Signer{seedSigner(b, checkpoint.Ed25519, 1)}, Recipients: []age.Recipient{id.Recipient()},
			})
			if err != nil {
				b.Fatal(err)
			}
			const n = 4096
			events := make([][]byte, n)
			for i := range events {
				events[i] = make([]byte, size)
			}
			k := 0
			var lat []time.Duration
			for b.Loop() {
				t := time.Now()
				if _, err := w.AppendBatch(context.Background(), ledger.Entry{Type: ledger.TypeUser, Kind: "kernel"}, events); err != nil {
					b.Fatal(err)
				}
				lat = append(lat, time.Since(t))
				k++
			}
			slices.Sort(lat)
			b.ReportMetric(float64(lat[len(lat)/2].Nanoseconds())/n, "p50-ns/event")
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(dirSize(b, dir))/float64(k*n)-float64(size), "overhead-B")
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	id := identity(b)
	dir := b.TempDir()
	signer := seedSigner(b, checkpoint.Ed25519, 1)
	w, err := ledger.Create(posixstore.New(dir), ledger.Options{Signers: []checkpoint.Signer{signer}, Recipients: []age.Recipient{id.Recipient()}})
	if err != nil {
		b.Fatal(err)
	}
	const n = 200_000
	for range n {
		if _, err := w.Append(context.Background(), ledger.Entry{Type: ledger.TypeUser, Kind: "file_read", Payload: []byte("x")}); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	for _, workers := range []int{1, 0} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			for b.Loop() {
				r, err := ledger.Verify(context.Background(), os.DirFS(dir), ledger.VerifyOptions{Trust: ledger.Trust{Self: true}, Workers: workers})
				if err != nil || r.Verdict != ledger.Verified {
					b.Fatal(r, err)
				}
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkBorder tells appends apart by their place in the epoch: what is in line at its border (sealing, the next
// epoch's key) shows in the median of the first and the last place, whatever else the machine does.
func BenchmarkBorder(b *testing.B) {
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		b.Fatal(err)
	}
	w, err := ledger.Create(posixstore.New(b.TempDir()), ledger.Options{
		Signers: []checkpoint.Signer{seedSigner(b, checkpoint.Ed25519, 1)}, Recipients: []age.Recipient{hybrid.Recipient()}})
	if err != nil {
		b.Fatal(err)
	}
	const places = 100
	var lat [places][]time.Duration
	payload := make([]byte, 350)
	for n := 1; b.Loop(); n++ { // record 0 is the opening
		t := time.Now()
		if _, err := w.Append(context.Background(), ledger.Entry{Type: ledger.TypeUser, Kind: "shell", Payload: payload}); err != nil {
			b.Fatal(err)
		}
		lat[n%places] = append(lat[n%places], time.Since(t))
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	median := func(l []time.Duration) float64 {
		if len(l) == 0 {
			return 0
		}
		slices.Sort(l)
		return float64(l[len(l)/2].Nanoseconds())
	}
	b.ReportMetric(median(lat[0]), "first-ns")
	b.ReportMetric(median(lat[places-1]), "last-ns")
	b.ReportMetric(median(slices.Concat(lat[1:places-1]...)), "other-ns")
}
