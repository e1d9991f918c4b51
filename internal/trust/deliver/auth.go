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
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam/internal/a2a"
)

// Secret says where a secret is: env:NAME or file:PATH. The secret itself is never part of it.
type Secret string

// Value reads the secret.
func (s Secret) Value() (string, error) {
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
	Encrypted     bool // send credentials over TLS alone
	// Dial connects to the agent; nil: the network's own way.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// OAuth gets a bearer token with client credentials (RFC 6749 §4.4).
type OAuth struct {
	TokenURL, ClientID string
	Secret             Secret
	Scopes             []string
}

// Client is an HTTP client that adds the credentials to requests to the target's hosts, and to no other.
type Client struct {
	*http.Client
	// Nobody goes the same way without the credentials: it is any other caller.
	Nobody  *http.Client
	a       *authorizer
	tls     *tls.Config // with a client's certificate or authorities of one's own; else nil
	dial    dialer
	secrets *secrets
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// secrets are the values that must not show. Access tokens join them as they are got.
type secrets struct {
	mu   sync.Mutex
	list []string
}

func (s *secrets) add(v string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v != "" && !slices.Contains(s.list, v) {
		s.list = append(s.list, v)
	}
}

// Redact removes the secrets from a text.
func (c *Client) Redact(s string) string {
	c.secrets.mu.Lock()
	defer c.secrets.mu.Unlock()
	for _, v := range c.secrets.list {
		s = strings.ReplaceAll(s, v, "[secret]")
	}
	return s
}

// Knows tells whether the client has credentials at all.
func (c *Client) Knows() bool {
	return len(c.a.header) > 0 || c.a.oauth != nil || c.tls != nil && len(c.tls.Certificates) > 0
}

// Sends tells whether credentials go to an endpoint: a URL, or host:port.
func (c *Client) Sends(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return c.a.ours(endpoint, true)
	}
	return c.a.ours(u.Host, u.Scheme != "http")
}

// GRPC is how gRPC endpoints are reached with the same credentials.
func (c *Client) GRPC() a2a.Dialling {
	return a2a.Dialling{TLS: c.tls, Dial: c.dial, Metadata: func(ctx context.Context, host string) (http.Header, error) {
		if !c.a.ours(host, true) {
			return nil, nil
		}
		return c.a.fields(ctx)
	}}
}

// New makes the client. Its credentials go to hosts alone: "name:port", or "name" for every port; none means everywhere.
func (c Credentials) New(hosts ...string) (*Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil // an audit's traffic goes where its target says
	t.MaxIdleConnsPerHost = 64
	t.DialContext = c.Dial
	if c.Dial == nil {
		t.DialContext = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	conf, err := c.tls()
	if err != nil {
		return nil, err
	}
	t.TLSClientConfig = conf
	unknown := t.Clone()
	unknown.TLSClientConfig.Certificates = nil
	a := &authorizer{next: t, hosts: hosts, encrypted: c.Encrypted, header: http.Header{}}
	out := &Client{Client: &http.Client{Transport: a, CheckRedirect: sameHost}, Nobody: &http.Client{Transport: unknown, CheckRedirect: sameHost}, a: a, dial: c.Dial, secrets: new(secrets)}
	if c.CA != "" || c.Cert != "" {
		out.tls = conf
	}
	add := func(field, prefix string, s Secret) error {
		v, err := s.Value()
		if err != nil {
			return err
		}
		a.header.Set(field, prefix+v)
		out.secrets.add(v)
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
		secret, err := c.OAuth.Secret.Value()
		if err != nil {
			return nil, fmt.Errorf("the OAuth client's secret: %w", err)
		}
		out.secrets.add(secret)
		direct := t.Clone()
		direct.DialContext = (&net.Dialer{Timeout: 10 * time.Second}).DialContext // the token endpoint is not in the sandbox
		a.oauth = &tokens{o: *c.OAuth, secret: secret, client: &http.Client{Transport: direct, Timeout: 30 * time.Second}, got: out.secrets.add}
	}
	return out, nil
}

// tls reads the certificates.
func (c Credentials) tls() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate authority: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", c.CA)
		}
		conf.RootCAs = pool
	}
	if (c.Cert == "") != (c.Key == "") {
		return nil, errors.New("a client certificate needs its key, and a key its certificate")
	}
	if c.Cert != "" {
		cert, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("the client certificate: %w", err)
		}
		conf.Certificates = []tls.Certificate{cert}
	}
	return conf, nil
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
	next      http.RoundTripper
	hosts     []string
	encrypted bool
	header    http.Header
	oauth     *tokens
}

// ours tells whether a host (name:port) gets the credentials.
func (a *authorizer) ours(host string, encrypted bool) bool {
	if a.encrypted && !encrypted {
		return false
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return len(a.hosts) == 0 || slices.Contains(a.hosts, host) || slices.Contains(a.hosts, name)
}

// fields are the header fields with the credentials.
func (a *authorizer) fields(ctx context.Context) (http.Header, error) {
	h := a.header.Clone()
	if a.oauth != nil {
		t, err := a.oauth.get(ctx)
		if err != nil {
			return nil, err
		}
		h.Set("Authorization", "Bearer "+t)
	}
	return h, nil
}

func (a *authorizer) RoundTrip(r *http.Request) (*http.Response, error) {
	if !a.ours(r.URL.Host, r.URL.Scheme == "https") {
		return a.next.RoundTrip(r)
	}
	h, err := a.fields(r.Context())
	if err != nil {
		return nil, err
	}
	if len(h) > 0 {
		r = r.Clone(r.Context())
		maps.Copy(r.Header, h)
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
	got    func(token string) // a token that must not show
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
	t.got(a.AccessToken)
	t.token, t.until = a.AccessToken, time.Now().Add(time.Duration(a.ExpiresIn*float64(time.Second))*9/10)
	return t.token, nil
}
