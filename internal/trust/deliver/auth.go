package deliver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// Secret says where a secret is: env:NAME or file:PATH. The secret itself is never part of it.
type Secret string

// value reads the secret.
func (s Secret) value() (string, error) {
	kind, where, ok := strings.Cut(string(s), ":")
	switch {
	case ok && kind == "env":
		v := os.Getenv(where)
		if v == "" {
			return "", fmt.Errorf("the variable %s is not set", where)
		}
		return v, nil
	case ok && kind == "file":
		b, err := os.ReadFile(where)
		if err != nil {
			return "", fmt.Errorf("reading a secret: %w", err)
		}
		v := strings.TrimSpace(string(b))
		if v == "" {
			return "", fmt.Errorf("the file %s is empty", where)
		}
		return v, nil
	}
	return "", errors.New("a secret is given as env:NAME or file:PATH, never itself")
}

// Credentials say how an agent is spoken to. The zero value is: as nobody.
type Credentials struct {
	Bearer Secret
	APIKey map[string]Secret // header field → secret
	OAuth  *OAuth            // client credentials
	// TLS: files in PEM.
	Cert, Key, CA string
}

// OAuth gets a bearer token with client credentials (RFC 6749 §4.4).
type OAuth struct {
	TokenURL, ClientID string
	Secret             Secret
	Scopes             []string
}

// Client is an HTTP client that adds the credentials to requests to host, and to no other, with the header fields that do
// so for calls which go another way (gRPC).
type Client struct {
	*http.Client
	secrets []string
}

// Redact removes the secrets from a text.
func (c *Client) Redact(s string) string {
	for _, v := range c.secrets {
		s = strings.ReplaceAll(s, v, "[secret]")
	}
	return s
}

// New makes the client.
func (c Credentials) New(hosts ...string) (*Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil // an audit's traffic goes where its target says
	t.MaxIdleConnsPerHost = 64
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate authority: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", c.CA)
		}
		t.TLSClientConfig.RootCAs = pool
	}
	if (c.Cert == "") != (c.Key == "") {
		return nil, errors.New("a client certificate needs its key, and a key its certificate")
	}
	if c.Cert != "" {
		cert, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("the client certificate: %w", err)
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{cert}
	}
	a := &authorizer{next: t, hosts: hosts, header: http.Header{}}
	out := &Client{Client: &http.Client{Transport: a, CheckRedirect: sameHost}}
	add := func(field, prefix string, s Secret) error {
		v, err := s.value()
		if err != nil {
			return err
		}
		a.header.Set(field, prefix+v)
		out.secrets = append(out.secrets, v)
		return nil
	}
	if c.Bearer != "" {
		if err := add("Authorization", "Bearer ", c.Bearer); err != nil {
			return nil, fmt.Errorf("the bearer token: %w", err)
		}
	}
	for field, s := range c.APIKey {
		if err := add(field, "", s); err != nil {
			return nil, fmt.Errorf("the API key in %s: %w", field, err)
		}
	}
	if c.OAuth != nil {
		secret, err := c.OAuth.Secret.value()
		if err != nil {
			return nil, fmt.Errorf("the OAuth client's secret: %w", err)
		}
		out.secrets = append(out.secrets, secret)
		a.oauth = &tokens{o: *c.OAuth, secret: secret, client: &http.Client{Transport: t, Timeout: 30 * time.Second}}
	}
	return out, nil
}

// sameHost keeps redirects on the host that was asked: credentials and probes are for it alone.
func sameHost(r *http.Request, via []*http.Request) error {
	if len(via) >= 5 {
		return errors.New("more than five redirects")
	}
	if r.URL.Host != via[0].URL.Host {
		return fmt.Errorf("the agent redirects to another host, %s", r.URL.Host)
	}
	return nil
}

type authorizer struct {
	next   http.RoundTripper
	hosts  []string
	header http.Header
	oauth  *tokens
}

func (a *authorizer) RoundTrip(r *http.Request) (*http.Response, error) {
	ours := len(a.hosts) == 0
	for _, h := range a.hosts {
		ours = ours || r.URL.Host == h
	}
	if !ours || len(a.header) == 0 && a.oauth == nil {
		return a.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	for k, v := range a.header {
		r.Header[k] = v
	}
	if a.oauth != nil {
		t, err := a.oauth.get(r.Context())
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+t)
	}
	return a.next.RoundTrip(r)
}

// tokens keeps one access token and renews it before it ends.
type tokens struct {
	o      OAuth
	secret string
	client *http.Client
	mu     sync.Mutex
	token  string
	until  time.Time
}

func (t *tokens) get(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != "" && time.Now().Before(t.until) {
		return t.token, nil
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(t.o.Scopes) > 0 {
		form.Set("scope", strings.Join(t.o.Scopes, " "))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.o.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", fmt.Errorf("the OAuth token endpoint: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(url.QueryEscape(t.o.ClientID), url.QueryEscape(t.secret))
	resp, err := t.client.Do(req)
	if err != nil {
		return "", fmt.Errorf("asking for an access token: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", fmt.Errorf("asking for an access token: %w", err)
	}
	var a struct {
		AccessToken string  `json:"access_token"`
		ExpiresIn   float64 `json:"expires_in"`
		Error       string  `json:"error"`
	}
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&a); err != nil || a.AccessToken == "" {
		return "", fmt.Errorf("asking for an access token: HTTP status %d, error %q, no token", resp.StatusCode, a.Error)
	}
	if a.ExpiresIn <= 0 {
		a.ExpiresIn = 60
	}
	t.token, t.until = a.AccessToken, time.Now().Add(time.Duration(a.ExpiresIn*float64(time.Second))*9/10)
	return t.token, nil
}
