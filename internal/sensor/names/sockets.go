package names

import (
	"net/netip"

	"github.com/bodycam-dev/bodycam"
)

// sockets remembers which process has which socket, as the kernel's events tell it.
type sockets struct {
	byCookie map[uint64]*socket
	byTuple  map[tuple]*socket   // latest first, older ones behind prevTuple
	byPort   map[portKey]*socket // the same, whatever the destination
	byUse    map[tuple][]*socket // those without local port: see loose.go
	ring     []*socket           // all, oldest at next
	next     int
}

type tuple struct {
	portKey
	remote netip.AddrPort
}

type socket struct {
	cookie        uint64
	proto         bodycam.Proto
	local, remote netip.AddrPort
	proc, parent  bodycam.Proc
	uid, gid      uint32
	sid           int32
	boot          uint64   // when it began to be used as it is
	last          uint64   // when it was last used
	outgoing      bool     // it connected or sent
	resolver      bool     // it connected or sent to port 53
	asked         []string // names that a sensor saw it ask for, where it has no local port
	loose         bool
	use           tuple

	prevTuple, prevPort *socket
}

// maxChain bounds how many sockets with the same addresses are remembered. The kernel gives an address out again
// only when it is free, so more than two within the jitter of events don't occur but by intent.
const maxChain = 8

func newSockets(limit int) sockets {
	return sockets{byCookie: map[uint64]*socket{}, byTuple: map[tuple]*socket{}, byPort: map[portKey]*socket{}, byUse: map[tuple][]*socket{},
		ring: make([]*socket, limit)}
}

// learn takes in what a kernel event says of a socket. It returns the socket if something was learned that may
// tell a proxy event's process.
func (t *sockets) learn(e *bodycam.Event) *socket {
	if e.Proto != bodycam.ProtoTCP && e.Proto != bodycam.ProtoUDP || e.Proc.PID == 0 {
		return nil
	}
	switch e.Type {
	case bodycam.TypeBind, bodycam.TypeConnect, bodycam.TypeSend, bodycam.TypeFlow, bodycam.TypeDNS:
	default:
		return nil
	}
	local, remote := unmapAny(e.Local), unmapAny(e.Remote)
	s := t.byCookie[e.Cookie]
	if e.Cookie == 0 {
		s = nil
	}
	if s == nil {
		if e.Cookie == 0 && local.Port() == 0 {
			return nil // nothing to find it by
		}
		s = &socket{cookie: e.Cookie, proto: e.Proto, boot: e.Boot, proc: e.Proc}
		t.keep(s)
	}
	if e.Type == bodycam.TypeConnect || e.Type == bodycam.TypeSend || e.Type == bodycam.TypeDNS {
		s.proc, s.outgoing = e.Proc, true
		if s.remote != remote && remote.IsValid() {
			s.boot = e.Boot // a socket used anew
		}
	}
	s.parent, s.uid, s.gid, s.sid = e.Parent, e.UID, e.GID, e.SID
	s.last = max(s.last, e.Boot)
	s.resolver = s.resolver || remote.Port() == 53 || e.Type == bodycam.TypeDNS
	moved := *s
	if local.Port() != 0 {
		moved.local = local
	}
	if remote.IsValid() && e.Type != bodycam.TypeBind {
		moved.remote = remote
	}
	if moved.port() != s.port() || moved.tuple() != s.tuple() {
		t.unlink(s)
		s.local, s.remote = moved.local, moved.remote
		t.link(s)
	}
	s.local, s.remote = moved.local, moved.remote
	if s.local.Port() == 0 {
		if e.Type == bodycam.TypeDNS && len(s.asked) < maxAsked {
			s.asked = append(s.asked, canonical(e.Host))
		}
		t.loosen(s)
		return nil
	}
	t.tighten(s)
	return s
}

// keep adds a socket and forgets the oldest one.
func (t *sockets) keep(s *socket) {
	if old := t.ring[t.next]; old != nil {
		t.forget(old)
	}
	t.ring[t.next] = s
	t.next = (t.next + 1) % len(t.ring)
	if s.cookie != 0 {
		t.byCookie[s.cookie] = s
	}
}

func (t *sockets) forget(s *socket) {
	t.unlink(s)
	t.tighten(s)
	if t.byCookie[s.cookie] == s {
		delete(t.byCookie, s.cookie)
	}
}

func (s *socket) port() portKey { return portKey{s.proto, s.local.Port()} }

// tuple is the key of a connection. Datagrams need none: their proxy events tell no destination.
func (s *socket) tuple() tuple {
	if s.proto != bodycam.ProtoTCP {
		return tuple{portKey: s.port()}
	}
	return tuple{s.port(), s.remote}
}

// link puts a socket first among those with its addresses.
func (t *sockets) link(s *socket) {
	if s.local.Port() == 0 {
		return
	}
	p, c := s.port(), s.tuple()
	s.prevPort, t.byPort[p] = t.byPort[p], s
	s.prevTuple, t.byTuple[c] = t.byTuple[c], s
	n, m := s, s
	for range maxChain - 1 {
		if n != nil {
			n = n.prevPort
		}
		if m != nil {
			m = m.prevTuple
		}
	}
	if n != nil {
		n.prevPort = nil
	}
	if m != nil {
		m.prevTuple = nil
	}
}

// unlink takes a socket out of the chains of its present addresses.
func (t *sockets) unlink(s *socket) {
	if s.local.Port() == 0 {
		return
	}
	p, c := s.port(), s.tuple()
	if t.byPort[p] == s {
		if t.byPort[p] = s.prevPort; s.prevPort == nil {
			delete(t.byPort, p)
		}
	}
	for n := t.byPort[p]; n != nil; n = n.prevPort {
		if n.prevPort == s {
			n.prevPort = s.prevPort
		}
	}
	if t.byTuple[c] == s {
		if t.byTuple[c] = s.prevTuple; s.prevTuple == nil {
			delete(t.byTuple, c)
		}
	}
	for n := t.byTuple[c]; n != nil; n = n.prevTuple {
		if n.prevTuple == s {
			n.prevTuple = s.prevTuple
		}
	}
	s.prevPort, s.prevTuple = nil, nil
}

// find returns the socket that a proxy event is about. Of several with the same addresses it is the latest that was
// there before the event; the kernel's own time of it may be up to slack later than the proxy's.
func (t *sockets) find(e *bodycam.Event, slack uint64) *socket {
	local := unmapAny(e.Local)
	if local.Port() == 0 {
		return nil
	}
	key := portKey{e.Proto, local.Port()}
	var later *socket
	fits := func(s *socket) bool {
		if a := s.local.Addr(); a.IsValid() && !a.IsUnspecified() && a != local.Addr() {
			return false
		}
		if s.boot > e.Boot && s.boot <= e.Boot+slack {
			later = s
		}
		return s.boot <= e.Boot
	}
	if e.Remote.IsValid() {
		for s := t.byTuple[tuple{key, unmapAny(e.Remote)}]; s != nil; s = s.prevTuple {
			if fits(s) {
				return s
			}
		}
		if later != nil {
			return later
		}
	}
	for s := t.byPort[key]; s != nil; s = s.prevPort {
		// Without a destination in common, the socket's must be unknown or that of DNS.
		if (!s.remote.IsValid() || e.Type == bodycam.TypeDNS && s.resolver) && fits(s) {
			return s
		}
	}
	return later
}

func unmapAny(a netip.AddrPort) netip.AddrPort {
	if !a.IsValid() {
		return a
	}
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// bounded is a map that forgets its oldest keys.
type bounded[K comparable, V any] struct {
	m    map[K]V
	ring []K
	next int
}

func newBounded[K comparable, V any](limit int) bounded[K, V] {
	return bounded[K, V]{m: map[K]V{}, next: -limit}
}

func (b *bounded[K, V]) get(k K) (V, bool) { v, ok := b.m[k]; return v, ok }

func (b *bounded[K, V]) put(k K, v V) {
	if _, ok := b.m[k]; ok {
		b.m[k] = v
		return
	}
	b.m[k] = v
	if b.next < 0 { // still filling
		b.ring = append(b.ring, k)
		b.next++
		return
	}
	delete(b.m, b.ring[b.next])
	b.ring[b.next] = k
	b.next = (b.next + 1) % len(b.ring)
}
