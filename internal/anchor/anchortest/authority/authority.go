// Package authority lets OpenSSL be a time stamp authority (RFC 3161) on this machine, for tests and for measuring.
package authority

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// ErrNone tells that there is no OpenSSL here.
var ErrNone = errors.New("no openssl to be a time stamp authority with")

// Policy is the object identifier of the policy that its stamps name. They state an accuracy of one second.
const Policy = "1.2.3.4.1"

const settings = `
[tsa]
default_tsa = t
[t]
serial = serial
crypto_device = builtin
signer_digest = sha256
default_policy = ` + Policy + `
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

// Authority is one, with a root certificate of its own. It answers over HTTP.
type Authority struct {
	Root string // certificate, PEM
	dir  string
	mu   sync.Mutex // OpenSSL keeps the serial number in a file
}

// New makes an authority whose files lie in a folder, which must be there.
func New(dir string) (*Authority, error) {
	if _, err := exec.LookPath("openssl"); err != nil {
		return nil, ErrNone
	}
	a := &Authority{dir: dir}
	for name, text := range map[string]string{"conf": settings, "serial": "01\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("making a time stamp authority: %w", err)
		}
	}
	for _, args := range []string{
		"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout root.key -subj /CN=Root -days 100 -config conf -extensions ca -out root.pem",
		"req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout tsa.key -subj /CN=Stamps -config conf -out tsa.csr",
		"x509 -req -in tsa.csr -CA root.pem -CAkey root.key -CAcreateserial -days 100 -extfile conf -extensions stamp -out tsa.pem",
	} {
		if err := a.openssl(args); err != nil {
			return nil, fmt.Errorf("making a time stamp authority: %w", err)
		}
	}
	root, err := os.ReadFile(filepath.Join(dir, "root.pem"))
	a.Root = string(root)
	return a, err
}

func (a *Authority) openssl(args string) error {
	cmd := exec.Command("openssl", strings.Fields(args)...)
	cmd.Dir = a.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("openssl %s: %w: %s", args, err, out)
	}
	return nil
}

// Stamp answers a query.
func (a *Authority) Stamp(query []byte) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := os.WriteFile(filepath.Join(a.dir, "query"), query, 0o600); err != nil {
		return nil, err
	}
	if err := a.openssl("ts -reply -config conf -queryfile query -signer tsa.pem -inkey tsa.key -out reply"); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(a.dir, "reply"))
}

// ServeHTTP answers a query over HTTP.
func (a *Authority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	var answer []byte
	if err == nil {
		answer, err = a.Stamp(query)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/timestamp-reply")
	_, _ = w.Write(answer) // a client that is gone
}
