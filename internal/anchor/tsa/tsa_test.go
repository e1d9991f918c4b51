package tsa

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

const config = `
[tsa]
default_tsa = t
[t]
serial = serial
crypto_device = builtin
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
accuracy = secs:1
ess_cert_id_alg = sha256
[ca]
basicConstraints = critical,CA:true
keyUsage = critical,keyCertSign
[stamp]
extendedKeyUsage = critical,timeStamping
keyUsage = critical,digitalSignature
[req]
distinguished_name = dn
[dn]
`

func openssl(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("openssl", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// authority is OpenSSL behind HTTP.
func authority(t *testing.T) (handler http.Handler, root string) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl to be a time stamp authority with")
	}
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "conf"), []byte(config), 0o600), os.WriteFile(filepath.Join(dir, "serial"), []byte("01\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	openssl(t, dir, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "root.key", "-subj", "/CN=Root", "-days", "100", "-config", "conf", "-extensions", "ca", "-out", "root.pem")
	openssl(t, dir, "req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", "tsa.key", "-subj", "/CN=Stamps", "-config", "conf", "-out", "tsa.csr")
	openssl(t, dir, "x509", "-req", "-in", "tsa.csr", "-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial", "-days", "100", "-extfile", "conf", "-extensions", "stamp", "-out", "tsa.pem")
	b, err := os.ReadFile(filepath.Join(dir, "root.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := io.ReadAll(r.Body)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "q"), q, 0o600)
		}
		if err == nil {
			cmd := exec.Command("openssl", "ts", "-reply", "-config", "conf", "-queryfile", "q", "-signer", "tsa.pem", "-inkey", "tsa.key", "-out", "r")
			cmd.Dir = dir
			err = cmd.Run()
		}
		var answer []byte
		if err == nil {
			answer, err = os.ReadFile(filepath.Join(dir, "r"))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/timestamp-reply")
		_, _ = w.Write(answer)
	}), string(b)
}

func TestSuite(t *testing.T) {
	anchortest.Suite(t, func(t *testing.T, _ *anchortest.Log) *anchortest.Fixture {
		h, pem := authority(t)
		var down atomic.Bool
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if down.Load() {
				http.Error(w, "down", http.StatusServiceUnavailable)
				return
			}
			h.ServeHTTP(w, r)
		}))
		t.Cleanup(web.Close)
		root := proof.Root{Kind: proof.KindTSA, Certificates: pem, TSAPolicy: "1.2.3.4.1", Accuracy: 1}
		return &anchortest.Fixture{
			Mechanism: &Mechanism{URL: web.URL, Root: &root},
			Root:      func() proof.Root { return root },
			Down:      func(d bool) { down.Store(d) },
		}
	})
}

// TestLies: what an authority says that isn't an answer, or not from whom it should be, is no anchor.
func TestLies(t *testing.T) {
	h, _ := authority(t)
	_, other := authority(t)
	for name, c := range map[string]struct {
		handler http.Handler
		want    string
	}{
		"garbage":     {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("yes")) }), "answer"},
		"rejection":   {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{0x30, 5, 0x30, 3, 2, 1, 2}) }), "refused: status 2"},
		"stranger":    {h, "doesn't lead to a root"},
		"endless":     {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }), "answer"},
		"not allowed": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "pay", http.StatusPaymentRequired) }), "402"},
	} {
		t.Run(name, func(t *testing.T) {
			web := httptest.NewServer(c.handler)
			defer web.Close()
			log := anchortest.NewLog()
			log.Grow("x")
			head, err := log.Head()
			if err != nil {
				t.Fatal(err)
			}
			m := &Mechanism{URL: web.URL, Root: &proof.Root{Kind: proof.KindTSA, Certificates: other}}
			ticket, err := m.Prepare(t.Context(), head, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Advance(t.Context(), head, ticket); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q in it", err, c.want)
			}
		})
	}
}
