package session

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/sensor/names"
)

// Secret is a credential that the agent uses and never has: inside there is Placeholder, and the proxy puts the value in its
// place where a request to Host carries it in a header field or in its query, and takes it out of what comes back.
type Secret struct {
	Host        string // name inside
	Ports       []uint16
	Target      string // http or https URL that requests to Host go to
	Placeholder string
	Value       string
}

// secrets leads the hosts of secrets through the proxy.
func (s *run) secrets(o *names.Options) {
	type at struct {
		host string
		port uint16
	}
	swaps, targets, order := map[at][]Secret{}, map[at]string{}, []at{}
	for _, x := range s.o.Secrets {
		for _, port := range x.Ports {
			k := at{x.Host, port}
			if targets[k] == "" {
				order = append(order, k)
			}
			swaps[k], targets[k] = append(swaps[k], x), x.Target
		}
	}
	for _, k := range order {
		list := swaps[k]
		o.Forwards = append(o.Forwards, names.Forward{Host: k.host, Port: k.port, Target: targets[k], OwnTLS: true,
			Wrap: func(next http.RoundTripper) http.RoundTripper { return &swap{list, next} }})
	}
}

// swap puts secrets into requests and takes them out of answers.
type swap struct {
	list []Secret
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (s *swap) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	for field, values := range out.Header {
		for i, v := range values {
			out.Header[field][i] = s.in(v)
		}
	}
	out.URL.RawQuery = s.query(out.URL.RawQuery)
	out.Header.Del("Accept-Encoding") // the answer has to be read
	resp, err := s.next.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	for field, values := range resp.Header {
		for i, v := range values {
			resp.Header[field][i] = s.out(v)
		}
	}
	for field, values := range resp.Trailer {
		for i, v := range values {
			resp.Trailer[field][i] = s.out(v)
		}
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, nil // what follows is a stream of another protocol, both ways
	}
	for _, x := range s.list {
		resp.Body = &replacing{r: resp.Body, old: []byte(x.Value), new: []byte(x.Placeholder)}
	}
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
	return resp, nil
}

// in puts the values in, into the user and password of basic authentication as well.
func (s *swap) in(v string) string {
	for _, x := range s.list {
		v = strings.ReplaceAll(v, x.Placeholder, x.Value)
	}
	if code, ok := strings.CutPrefix(v, "Basic "); ok {
		if plain, err := base64.StdEncoding.DecodeString(code); err == nil {
			for _, x := range s.list {
				if bytes.Contains(plain, []byte(x.Placeholder)) {
					plain = bytes.ReplaceAll(plain, []byte(x.Placeholder), []byte(x.Value))
					v = "Basic " + base64.StdEncoding.EncodeToString(plain)
				}
			}
		}
	}
	return v
}

func (s *swap) out(v string) string {
	for _, x := range s.list {
		v = strings.ReplaceAll(v, x.Value, x.Placeholder)
	}
	return v
}

func (s *swap) query(q string) string {
	for _, x := range s.list { // a placeholder needs no escaping
		q = strings.ReplaceAll(q, x.Placeholder, url.QueryEscape(x.Value))
	}
	return q
}

// replacing replaces a text in a stream. It holds back no more than a beginning of that text.
type replacing struct {
	r        io.ReadCloser
	old, new []byte
	in, out  []byte // read and not looked at yet; ready
	err      error
}

func (p *replacing) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for len(p.out) == 0 {
		if p.err != nil {
			return 0, p.err
		}
		buf := make([]byte, 32<<10)
		n, err := p.r.Read(buf)
		p.in, p.err = append(p.in, buf[:n]...), err
		for {
			i := bytes.Index(p.in, p.old)
			if i < 0 {
				break
			}
			p.out = append(append(p.out, p.in[:i]...), p.new...)
			p.in = p.in[i+len(p.old):]
		}
		hold := 0
		if err == nil {
			for k := min(len(p.in), len(p.old)-1); k > 0; k-- {
				if bytes.HasPrefix(p.old, p.in[len(p.in)-k:]) {
					hold = k
					break
				}
			}
		}
		p.out = append(p.out, p.in[:len(p.in)-hold]...)
		p.in = append([]byte(nil), p.in[len(p.in)-hold:]...)
	}
	n := copy(b, p.out)
	p.out = p.out[n:]
	return n, nil
}

func (p *replacing) Close() error { return p.r.Close() }
