package deliver

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// mostAddresses bounds the addresses that an agent is asked from.
const mostAddresses = 4

// From are clients without credentials that ask from this machine's other addresses, by a name for each: an agent may tell
// callers apart by where they come from. There are none where the machine has one address alone, or where the agent is
// reached in a way of its own.
func (c *Client) From(ctx context.Context, host string) map[string]*http.Client {
	if c.dial != nil {
		return nil
	}
	targets, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil // the declaration's own request says so
	}
	out := map[string]*http.Client{}
	for _, a := range sources(targets) {
		d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: a.AsSlice()}}
		t := c.Nobody.Transport.(*http.Transport).Clone()
		t.DialContext = d.DialContext
		out["from "+a.String()] = &http.Client{Transport: t, CheckRedirect: sameHost, Timeout: 15 * time.Second}
	}
	return out
}

// sources are the local addresses, of the targets' families, from which a connection does not come by itself.
func sources(targets []netip.Addr) []netip.Addr {
	var out []netip.Addr
	usual, loopback, family := map[netip.Addr]bool{}, false, map[bool]bool{}
	for _, t := range targets {
		t = t.Unmap()
		family[t.Is4()] = true
		loopback = loopback || t.IsLoopback()
		// Connecting a datagram socket sends nothing: it only chooses the source address.
		if s, err := net.Dial("udp", netip.AddrPortFrom(t, 9).String()); err == nil {
			usual[s.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()] = true
			s.Close()
		}
	}
	var local []netip.Addr
	if loopback && family[true] {
		local = append(local, netip.MustParseAddr("127.0.0.2"))
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		list = nil
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			local = append(local, p.Addr().Unmap())
		}
	}
	for _, a := range local {
		if family[a.Is4()] && !usual[a] && !a.IsLinkLocalUnicast() && a.IsLoopback() == loopback && len(out) < mostAddresses {
			out = append(out, a)
		}
	}
	return out
}
