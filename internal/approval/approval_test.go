package approval

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

func key(t *testing.T, name string, alg checkpoint.Algorithm, seed byte) (checkpoint.Key, checkpoint.Signer) {
	t.Helper()
	s, err := checkpoint.NewSigner(alg, bytes.Repeat([]byte{seed}, 32))
	if err != nil {
		t.Fatal(err)
	}
	k := checkpoint.Key{Name: name}
	k.Alg, k.Public = s.Public()
	return k, s
}

// recorded makes a run with these actions, and returns it with what it takes to go on with its ledger.
func recorded(t *testing.T, actions ...func(log ledger.Hash) *bodycam.Action) (*store.Run, ledger.Options) {
	t.Helper()
	_, signer := key(t, "log", checkpoint.Ed25519, 1)
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	w, err := store.Create(dir, bodycam.Run{ID: "run"}, &store.Sealing{Signers: []checkpoint.Signer{signer}, Recipients: []age.Recipient{id.Recipient()}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "ledger", "genesis"))
	if err != nil {
		t.Fatal(err)
	}
	gen, err := ledger.ParseGenesis(b)
	if err != nil {
		t.Fatal(err)
	}
	var errs []error
	for _, a := range actions {
		errs = append(errs, w.Action(a(gen.ID())))
	}
	if err := errors.Join(append(errs, w.Update(func(r *bodycam.Run) { r.Ended = time.Now() }), w.Close())...); err != nil {
		t.Fatal(err)
	}
	r, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	r.Identities = []age.Identity{id}
	return r, ledger.Options{Signers: []checkpoint.Signer{signer}, Recipients: []age.Recipient{id.Recipient()}}
}

func read(t *testing.T, r *store.Run, known ...checkpoint.Key) []Item {
	t.Helper()
	lr, err := r.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	defer lr.Close()
	items, err := Read(lr, known)
	if err != nil {
		t.Fatal(err)
	}
	return items
}

// TestCalls: an approval of a call is signed for that log, tool, arguments, decision and prompt, or it is asserted.
func TestCalls(t *testing.T) {
	alice, sign := key(t, "alice@example.org", checkpoint.MLDSA44, 5)
	approved := func(change func(*bodycam.Action)) func(ledger.Hash) *bodycam.Action {
		return func(log ledger.Hash) *bodycam.Action {
			a := &bodycam.Action{Intent: bodycam.Intent{Tool: "deploy", Args: json.RawMessage(`{"to":"prod"}`)}}
			a.Approval = &bodycam.Approval{Decision: Allow, Prompt: "deploy to prod?", Time: 17}
			if err := Sign(a.Approval, log, OfCall(&a.Intent), alice, sign); err != nil {
				t.Fatal(err)
			}
			change(a)
			return a
		}
	}
	changes := map[string]func(*bodycam.Action){
		"":          func(*bodycam.Action) {},
		"args":      func(a *bodycam.Action) { a.Intent.Args = json.RawMessage(`{"to":"test"}`) },
		"tool":      func(a *bodycam.Action) { a.Intent.Tool = "destroy" },
		"decision":  func(a *bodycam.Action) { a.Approval.Decision = Deny },
		"prompt":    func(a *bodycam.Action) { a.Approval.Prompt = "harmless?" },
		"time":      func(a *bodycam.Action) { a.Approval.Time++ },
		"approver":  func(a *bodycam.Action) { a.Approval.Approver = "bob" },
		"signature": func(a *bodycam.Action) { a.Approval.Signature = nil },
		"bytes":     func(a *bodycam.Action) { a.Approval.Signature[3] ^= 1 },
	}
	var list []func(ledger.Hash) *bodycam.Action
	names := []string{""}
	for name := range changes {
		if name != "" {
			names = append(names, name)
		}
	}
	for _, name := range names {
		list = append(list, approved(changes[name]))
	}
	other := approved(changes[""])(ledger.Hash{9}) // signed for another log
	list = append(list, func(ledger.Hash) *bodycam.Action { return other })
	names = append(names, "another log")
	r, _ := recorded(t, list...)
	for i, it := range read(t, r, alice) {
		if want := map[bool]Status{true: Signed, false: Asserted}[names[i] == ""]; it.Status != want {
			t.Errorf("%q changed: it is %s, want %s", names[i], it.Status, want)
		}
	}
	if items := read(t, r); slices.ContainsFunc(items, func(it Item) bool { return it.Status != Asserted }) || len(items) != len(names) {
		t.Errorf("without a known key: %+v", items)
	}
	mallory, _ := key(t, "alice@example.org", checkpoint.Ed25519, 6)
	if items := read(t, r, mallory); items[0].Status != Asserted || !strings.Contains(items[0].Why, "isn't that of") {
		t.Errorf("another key under that name: %+v", items[0])
	}
}

// TestRecords: an approval of a record is of that record of that log.
func TestRecords(t *testing.T) {
	alice, sign := key(t, "alice", checkpoint.Ed25519, 5)
	r, opts := recorded(t, func(ledger.Hash) *bodycam.Action { return &bodycam.Action{Intent: bodycam.Intent{Tool: "a"}} })
	lr, err := r.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	gen := lr.Genesis()
	rec, err := lr.Record(1)
	if err != nil {
		t.Fatal(err)
	}
	lr.Close()
	approve := func(seq uint64, digest ledger.Hash) {
		t.Helper()
		a := Record{Of: seq, Digest: hexOf(digest), Approval: bodycam.Approval{Decision: Deny, Prompt: "?"}}
		if err := Sign(&a.Approval, gen.ID(), OfRecord(seq, digest), alice, sign); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Append(t.Context(), opts, ledger.Entry{Type: store.RecordApproval, Kind: Deny, Payload: b}); err != nil {
			t.Fatal(err)
		}
	}
	approve(1, rec.Digest)
	approve(2, rec.Digest)
	approve(1000, rec.Digest)
	if _, err := r.Append(t.Context(), opts, ledger.Entry{Type: store.RecordApproval, Kind: Allow, Payload: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, it := range read(t, r, alice) {
		got = append(got, string(it.Status)+" "+it.Decision)
	}
	if want := []string{"signed deny", "asserted deny", "asserted deny", "asserted "}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func hexOf(h ledger.Hash) string { return strings.Fields(OfRecord(0, h))[2] }

func TestDelegatedCalls(t *testing.T) {
	r, _ := recorded(t, func(ledger.Hash) *bodycam.Action {
		return &bodycam.Action{Intent: bodycam.Intent{Tool: "a"}, Delegation: &bodycam.Delegation{Requester: "planner", Scope: "x"}}
	}, func(ledger.Hash) *bodycam.Action {
		return &bodycam.Action{Intent: bodycam.Intent{Tool: "a"}, Delegation: &bodycam.Delegation{Requester: "planner", Scope: "x", Signature: []byte("mine"), Log: "00", Parent: "00"}}
	})
	items := read(t, r)
	if len(items) != 2 || items[0].Why != "it isn't signed" || !strings.Contains(items[1].Why, "no receipt") {
		t.Errorf("%+v", items)
	}
	if got := Summary(items); got != "0 delegations signed, 2 only asserted" {
		t.Errorf("%s", got)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"record":17,"digest":"00","approver":"alice","decision":"allow","time":1,"signature":"AA==","key":"k"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(ledger.Hash{}, nil)
		r.record(&ledger.ReadRecord{Record: ledger.Record{Type: store.RecordApproval}}, b)
		if len(r.items) != 1 || r.items[0].Status != Asserted {
			t.Errorf("%+v", r.items)
		}
	})
}
