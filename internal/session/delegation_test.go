package session

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/delegation"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"

	"filippo.io/age"
)

// worker is an agent that others hand work to. It forges a receipt of its own, and says what it saw of the caller's.
const worker = `
import http.server
class H(http.server.BaseHTTPRequestHandler):
    def answer(self):
        n = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(n)
        self.send_response(200)
        self.send_header("Bodycam-Delegation", "forged")
        self.end_headers()
        self.wfile.write(b"did " + body + b" " + str(self.headers.get("Bodycam-Delegation")).encode())
    do_GET = do_POST = answer
http.server.HTTPServer(("127.0.0.1", 8080), H).serve_forever()
`

// asker hands two things over and forges a receipt of its own.
const asker = `
import urllib.request
for body in (b"one", b"two"):
    r = urllib.request.Request("http://worker.example/task", data=body, headers={"Bodycam-Delegation": "forged"})
    with urllib.request.urlopen(r) as a:
        print(a.read().decode(), a.headers.get("Bodycam-Delegation"))
with urllib.request.urlopen("http://worker.example/.well-known/agent-card.json") as a:
    print(a.status)
`

func sealing(t *testing.T, seed byte) (*store.Sealing, []age.Identity) {
	t.Helper()
	s, err := checkpoint.NewSigner(checkpoint.Ed25519, []byte(strings.Repeat(string(rune(seed)), 32)))
	if err != nil {
		t.Fatal(err)
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return &store.Sealing{Signers: []checkpoint.Signer{s}, Recipients: []age.Recipient{id.Recipient()}, Recorder: string(rune(seed))}, []age.Identity{id}
}

func shown(t *testing.T, r *store.Run) *delegation.Side {
	t.Helper()
	lr, err := r.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	defer lr.Close()
	s, err := delegation.FromLog(lr, filepath.Base(r.Dir))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDelegation: one sandboxed agent hands work to another over HTTP; their recorders sign for it, and neither agent sees,
// forges or omits a receipt.
func TestDelegation(t *testing.T) {
	needRoot(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ready, finished := make(chan struct{}), make(chan *store.Run)
	b := options(t, []string{"python3", "-c", worker}, nil)
	var ids []age.Identity
	b.Sealing, ids = sealing(t, 'b')
	b.Identities = ids
	b.Service = &Service{Port: 8080, Idle: time.Millisecond, Published: true, Use: func(ctx context.Context, in *Inside) error {
		close(ready)
		return in.Publish(ctx, l, 2)
	}}
	go func() {
		r, err := Run(context.Background(), b)
		if err != nil {
			t.Error(err)
		}
		finished <- r
	}()
	select {
	case <-ready:
	case r := <-finished:
		t.Fatalf("it ended: %+v", r.Info.Phases)
	}
	a := options(t, []string{"python3", "-c", asker}, func(p *kind.Plan) { p.Network.Mode = "none" })
	a.Sealing, a.Identities = sealing(t, 'a')
	a.Delegation.To = []Delegate{{Host: "worker.example", Port: 80, URL: "http://" + l.Addr().String(), Scope: "read only"}}
	ra, err := Run(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	rb := <-finished
	out, err := os.ReadFile(filepath.Join(ra.Dir, store.AgentDir, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(out), "did one None None\ndid two None None\n") {
		t.Errorf("the agents saw of it: %q", out)
	}
	j := delegation.Judge(nil, shown(t, ra), shown(t, rb))
	if j.Status != delegation.Verified || len(j.Delegations) != 2 || j.Delegations[0].Scope != "read only" || j.Delegations[0].Name != "worker.example:80" {
		t.Errorf("%s: %+v", j.Status, j.Delegations)
	}
	for _, r := range []*store.Run{ra, rb} {
		report, err := ledger.Verify(t.Context(), os.DirFS(r.Dir), ledger.VerifyOptions{Trust: ledger.Trust{Self: true}, Identities: r.Identities})
		if err != nil || report.Verdict != ledger.Verified {
			t.Errorf("%s: %+v, %v", r.Dir, report, err)
		}
	}
}

// TestDelegatedBy: a run that was asked for by a receipt accepts it first, and its actions go back to it; a second run
// can't be told from a replay.
func TestDelegatedBy(t *testing.T) {
	needRoot(t)
	a := options(t, []string{"true"}, nil)
	a.Sealing, a.Identities = sealing(t, 'a')
	ra, err := Run(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	asked, err := ra.Delegate(t.Context(), ledger.Options{Signers: a.Sealing.Signers, Recipients: a.Sealing.Recipients}, delegation.Terms{To: "b", Scope: "count the files"})
	if err != nil {
		t.Fatal(err)
	}
	var runs []*delegation.Side
	for i := range 2 {
		b := options(t, []string{"true"}, nil)
		b.Sealing, b.Identities = sealing(t, 'b')
		var answer *delegation.Receipt
		b.Delegation = Delegation{By: asked, Accepted: func(r *delegation.Receipt) error { answer = r; return nil }}
		rb, err := Run(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if answer == nil {
			t.Fatal("nothing was accepted")
		}
		if i == 0 {
			err = ra.Extend(ledger.Options{Signers: a.Sealing.Signers, Recipients: a.Sealing.Recipients}, func(p *delegation.Party) error {
				return p.Acknowledge(t.Context(), asked, answer)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		runs = append(runs, shown(t, rb))
	}
	if j := delegation.Judge(nil, shown(t, ra), runs[0]); j.Status != delegation.Verified {
		t.Errorf("%+v", j)
	}
	if j := delegation.Judge(nil, shown(t, ra), runs[1]); j.Status != delegation.Replayed {
		t.Errorf("%+v", j)
	}
	edited := *asked
	edited.Time++
	b := options(t, []string{"true"}, nil)
	b.Sealing, b.Identities = sealing(t, 'b')
	b.Delegation.By = &edited
	if _, err := Run(t.Context(), b); err == nil || !strings.Contains(fmt.Sprint(err), "signature") {
		t.Errorf("a receipt that was edited: %v", err)
	}
}

// TestPublished: what a stranger sends to a published service. Nothing but a fresh receipt for this very body is accepted.
func TestPublished(t *testing.T) {
	needRoot(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	seal, _ := sealing(t, 'c')
	dir := t.TempDir()
	w, err := ledger.Create(posixstore.New(dir), ledger.Options{Name: "client", Signers: seal.Signers, Clear: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	client := delegation.New(w, os.DirFS(dir), seal.Signers)
	defer client.Close()
	ask := func(body string) string {
		t.Helper()
		subject := ledger.Hash(sha256.Sum256([]byte(body)))
		r, err := client.Request(t.Context(), delegation.Terms{To: "b", Scope: "x", Subject: &subject})
		if err != nil {
			t.Fatal(err)
		}
		return r.HeaderValue()
	}
	post := func(body, header string) (status int, answer, receipt string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String(), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			req.Header.Set(delegation.Header, header)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b), resp.Header.Get(delegation.Header)
	}
	b := options(t, []string{"python3", "-c", worker}, nil)
	b.Sealing, b.Identities = sealing(t, 'b')
	b.Service = &Service{Port: 8080, Idle: time.Millisecond, Published: true, Use: func(ctx context.Context, in *Inside) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error)
		go func() { ended <- in.Publish(ctx, l, 0) }()
		good := ask("one")
		for _, c := range []struct {
			name, body, header string
			status             int
			accepted           bool
		}{
			{"nothing", "one", "", 200, false},
			{"garbage", "one", "no receipt", 200, false},
			{"an edited one", "one", "pAAA" + good[4:], 200, false},
			{"one for another body", "other", ask("this"), 403, false},
			{"a good one", "one", good, 200, true},
			{"the same again", "one", good, 403, false},
			{"a long body", strings.Repeat("x", mostBound+10), ask("long"), 403, false}, // too long to tell
		} {
			status, answer, receipt := post(c.body, c.header)
			if status != c.status || (receipt != "") != c.accepted || status == 200 && !strings.HasPrefix(answer, "did "+c.body[:3]) {
				t.Errorf("%s: status %d, %.60q, receipt %.20q", c.name, status, answer, receipt)
			}
		}
		stop()
		return <-ended
	}}
	r, err := Run(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	j := delegation.Judge(nil, shown(t, r))
	asserted := 0
	for _, d := range j.Delegations {
		if d.Status == delegation.Asserted {
			asserted++
		}
	}
	if len(j.Delegations) != 3 || asserted != 2 {
		t.Errorf("%d asserted: %+v", asserted, j.Delegations)
	}
}
