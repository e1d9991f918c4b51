package names

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// forward is a checked Forward.
type forward struct {
	Forward
	url       *url.URL // nil for a plain TCP target
	transport http.RoundTripper
}

func (p *Proxy) setForwards(list []Forward) error {
	p.forwards, p.static = map[forwardKey]*forward{}, map[string]bool{}
	for _, f := range list {
		f.Host = canonical(f.Host)
		bad := func(why string) error { return fmt.Errorf("forward %s:%d: %s", f.Host, f.Port, why) }
		if f.Host == "" || f.Port == 0 {
			return bad("a host and a port are needed")
		}
		if _, err := netip.ParseAddr(f.Host); err == nil {
			return bad("want a name, not an address")
		}
		key := forwardKey{f.Host, f.Port}
		if p.forwards[key] != nil {
			return bad("given twice")
		}
		fw := &forward{Forward: f}
		if host, port, err := net.SplitHostPort(f.Target); err == nil && host != "" && !strings.HasPrefix(port, "//") {
			if f.Header != nil {
				return bad("header fields need a URL as target")
			}
			if f.Wrap != nil {
				return bad("what passes can be wrapped only where the target is a URL")
			}
		} else {
			u, err := url.Parse(f.Target)
			if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				return bad(fmt.Sprintf("target %q: want address:port or an http or https URL", f.Target))
			}
			if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
				return bad("the target URL must have no user, query or fragment")
			}
			fw.url = u
			fw.transport = &http.Transport{ForceAttemptHTTP2: true, DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: p.o.Roots},
				DialContext: (&net.Dialer{Timeout: p.o.DialTimeout}).DialContext}
			if f.Wrap != nil {
				fw.transport = f.Wrap(fw.transport)
			}
		}
		p.forwards[key], p.static[f.Host] = fw, true
	}
	return nil
}
