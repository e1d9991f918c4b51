//go:build linux && amd64

package ptrace

import (
	"encoding/binary"
	"net/netip"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

const dnsPort = 53

// sock is a socket as the kernel describes it.
type sock struct {
	proto         bodycam.Proto
	local, remote netip.AddrPort
	cookie        uint64
}

// socket looks at a duplicate of the task's socket.
func (t *task) socket(fd int) (s sock, ok bool) {
	pidfd, err := unix.PidfdOpen(int(t.p.id.PID), 0)
	if err != nil {
		return s, false
	}
	defer unix.Close(pidfd)
	dup, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err != nil {
		t.unreadable(err)
		return s, false
	}
	defer unix.Close(dup)
	domain, err := unix.GetsockoptInt(dup, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return s, false
	}
	kind, _ := unix.GetsockoptInt(dup, unix.SOL_SOCKET, unix.SO_TYPE)
	protocol, _ := unix.GetsockoptInt(dup, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	s.proto = protoOf(domain, kind, protocol)
	s.cookie, _ = unix.GetsockoptUint64(dup, unix.SOL_SOCKET, unix.SO_COOKIE)
	if domain == unix.AF_INET || domain == unix.AF_INET6 {
		if a, err := unix.Getsockname(dup); err == nil {
			s.local = addrPort(a)
		}
		if a, err := unix.Getpeername(dup); err == nil {
			s.remote = addrPort(a)
		}
	}
	return s, true
}

func addrPort(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}

func protoOf(domain, kind, protocol int) bodycam.Proto {
	switch domain {
	case unix.AF_UNIX:
		return bodycam.ProtoUnix
	case unix.AF_PACKET:
		return bodycam.ProtoPacket
	case unix.AF_NETLINK:
		return bodycam.ProtoNetlink
	case unix.AF_VSOCK:
		return bodycam.ProtoVsock
	case unix.AF_INET, unix.AF_INET6:
		switch {
		case kind == unix.SOCK_RAW:
			return bodycam.ProtoRaw
		case protocol == unix.IPPROTO_TCP, protocol == unix.IPPROTO_MPTCP:
			return bodycam.ProtoTCP
		case protocol == unix.IPPROTO_ICMP, protocol == unix.IPPROTO_ICMPV6:
			return bodycam.ProtoICMP
		case protocol == unix.IPPROTO_UDP:
			return bodycam.ProtoUDP
		}
	}
	return bodycam.ProtoOther
}

// address reads a socket address that a call names.
func (t *task) address(addr uint64, size uint64) sockaddr {
	if n := int32(uint32(size)); addr == 0 || n < 2 {
		return sockaddr{}
	}
	b, err := t.read(addr, int(min(size, 128)))
	if err != nil {
		return sockaddr{}
	}
	return parseSockaddr(b)
}

// contact fills in whom an event's address means: as given, until the socket says it itself.
func (t *task) contact(e *bodycam.Event, a sockaddr) {
	e.Remote, e.UnixAddr = a.ip, a.unix
	if a.unix != "" {
		e.Proto = bodycam.ProtoUnix
		if a.unix[0] != '@' {
			e.PathGiven = a.unix
			o := t.resolve(unix.AT_FDCWD, a.unix, true)
			e.Path, e.Dev, e.Ino = o.path, o.dev, o.ino
			e.Marks |= o.marks
		}
	}
	e.Marks |= t.unverified()
}

// describe completes an event from the socket.
func (t *task) describe(e *bodycam.Event, fd int) (sock, bool) {
	s, ok := t.socket(fd)
	if ok {
		e.Proto, e.Local, e.Cookie = s.proto, s.local, s.cookie
	}
	return s, ok
}

func onConnect(t *task, c *call) *pending {
	a := t.address(c.args[1], c.args[2])
	fd := c.fd(0)
	e := t.event(bodycam.TypeConnect, c)
	t.contact(e, a)
	return &pending{ev: e, done: func(ret int64) bool {
		if s, ok := t.describe(e, fd); ok && ret == 0 && s.remote.IsValid() {
			e.Remote = s.remote
			e.Marks &^= bodycam.MarkUnverified
		}
		return true
	}, then: func(ret int64) {
		if ret == 0 || ret == -int64(unix.EINPROGRESS) {
			t.watch(fd, e)
		}
	}}
}

func onBind(t *task, c *call) *pending {
	e := t.event(bodycam.TypeBind, c)
	a := t.address(c.args[1], c.args[2])
	t.contact(e, a)
	e.Local, e.Remote = e.Remote, netip.AddrPort{}
	return &pending{ev: e, done: func(ret int64) bool {
		given := e.Local
		if _, ok := t.describe(e, c.fd(0)); ok && ret == 0 {
			e.Marks &^= bodycam.MarkUnverified
			return true
		}
		e.Local = given
		return true
	}}
}

func onListen(t *task, c *call) *pending {
	e := t.event(bodycam.TypeListen, c)
	return &pending{ev: e, done: func(int64) bool {
		t.describe(e, c.fd(0))
		return true
	}}
}

// onAccept leaves out that nobody came yet (EAGAIN).
func onAccept(t *task, c *call) *pending {
	e := t.event(bodycam.TypeAccept, c)
	return &pending{ev: e, done: func(ret int64) bool {
		if ret < 0 {
			return ret != -int64(unix.EAGAIN)
		}
		s, _ := t.describe(e, int(ret))
		e.Remote = s.remote
		return true
	}}
}

func onSendto(t *task, c *call) *pending {
	if c.args[4] == 0 { // on a connected socket
		return onWrite(t, c)
	}
	typ := bodycam.TypeSend
	if c.args[3]&unix.MSG_FASTOPEN != 0 {
		typ = bodycam.TypeConnect
	}
	fd := c.fd(0)
	e := t.event(typ, c)
	e.Flags = c.args[3]
	t.contact(e, t.address(c.args[4], c.args[5]))
	payload := t.payload(e, c.args[1], c.args[2])
	return &pending{ev: e, done: func(ret int64) bool {
		t.describe(e, fd)
		e.Bytes = uint64(max(ret, 0))
		return true
	}, then: func(ret int64) {
		if ret > 0 {
			t.watch(fd, e)
			t.asked(c, fd, payload)
		}
	}}
}

// payload reads what goes to a name server.
func (t *task) payload(e *bodycam.Event, addr, size uint64) []byte {
	if e.Remote.Port() != dnsPort {
		return nil
	}
	b, _ := t.read(addr, int(min(size, 4096)))
	return b
}

// message is a struct msghdr.
type message struct {
	name, nameLen, iov, iovLen, control, controlLen uint64
}

// size is that of struct msghdr.
func (message) size(c *call) int {
	if c.word() == 8 {
		return 56
	}
	return 28
}

func (t *task) message(c *call, addr uint64) (m message, ok bool) {
	w, err := t.words(c, addr, m.size(c)/c.word())
	if err != nil || len(w) < 6 {
		return m, false
	}
	return message{w[0], w[1] & 0xffffffff, w[2], w[3], w[4], w[5]}, true
}

// gather reads the memory that an array of struct iovec names, up to a limit.
func (t *task) gather(c *call, iov, n uint64, limit int) []byte {
	var out []byte
	w, err := t.words(c, iov, 2*int(min(n, 64)))
	if err != nil {
		return nil
	}
	for i := 0; i+1 < len(w) && len(out) < limit; i += 2 {
		if w[i+1] == 0 {
			continue
		}
		b, err := t.read(w[i], int(min(w[i+1], uint64(limit-len(out)))))
		if err != nil {
			break
		}
		out = append(out, b...)
	}
	return out
}

// passed returns the descriptors in a message's control data.
func (t *task) passed(c *call, m message) (fds []int) {
	if m.control == 0 || m.controlLen == 0 {
		return nil
	}
	b, err := t.read(m.control, int(min(m.controlLen, 8192)))
	if err != nil {
		return nil
	}
	return rights(b, c.word())
}

// rights finds SCM_RIGHTS among control messages whose length field has word bytes.
func rights(b []byte, word int) (fds []int) {
	head := word + 8
	for len(b) >= head {
		size := int(binary.LittleEndian.Uint32(b)) // never more than 32 bits
		if size < head || size > len(b) {
			break
		}
		level, typ := binary.LittleEndian.Uint32(b[word:]), binary.LittleEndian.Uint32(b[word+4:])
		if level == unix.SOL_SOCKET && typ == unix.SCM_RIGHTS {
			for d := b[head:size]; len(d) >= 4; d = d[4:] {
				fds = append(fds, int(int32(binary.LittleEndian.Uint32(d))))
			}
		}
		size = (size + word - 1) / word * word
		b = b[min(size, len(b)):]
	}
	return fds
}

// sending is one message on its way.
type sending struct {
	ev      *bodycam.Event // nil on a connected socket
	passed  []*bodycam.Event
	payload []byte
}

// sending looks at one message of sendmsg or sendmmsg.
func (t *task) sending(c *call, addr uint64) (s sending) {
	m, ok := t.message(c, addr)
	if !ok {
		return s
	}
	var to netip.AddrPort
	if m.name != 0 && m.nameLen > 0 {
		s.ev = t.event(bodycam.TypeSend, c)
		t.contact(s.ev, t.address(m.name, m.nameLen))
		to = s.ev.Remote
	}
	if d := t.p.dns[c.fd(0)]; d != nil || to.Port() == dnsPort {
		limit := 4096
		if d != nil && d.tcp {
			limit = 65537
		}
		s.payload = t.gather(c, m.iov, m.iovLen, limit)
	}
	for _, fd := range t.passed(c, m) {
		e := t.event(bodycam.TypePassFD, c)
		e.Detail, e.Proto = "sent", bodycam.ProtoUnix
		if o, err := t.inspect(t.procFD(fd)); err == nil {
			e.Path, e.Dev, e.Ino = o.path, o.dev, o.ino
			e.Marks |= o.marks
		}
		s.passed = append(s.passed, e)
	}
	return s
}

func (s *sending) nothing() bool { return s.ev == nil && s.passed == nil && s.payload == nil }

// sent records a message after its call.
func (t *task) sent(c *call, s *sending, ret int64) {
	fd := c.fd(0)
	for _, e := range append([]*bodycam.Event{s.ev}, s.passed...) {
		if e == nil {
			continue
		}
		if ret < 0 {
			e.Errno = int32(-ret)
		}
		if e == s.ev {
			t.describe(e, fd)
			e.Bytes = uint64(max(ret, 0))
		}
		t.s.emit(e)
	}
	if ret > 0 {
		if s.ev != nil {
			t.watch(fd, s.ev)
		}
		t.asked(c, fd, s.payload)
	}
}

func onSendmsg(t *task, c *call) *pending {
	s := t.sending(c, c.args[1])
	if s.nothing() {
		return nil
	}
	return &pending{done: func(ret int64) bool {
		t.sent(c, &s, ret)
		return false
	}}
}

func onSendmmsg(t *task, c *call) *pending {
	step := uint64(message{}.size(c) + c.word()) // struct mmsghdr: the header and a length
	var all []sending
	useful := false
	for i := range min(c.args[2], 1024) {
		s := t.sending(c, c.args[1]+i*step)
		useful = useful || !s.nothing()
		all = append(all, s)
	}
	if !useful {
		return nil
	}
	return &pending{done: func(ret int64) bool {
		if ret < 0 { // the first failed; the others were not tried
			t.sent(c, &all[0], ret)
			return false
		}
		for i := range min(int(ret), len(all)) {
			bytes := int64(1)
			if w, err := t.read(c.args[1]+uint64(i+1)*step-uint64(c.word()), 4); err == nil && len(w) == 4 {
				bytes = int64(binary.LittleEndian.Uint32(w))
			}
			t.sent(c, &all[i], bytes)
		}
		return false
	}}
}

// onRecvmsg looks for descriptors that come in, and for DNS answers.
func onRecvmsg(t *task, c *call) *pending {
	m, ok := t.message(c, c.args[1])
	d := t.p.dns[c.fd(0)]
	if !ok || (m.control == 0 || m.controlLen == 0) && d == nil {
		return nil
	}
	return &pending{done: func(ret int64) bool {
		if ret < 0 {
			return false
		}
		if d != nil {
			t.answered(c, d, t.gather(c, m.iov, m.iovLen, int(ret)))
		}
		m, ok := t.message(c, c.args[1])
		if !ok {
			return false
		}
		for _, fd := range t.passed(c, m) {
			e := t.event(bodycam.TypePassFD, c)
			e.Detail, e.Proto = "received", bodycam.ProtoUnix
			if o, err := t.inspect(t.procFD(fd)); err == nil {
				e.Path, e.Dev, e.Ino = o.path, o.dev, o.ino
				e.Marks |= o.marks
			}
			t.s.emit(e)
		}
		return false
	}}
}

// socketcalls are the numbers behind i386's socketcall, with how many arguments each takes.
var socketcalls = map[uint64]struct {
	on handler
	n  int
}{
	2: {onBind, 3}, 3: {onConnect, 3}, 4: {onListen, 2}, 5: {onAccept, 3}, 9: {onWrite, 4}, 10: {onRead, 4}, 11: {onSendto, 6},
	12: {onRead, 6}, 16: {onSendmsg, 3}, 17: {onRecvmsg, 3}, 18: {onAccept, 4}, 19: {onRecvmmsg, 5}, 20: {onSendmmsg, 4},
}

func onSocketcall(t *task, c *call) *pending {
	k, ok := socketcalls[c.args[0]]
	if !ok {
		return nil
	}
	w, err := t.words(c, c.args[1], k.n)
	if err != nil || len(w) < k.n {
		return nil
	}
	inner := *c
	clear(inner.args[:])
	copy(inner.args[:], w)
	return k.on(t, &inner)
}
