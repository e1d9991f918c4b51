package names

import (
	"slices"
	"time"

	"github.com/bodycam-dev/bodycam"
)

// Some sockets have no local port yet when the kernel tells of them: a datagram socket that was never bound, a
// connection made with the first data (TCP Fast Open). They are loose: found by what they were used for, and only
// once the kernel's record has gone on so far that no other socket can be meant.

const (
	// maxLoose bounds how many loose sockets of one use are compared. With that many, any could be meant.
	maxLoose = 32
	// looseFor is how long a question may take to be answered.
	looseFor = uint64(resolveTimeout + 5*time.Second)
	maxAsked = 8
)

// looseKey is the use of a socket: DNS, or the destination of a connection.
func (s *socket) looseKey() (tuple, bool) {
	switch {
	case s.resolver:
		return tuple{portKey: portKey{proto: s.proto}}, true
	case s.proto == bodycam.ProtoTCP && s.remote.IsValid():
		return tuple{portKey{proto: s.proto}, s.remote}, true
	}
	return tuple{}, false
}

// loosen files a socket without local port under its present use.
func (t *sockets) loosen(s *socket) {
	k, ok := s.looseKey()
	if s.loose && ok && k == s.use {
		return
	}
	t.tighten(s)
	if ok && len(t.byUse[k]) < maxLoose {
		s.loose, s.use = true, k
		t.byUse[k] = append(t.byUse[k], s)
	}
}

// tighten takes a socket off the loose ones.
func (t *sockets) tighten(s *socket) {
	if !s.loose {
		return
	}
	s.loose = false
	list := t.byUse[s.use]
	if i := slices.Index(list, s); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(t.byUse, s.use)
	} else {
		t.byUse[s.use] = list
	}
}

// eliminate finds the one process whose loose socket a proxy event can be about, nil if there are several or none.
// Where it is one socket, the event tells its local address, and later events find it by that.
func (t *sockets) eliminate(e *bodycam.Event, slack uint64) *socket {
	k := tuple{portKey: portKey{proto: e.Proto}}
	if e.Type != bodycam.TypeDNS {
		k.remote = unmapAny(e.Remote)
	}
	list := t.byUse[k]
	if len(list) >= maxLoose {
		return nil
	}
	fits := slices.Clone(list)
	fits = slices.DeleteFunc(fits, func(s *socket) bool {
		return s.boot > e.Boot+slack || e.Type == bodycam.TypeDNS && s.last+looseFor < e.Boot
	})
	if e.Type == bodycam.TypeDNS && slices.ContainsFunc(fits, func(s *socket) bool { return slices.Contains(s.asked, e.Host) }) {
		fits = slices.DeleteFunc(fits, func(s *socket) bool { return !slices.Contains(s.asked, e.Host) })
	}
	if len(fits) == 0 || slices.ContainsFunc(fits, func(s *socket) bool { return s.proc != fits[0].proc }) {
		return nil
	}
	s := fits[0]
	if len(fits) > 1 { // the process is known, but not which of its sockets
		one := *s
		one.cookie = 0
		return &one
	}
	t.tighten(s)
	s.local = unmapAny(e.Local)
	t.link(s)
	return s
}
