package mirror

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The protocol, over HTTPS with a bearer token:
//
//	GET  /v1/logs/LOG                              {"files": {name: size}}
//	GET  /v1/logs/LOG/heads                        [{"time":…,"note":…}…]
//	POST /v1/logs/LOG/heads                        body: a checkpoint
//	GET  /v1/logs/LOG/files/NAME?offset=N          bytes
//	GET  /v1/logs/LOG/files/NAME?digest=N          SHA-256 of the first N bytes, hexadecimal
//	POST /v1/logs/LOG/files/NAME?offset=N          body: bytes to append
//
// 409 answers what conflicts with what is there, 400 what is wrong in itself, 401 a missing or wrong token.

// ServerOptions are what a server needs.
type ServerOptions struct {
	Dir      *Dir
	Token    string // whoever has it may append and read
	CertFile string
	KeyFile  string
}

// Serve serves a directory until the context ends.
func Serve(ctx context.Context, l net.Listener, o ServerOptions) error {
	cert, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return fmt.Errorf("loading the mirror's certificate: %w", err)
	}
	srv := &http.Server{
		Handler: Handler(o.Dir, o.Token), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13},
	}
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(l, "", "") }()
	select {
	case err := <-done:
		return fmt.Errorf("serving the mirror: %w", err)
	case <-ctx.Done():
	}
	// The context has ended; what is under way gets a moment.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := srv.Shutdown(end); err != nil {
		return fmt.Errorf("ending the mirror: %w", err)
	}
	return nil
}

// Handler answers the protocol.
func Handler(d *Dir, token string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/logs/{log}", func(w http.ResponseWriter, r *http.Request) {
		files, err := d.Files(r.Context(), r.PathValue("log"))
		answer(w, map[string]any{"files": files}, err)
	})
	mux.HandleFunc("GET /v1/logs/{log}/heads", func(w http.ResponseWriter, r *http.Request) {
		heads, err := d.Heads(r.Context(), r.PathValue("log"))
		answer(w, heads, err)
	})
	mux.HandleFunc("POST /v1/logs/{log}/heads", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 256<<10))
		if err == nil {
			err = d.Publish(r.Context(), r.PathValue("log"), body)
		}
		answer(w, struct{}{}, err)
	})
	mux.HandleFunc("GET /v1/logs/{log}/files/{name...}", func(w http.ResponseWriter, r *http.Request) { getFile(d, w, r) })
	mux.HandleFunc("POST /v1/logs/{log}/files/{name...}", func(w http.ResponseWriter, r *http.Request) {
		offset, err := number(r, "offset")
		var body []byte
		if err == nil {
			body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxAppend))
		}
		if err == nil {
			err = d.Append(r.Context(), r.PathValue("log"), r.PathValue("name"), offset, body)
		}
		answer(w, struct{}{}, err)
	})
	want := sha256.Sum256([]byte("Bearer " + token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if token == "" || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			http.Error(w, "a token is needed", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func number(r *http.Request, key string) (int64, error) {
	n, err := strconv.ParseInt(r.URL.Query().Get(key), 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: %s should be a number of bytes", errRefused, key)
	}
	return n, nil
}

func getFile(d *Dir, w http.ResponseWriter, r *http.Request) {
	log, name := r.PathValue("log"), r.PathValue("name")
	if r.URL.Query().Has("digest") {
		n, err := number(r, "digest")
		var sum [32]byte
		if err == nil {
			sum, err = d.Digest(r.Context(), log, name, n)
		}
		answer(w, hex.EncodeToString(sum[:]), err)
		return
	}
	offset, err := number(r, "offset")
	if err != nil {
		answer(w, nil, err)
		return
	}
	f, err := d.Read(r.Context(), log, name, offset)
	if err != nil {
		answer(w, nil, err)
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = io.Copy(w, f) // a client that went away gets nothing
}

func answer(w http.ResponseWriter, v any, err error) {
	var large *http.MaxBytesError
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	case errors.Is(err, ErrConflict):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, errRefused), errors.As(err, &large):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, "there is no such file", http.StatusNotFound)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// ClientOptions are what a client needs.
type ClientOptions struct {
	Token string
	CAs   []byte // PEM; nil: the system's
}

type client struct {
	base  string
	token string
	http  *http.Client
}

func newClient(base string, o ClientOptions) (*client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.RawQuery != "" {
		return nil, fmt.Errorf("mirror %s: want https://HOST:PORT", base)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS13}
	if o.CAs != nil {
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(o.CAs) {
			return nil, errors.New("there is no certificate in the file of the mirror's authorities")
		}
	}
	t := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: time.Minute, Proxy: http.ProxyFromEnvironment}
	return &client{strings.TrimSuffix(base, "/"), o.Token, &http.Client{Transport: t, Timeout: 10 * time.Minute, CheckRedirect: notElsewhere}}, nil
}

// notElsewhere leaves a redirect unfollowed, so that it is an answer like any other that isn't a mirror's: what is sent would not
// be sent along, and the token is for this server alone.
func notElsewhere(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (c *client) String() string { return c.base }

// do sends a request. The body of the answer must be closed.
func (c *client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+"/v1/logs/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the mirror: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, rerr := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if rerr != nil {
		text = []byte(rerr.Error())
	}
	msg := strings.TrimSpace(string(text))
	switch resp.StatusCode {
	case http.StatusConflict:
		return nil, fmt.Errorf("%w (%q)", ErrConflict, msg)
	case http.StatusNotFound:
		return nil, fmt.Errorf("the mirror: %q: %w", msg, fs.ErrNotExist)
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
	default:
		if resp.StatusCode/100 == 4 {
			return nil, fmt.Errorf("%w (%s): %q", errRefused, resp.Status, msg)
		}
	}
	return nil, fmt.Errorf("the mirror answers %s: %q", resp.Status, msg)
}

// maxAnswer bounds a JSON answer, in bytes.
const maxAnswer = 256 << 20

func (c *client) get(ctx context.Context, path string, v any) error {
	resp, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(v); err != nil {
		return fmt.Errorf("reading the mirror's answer: %w", err)
	}
	return nil
}

func (c *client) post(ctx context.Context, path string, body []byte) error {
	resp, err := c.do(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (c *client) Files(ctx context.Context, log string) (map[string]int64, error) {
	var v struct {
		Files map[string]int64 `json:"files"`
	}
	err := c.get(ctx, log, &v)
	for name, size := range v.Files {
		if !nameForm.MatchString(name) || size < 0 {
			return nil, fmt.Errorf("the mirror lists %.80q with %d bytes", name, size)
		}
	}
	return v.Files, err
}

func (c *client) Append(ctx context.Context, log, name string, offset int64, data []byte) error {
	return c.post(ctx, fmt.Sprintf("%s/files/%s?offset=%d", log, name, offset), data)
}

func (c *client) Digest(ctx context.Context, log, name string, size int64) (sum [32]byte, err error) {
	var s string
	if err := c.get(ctx, fmt.Sprintf("%s/files/%s?digest=%d", log, name, size), &s); err != nil {
		return sum, err
	}
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(sum) {
		return sum, fmt.Errorf("the mirror answers no digest: %.80q", s)
	}
	return [32]byte(b), nil
}

func (c *client) Read(ctx context.Context, log, name string, offset int64) (io.ReadCloser, error) {
	resp, err := c.do(ctx, http.MethodGet, fmt.Sprintf("%s/files/%s?offset=%d", log, name, offset), nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func (c *client) Publish(ctx context.Context, log string, note []byte) error {
	return c.post(ctx, log+"/heads", note)
}

func (c *client) Heads(ctx context.Context, log string) ([]Head, error) {
	resp, err := c.do(ctx, http.MethodGet, log+"/heads", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var heads []Head
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&heads); err != nil {
		return nil, fmt.Errorf("reading the mirror's checkpoints: %w", err)
	}
	return heads, nil
}
