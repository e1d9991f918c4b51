package names

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Mode says what becomes of a connection.
type Mode string

// The modes. A sandbox without network has no proxy and no mode.
const (
	Record Mode = "record" // everything is forwarded
	Allow  Mode = "allow"  // hosts that are listed are forwarded, others refused
	Sink   Mode = "sink"   // hosts that are listed are forwarded, others reach a stand-in
)

// rule is one entry of an allow list.
type rule struct {
	host   string // exact name
	suffix string // ".example.com": names below
	prefix netip.Prefix
	any    bool
	port   uint16 // 0: every port
}

// parseRule reads "host", "*.domain" (names below it), ".domain" (it and names below it, two rules), an address,
// a CIDR or "*", each with ":port" at its end if need be. IPv6 with a port stands in brackets.
func parseRule(s string) ([]rule, error) {
	bad := func(why string) ([]rule, error) { return nil, fmt.Errorf("allow list entry %q: %s", s, why) }
	host, port := strings.TrimSpace(s), ""
	switch {
	case strings.Contains(host, "://"):
		return bad("want a host name or address, not a URL")
	case strings.HasPrefix(host, "["):
		var ok bool
		if host, port, ok = strings.Cut(host[1:], "]"); !ok {
			return bad("no closing bracket")
		}
		if port != "" && port[0] != ':' {
			return bad("want [address]:port")
		}
		port = strings.TrimPrefix(port, ":")
	case strings.Count(host, ":") == 1:
		host, port, _ = strings.Cut(host, ":")
		if port == "" {
			return bad("the port is missing after the colon")
		}
	}
	var r rule
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return bad("want a port from 1 to 65535")
		}
		r.port = uint16(n)
	}
	if host == "" {
		return bad("no host")
	}
	if p, err := netip.ParsePrefix(host); err == nil {
		r.prefix = p.Masked()
		return []rule{r}, nil
	}
	if a, err := netip.ParseAddr(host); err == nil {
		a = a.Unmap()
		r.prefix = netip.PrefixFrom(a, a.BitLen())
		return []rule{r}, nil
	}
	if strings.ContainsAny(host, "/ \t:") {
		return bad("want a host name, *.domain, .domain, address, CIDR or *, with :port if need be")
	}
	host = canonical(host)
	switch {
	case host == "*":
		r.any = true
	case strings.HasPrefix(host, "*."):
		r.suffix = host[1:]
	case strings.HasPrefix(host, "."):
		apex := r
		r.suffix, apex.host = host, host[1:]
		return []rule{r, apex}, nil
	case strings.Contains(host, "*"):
		return bad("a star stands only at the start: *.domain")
	default:
		r.host = host
	}
	return []rule{r}, nil
}

func parseRules(list []string) ([]rule, error) {
	var out []rule
	for _, s := range list {
		r, err := parseRule(s)
		if err != nil {
			return nil, err
		}
		out = append(out, r...)
	}
	return out, nil
}

// allowsName tells whether a name is listed, for a port or (port 0) for any.
func allowsName(rules []rule, name string, port uint16) bool {
	for _, r := range rules {
		if r.port != 0 && port != 0 && r.port != port {
			continue
		}
		if r.any || r.host != "" && r.host == name || r.suffix != "" && len(name) > len(r.suffix) && strings.HasSuffix(name, r.suffix) {
			return true
		}
	}
	return false
}

// allowsAddr tells whether an address is listed as such.
func allowsAddr(rules []rule, a netip.AddrPort, star bool) bool {
	for _, r := range rules {
		if r.port != 0 && r.port != a.Port() {
			continue
		}
		if r.any && star || r.prefix.IsValid() && r.prefix.Contains(a.Addr()) {
			return true
		}
	}
	return false
}

// guard keeps the sandbox out of the host and its network: an address which is not out on the internet is reached
// only if it is listed.
type guard struct {
	listed []rule
	own    func() ([]net.Addr, error) // the host's own addresses with their networks
}

var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),      // this host
	netip.MustParsePrefix("100.64.0.0/10"),  // carriers' private space, also used by overlay networks
	netip.MustParsePrefix("192.0.0.0/24"),   // protocol assignments
	netip.MustParsePrefix("198.18.0.0/15"),  // our own synthetic addresses
	netip.MustParsePrefix("240.0.0.0/4"),    // reserved, broadcast
	netip.MustParsePrefix("fec0::/10"),      // site local
	netip.MustParsePrefix("::/96"),          // IPv4-compatible
	netip.MustParsePrefix("64:ff9b:1::/48"), // local NAT64
}

var (
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
	sixTo = netip.MustParsePrefix("2002::/16")
)

// check returns nil if the address may be dialled, else an error that says why not.
func (g *guard) check(a netip.AddrPort) error {
	addr := a.Addr().Unmap().WithZone("")
	if allowsAddr(g.listed, netip.AddrPortFrom(addr, a.Port()), false) {
		return nil
	}
	if why := g.inner(addr); why != "" {
		return &refusal{why}
	}
	return nil
}

func (g *guard) inner(addr netip.Addr) string {
	switch {
	case addr.IsLoopback() || addr.IsUnspecified():
		return "the host itself"
	case addr.IsPrivate() || addr.IsLinkLocalUnicast():
		return "a private network"
	case addr.IsMulticast():
		return "multicast"
	case nat64.Contains(addr):
		b := addr.As16()
		return g.inner(netip.AddrFrom4([4]byte(b[12:])))
	case sixTo.Contains(addr):
		b := addr.As16()
		return g.inner(netip.AddrFrom4([4]byte(b[2:6])))
	}
	for _, p := range notPublic {
		if p.Contains(addr) {
			return "not a public address"
		}
	}
	own, err := g.own()
	if err != nil {
		return "the host's addresses could not be read: " + err.Error()
	}
	for _, o := range own {
		if p, err := netip.ParsePrefix(o.String()); err == nil && p.Contains(addr) {
			return "the host's own network"
		}
	}
	return ""
}

// refusal is the reason why a connection was not forwarded.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }
