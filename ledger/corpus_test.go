package ledger_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/ledgertest"
)

var update = flag.Bool("update", false, "make testdata/corpus anew")

const corpusDir = "testdata/corpus"

// vector is a log or a bundle with what a verifier must say of it.
type vector struct {
	Name string `json:"name"`
	What string `json:"what"`
	File string `json:"file"` // .tar: a log's files; .bundle: a bundle
	// What the verifier brings along.
	Log        string   `json:"log,omitempty"`        // identity that the log must have
	Keys       []string `json:"keys,omitempty"`       // verifier keys
	Checkpoint string   `json:"checkpoint,omitempty"` // a pinned checkpoint, as a note
	Identity   bool     `json:"identity,omitempty"`   // with the corpus's age identity
	Payloads   bool     `json:"payloads,omitempty"`
	// What it must say.
	Verdict  ledger.Verdict           `json:"verdict"`
	FirstBad *ledger.FirstBad         `json:"first_bad"`
	Claims   map[string]ledger.Status `json:"claims"`
}

func (v *vector) verify(t *testing.T, dir string, id age.Identity) *ledger.Report {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, v.File))
	if err != nil {
		t.Fatal(err)
	}
	var trust ledger.Trust
	for _, s := range v.Keys {
		k, err := checkpoint.ParseKey(s)
		if err != nil {
			t.Fatal(err)
		}
		trust.Keys = append(trust.Keys, ledger.PublicKey{Alg: k.Alg, Public: k.Public})
	}
	if v.Log != "" {
		b, err := hex.DecodeString(v.Log)
		if err != nil {
			t.Fatal(err)
		}
		trust.LogID = (*ledger.Hash)(b)
	}
	if v.Checkpoint != "" {
		n, err := checkpoint.Parse([]byte(v.Checkpoint))
		if err != nil {
			t.Fatal(err)
		}
		trust.Pinned = []ledger.Pinned{{Checkpoint: n.Checkpoint, Source: "the pinned checkpoint"}}
	}
	if strings.HasSuffix(v.File, ".bundle") {
		bundle, err := ledger.ParseBundle(b)
		if err != nil {
			return ledger.Unreadable(err)
		}
		return bundle.Verify(trust)
	}
	opts := ledger.VerifyOptions{Trust: trust, Payloads: v.Payloads}
	if v.Identity {
		opts.Identities = []age.Identity{id}
	}
	r, err := ledger.Verify(context.Background(), untar(t, b), opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func untar(t *testing.T, b []byte) *ledgertest.Store {
	t.Helper()
	s := ledgertest.New()
	r := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return s
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		s.Set(h.Name, append([]byte{}, data...))
	}
}

func tarOf(t *testing.T, s *ledgertest.Store) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range s.Names() {
		data := s.Bytes(name)
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestCorpus verifies every log and bundle of the committed corpus and compares verdict, first bad record and claims.
func TestCorpus(t *testing.T) {
	if *update {
		t.Skip("making it")
	}
	b, err := os.ReadFile(filepath.Join(corpusDir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	id := corpusIdentity(t)
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			r := v.verify(t, corpusDir, id)
			if r.Verdict != v.Verdict {
				t.Errorf("verdict %s, want %s", r.Verdict, v.Verdict)
			}
			got, want := jsonOf(r.FirstBad), jsonOf(v.FirstBad)
			if got != want {
				t.Errorf("first bad %s, want %s", got, want)
			}
			r.Claims.Each(func(name string, c *ledger.Claim) {
				if c.Status != v.Claims[name] {
					t.Errorf("%s %s (%v), want %s", name, c.Status, c.Reasons, v.Claims[name])
				}
			})
		})
	}
}

func jsonOf(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func corpusIdentity(t *testing.T) age.Identity {
	t.Helper()
	f, err := os.Open(filepath.Join(corpusDir, "identity.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ids, err := age.ParseIdentities(f)
	if err != nil {
		t.Fatal(err)
	}
	return ids[0]
}

// TestCorpusIsGenerated makes the corpus anew and compares it with what is committed. With -update it writes it.
func TestCorpusIsGenerated(t *testing.T) {
	dir := t.TempDir()
	if *update {
		dir = corpusDir
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	g := newGenerator(t, dir)
	g.logs()
	g.bundles()
	g.finish()
	if *update {
		return
	}
	want, err := os.ReadDir(corpusDir)
	if err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	name := func(e os.DirEntry) string { return e.Name() }
	if a, b := names(made, name), names(want, name); !slices.Equal(a, b) {
		t.Fatalf("the generator makes\n%v\ncommitted is\n%v", a, b)
	}
	for _, e := range want {
		a, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(corpusDir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s isn't what the generator makes: run go test -run TestCorpusIsGenerated -update", e.Name())
		}
	}
}

func names[T any](list []T, f func(T) string) (out []string) {
	for _, e := range list {
		out = append(out, f(e))
	}
	return out
}

// generator makes the corpus. Everything random comes from one seed.
type generator struct {
	t       *testing.T
	dir     string
	id      *age.X25519Identity
	signers []checkpoint.Signer // Ed25519 and ML-DSA-44
	next    []checkpoint.Signer // who take over in the log with a rotation
	vectors []vector
}

func newGenerator(t *testing.T, dir string) *generator {
	cryptotest.SetGlobalRandom(t, 42)
	g := &generator{t: t, dir: dir, id: identity(t)}
	g.signers = []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 1), seedSigner(t, checkpoint.MLDSA44, 2)}
	g.next = []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 3)}
	g.write("identity.txt", []byte(g.id.String()+"\n"))
	return g
}

func (g *generator) write(name string, b []byte) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, name), b, 0o644); err != nil {
		g.t.Fatal(err)
	}
}

func (g *generator) finish() {
	b, err := json.MarshalIndent(g.vectors, "", " ")
	if err != nil {
		g.t.Fatal(err)
	}
	g.write("index.json", append(b, '\n'))
}

func (g *generator) key(s checkpoint.Signer) string {
	k := checkpoint.Key{Name: "recorder"}
	k.Alg, k.Public = s.Public()
	return k.String()
}

// expect is what the author of a vector claims; everything else the generator notes as found.
type expect struct {
	verdict ledger.Verdict
	seq     int64 // of the first bad record; -1: none
	exact   bool
	claim   string // "name status" that must be among the claims
}

// add notes a vector and makes sure that the verifier says what its author expects.
func (g *generator) add(v vector, data []byte, want expect) {
	g.t.Helper()
	g.write(v.File, data)
	if v.Keys == nil {
		v.Keys = []string{g.key(g.signers[0])}
	} else if len(v.Keys) == 0 {
		v.Keys = nil
	}
	r := v.verify(g.t, g.dir, g.id)
	v.Verdict, v.FirstBad, v.Claims = r.Verdict, r.FirstBad, map[string]ledger.Status{}
	r.Claims.Each(func(name string, c *ledger.Claim) { v.Claims[name] = c.Status })
	if r.Verdict != want.verdict {
		g.t.Errorf("%s: verdict %s, want %s: %s", v.Name, r.Verdict, want.verdict, jsonOf(r))
	}
	switch {
	case want.seq < 0 && r.FirstBad != nil, want.seq >= 0 && (r.FirstBad == nil || r.FirstBad.Seq != uint64(want.seq) || r.FirstBad.Exact != want.exact):
		g.t.Errorf("%s: first bad %s, want record %d, exact %v", v.Name, jsonOf(r.FirstBad), want.seq, want.exact)
	}
	if name, status, _ := strings.Cut(want.claim, " "); want.claim != "" && string(v.Claims[name]) != status {
		g.t.Errorf("%s: %s is %s, want %s", v.Name, name, v.Claims[name], status)
	}
	g.vectors = append(g.vectors, v)
}

// log adds a vector of a log.
func (g *generator) log(name, what string, s *ledgertest.Store, v vector, want expect) {
	g.t.Helper()
	v.Name, v.What, v.File = name, what, name+".tar"
	g.add(v, tarOf(g.t, s), want)
}
