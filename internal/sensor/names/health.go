package names

import (
	"sync/atomic"

	"github.com/bodycam-dev/bodycam"
)

// source counts what was seen of one kind, when it began, and the events that came of it, when it ended. Between
// the two it is under way; nothing is once Serve has returned, and the counters balance or tell of a mistake.
type source struct{ seen, emitted, lost atomic.Uint64 }

func (s *source) counters() bodycam.Counters {
	return bodycam.Counters{Seen: s.seen.Load(), Emitted: s.emitted.Load(), Lost: s.lost.Load()}
}

type stats struct {
	dns, tls, http, flow source

	acceptErrors atomic.Uint64
	tableFull    atomic.Uint64 // names that got no address
	tlsFlows     atomic.Uint64 // TLS connections whose contents were not read
	ech          atomic.Uint64 // ClientHellos with an encrypted one inside
	unread       atomic.Uint64 // connections with HTTP requests after a point that could not be followed
}

// Health is the proxy's account of itself. Its counters balance once Serve has returned; before, what is seen and
// not yet emitted is under way.
func (p *Proxy) Health() bodycam.Health {
	h := bodycam.Health{Sensor: SensorName, Backend: string(p.o.Mode), Sources: map[string]bodycam.Counters{
		"dns": p.stats.dns.counters(), "tls": p.stats.tls.counters(),
		"http": p.stats.http.counters(), "flow": p.stats.flow.counters(),
	}}
	for _, c := range h.Sources {
		h.Total.Add(c)
	}
	blind := func(what, why string, n uint64, inherent bool) {
		h.Blind = append(h.Blind, bodycam.Blind{What: what, Why: why, Count: n, Inherent: inherent})
	}
	if n := p.stats.tlsFlows.Load(); !p.o.Intercept || n > 0 {
		blind("tls-content", "contents of TLS connections are not read; their names, addresses and sizes are", n, true)
	}
	if n := p.stats.ech.Load(); n > 0 {
		blind("ech", "an encrypted ClientHello may hide the name that TLS is for; the name asked for in DNS is known", n, true)
	}
	if n := p.stats.unread.Load(); n > 0 {
		blind("http-later-requests", "after an upgrade, HTTP/2 in the clear or an ambiguous head, later requests of the connection are not told apart", n, true)
	}
	if p.o.Dropped != nil {
		if n := p.o.Dropped(); n > 0 {
			blind("non-dns-udp", "datagrams other than DNS were dropped; the attempts are in the kernel's record", n, true)
		}
	}
	if n := p.stats.tableFull.Load(); n > 0 {
		blind("dns-names", "more names were asked for than there are synthetic addresses; those queries failed", n, true)
	}
	p.emitMu.Lock()
	defer p.emitMu.Unlock()
	if p.emitErr != nil {
		h.Failed = p.emitErr.Error()
	}
	return h
}
