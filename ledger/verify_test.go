package ledger_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
)

func smallLog(t *testing.T, id *age.X25519Identity) (dir string, opts ledger.Options) {
	t.Helper()
	dir = t.TempDir()
	opts = ledger.Options{
		Signers:    []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 1)},
		Recipients: []age.Recipient{id.Recipient()}, EpochRecords: 10,
	}
	w, err := ledger.Create(posixstore.New(dir), opts)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 95 {
		if _, err := w.Append(context.Background(), ledger.Entry{Type: ledger.TypeUser, Kind: "test", Payload: payload(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, opts
}

func verify(t *testing.T, dir string, opts ledger.VerifyOptions) *ledger.Report {
	t.Helper()
	r, err := ledger.Verify(context.Background(), os.DirFS(dir), opts)
	if err != nil {
		t.Fatal(err)
	}
	if testing.Verbose() {
		b, _ := json.MarshalIndent(r, "", "  ")
		t.Logf("%s", b)
	}
	return r
}

func TestVerify(t *testing.T) {
	id := identity(t)
	dir, _ := smallLog(t, id)
	_, pub := seedSigner(t, checkpoint.Ed25519, 1).Public()
	trust := ledger.Trust{Keys: []ledger.PublicKey{{Alg: checkpoint.Ed25519, Public: pub}}}
	if r := verify(t, dir, ledger.VerifyOptions{Trust: trust, Identities: []age.Identity{id}, Require: []string{"content"}}); r.Verdict != ledger.Verified || r.Opened != 95 {
		t.Fatalf("verdict %s, %d opened", r.Verdict, r.Opened)
	}
	if r := verify(t, dir, ledger.VerifyOptions{}); r.Verdict != ledger.Incomplete || r.Claims.Identity.Status != ledger.StatusUnverifiable {
		t.Fatalf("without a root: %s", r.Verdict)
	}
	name := filepath.Join(dir, "ledger", "00000000.log")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.LastIndex(b, []byte("test"))
	b[i] = 'T'
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r := verify(t, dir, ledger.VerifyOptions{Trust: trust})
	if r.Verdict != ledger.Tampered || r.FirstBad == nil || r.FirstBad.Seq != 95 || !r.FirstBad.Exact {
		t.Fatalf("verdict %s, first bad %+v", r.Verdict, r.FirstBad)
	}
}
