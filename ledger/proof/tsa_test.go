package proof

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
)

// authority is a time stamp authority made with OpenSSL: a root, an intermediate and certificates to stamp with.
type authority struct {
	dir  string
	root string // PEM
}

const opensslConfig = `
[tsa]
default_tsa = t
[t]
serial = serial
crypto_device = builtin
signer_digest = sha256
default_policy = 1.2.3.4.1
other_policies = 1.2.3.4.2
digests = sha256, sha512
accuracy = secs:1, millisecs:500
ordering = yes
tsa_name = yes
ess_cert_id_chain = no
ess_cert_id_alg = sha256
[ca]
basicConstraints = critical,CA:true
keyUsage = critical,keyCertSign
[good]
extendedKeyUsage = critical,timeStamping
keyUsage = critical,digitalSignature
[lax]
extendedKeyUsage = timeStamping
[broad]
extendedKeyUsage = critical,timeStamping,serverAuth
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

func newAuthority(t *testing.T) *authority {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl to be a time stamp authority with")
	}
	a := &authority{dir: t.TempDir()}
	if err := errors.Join(os.WriteFile(filepath.Join(a.dir, "conf"), []byte(opensslConfig), 0o600), os.WriteFile(filepath.Join(a.dir, "serial"), []byte("01\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	key := func(name string) {
		openssl(t, a.dir, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", name+".key")
	}
	key("root")
	openssl(t, a.dir, "req", "-x509", "-new", "-key", "root.key", "-subj", "/CN=Root", "-days", "3650", "-config", "conf", "-extensions", "ca", "-out", "root.pem")
	issue := func(name, ca, section string) {
		key(name)
		openssl(t, a.dir, "req", "-new", "-key", name+".key", "-subj", "/CN="+name, "-config", "conf", "-out", name+".csr")
		openssl(t, a.dir, "x509", "-req", "-in", name+".csr", "-CA", ca+".pem", "-CAkey", ca+".key", "-CAcreateserial", "-days", "3650", "-extfile", "conf", "-extensions", section, "-out", name+".pem")
	}
	issue("middle", "root", "ca")
	for _, section := range []string{"good", "lax", "broad"} {
		issue(section, "middle", section)
	}
	b, err := os.ReadFile(filepath.Join(a.dir, "root.pem"))
	if err != nil {
		t.Fatal(err)
	}
	a.root = string(b)
	return a
}

// stamp answers a request as the authority, with one of its certificates.
func (a *authority) stamp(t *testing.T, request []byte, signer string) []byte {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, "q"), request, 0o600); err != nil {
		t.Fatal(err)
	}
	openssl(t, a.dir, "ts", "-reply", "-config", "conf", "-queryfile", "q", "-signer", signer+".pem", "-inkey", signer+".key", "-chain", "middle.pem", "-out", "r")
	b, err := os.ReadFile(filepath.Join(a.dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTimeStamp(t *testing.T) {
	a := newAuthority(t)
	w := newWorld(t, "")
	note := w.note(t, 3, 3)
	nonce, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		t.Fatal(err)
	}
	request, err := TimeStampRequest(note.Text(), nonce)
	if err != nil {
		t.Fatal(err)
	}
	answer := a.stamp(t, request, "good")
	token, err := TimeStampToken(answer, note.Text(), nonce)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TimeStampToken(answer, note.Text(), new(big.Int).Add(nonce, big.NewInt(1))); err == nil {
		t.Error("an answer with another nonce was accepted")
	}
	if _, err := TimeStampToken(answer, w.note(t, 3, 4).Text(), nonce); err == nil {
		t.Error("a stamp of something else was accepted")
	}
	judge := func(root Root, token []byte) Attestation {
		e := &Evidence{Kind: KindTSA, Note: note, Data: token}
		m := &Manifest{Roots: map[string]Root{"tsa": root}}
		return Judge(testOrigin, []ledger.Anchor{{Kind: KindTSA, Data: e.Append(nil)}}, m).Attestations[0]
	}
	root := Root{Kind: KindTSA, Certificates: a.root, TSAPolicy: "1.2.3.4.1", Accuracy: 2}
	got := judge(root, token)
	if got.Status != ledger.StatusVerified || got.Time == nil || time.Since(*got.Time).Abs() > time.Minute {
		t.Fatalf("%+v", got)
	}
	other := newAuthority(t)
	for _, c := range []struct {
		name   string
		root   Root
		signer string
		status ledger.Status
		why    string
	}{
		{"foreign root", Root{Kind: KindTSA, Certificates: other.root}, "good", ledger.StatusUnverifiable, "doesn't lead to a root"},
		{"other policy", Root{Kind: KindTSA, Certificates: a.root, TSAPolicy: "1.2.3.4.2"}, "good", ledger.StatusTampered, "under policy"},
		{"too coarse", Root{Kind: KindTSA, Certificates: a.root, Accuracy: 1}, "good", ledger.StatusTampered, "accuracy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := judge(c.root, token); got.Status != c.status || !strings.Contains(got.Why, c.why) {
				t.Errorf("%+v", got)
			}
		})
	}
	// OpenSSL itself refuses to stamp with such certificates.
	for _, signer := range []string{"lax", "broad"} {
		c, err := os.ReadFile(filepath.Join(a.dir, signer+".pem"))
		if err != nil {
			t.Fatal(err)
		}
		if err := onlyForTimeStamps(parseOne(t, c)); err == nil {
			t.Errorf("a certificate for more than stamping (%s) was accepted", signer)
		}
	}
	t.Run("mutations", func(t *testing.T) {
		for i := range token {
			b := bytes.Clone(token)
			b[i] ^= 0x10
			if got := judge(root, b); got.Status == ledger.StatusVerified {
				ts, err := parseToken(b)
				// What isn't signed may change: spare certificates, and the CMS's own list of digests.
				if err != nil || !bytes.Equal(ts.content, mustToken(t, token).content) || !bytes.Equal(ts.signer.Attrs.FullBytes, mustToken(t, token).signer.Attrs.FullBytes) {
					t.Fatalf("with byte %d changed it was verified", i)
				}
			}
		}
		for n := range len(token) {
			if got := judge(root, token[:n]); got.Status == ledger.StatusVerified {
				t.Fatalf("cut to %d bytes it was verified", n)
			}
		}
	})
}

func mustToken(t *testing.T, b []byte) *timeStamp {
	t.Helper()
	ts, err := parseToken(b)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

func parseOne(t *testing.T, b []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(b)
	if block == nil {
		t.Fatal("no PEM")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
