//go:build linux && amd64

package ptrace

import (
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

// dnsSocket is a socket that speaks to a name server. As long as a process has one, all its calls stop, so that
// questions by write and answers by read are seen as well; it is closed after a few calls.
type dnsSocket struct {
	tcp     bool
	remote  netip.AddrPort
	cookie  uint64
	out, in dnsStream
}

// maxDNSSockets bounds what a process that never closes them makes the recorder keep.
const maxDNSSockets = 256

// watch begins to follow a socket if its other end is a name server.
func (t *task) watch(fd int, e *bodycam.Event) {
	if e.Remote.Port() != dnsPort || e.Proto != bodycam.ProtoUDP && e.Proto != bodycam.ProtoTCP {
		delete(t.p.dns, fd)
		return
	}
	if t.p.dns == nil {
		t.p.dns = make(map[int]*dnsSocket)
	}
	if d := t.p.dns[fd]; d != nil && d.cookie == e.Cookie {
		d.remote = e.Remote
		return
	}
	if len(t.p.dns) < maxDNSSockets {
		t.p.dns[fd] = &dnsSocket{tcp: e.Proto == bodycam.ProtoTCP, remote: e.Remote, cookie: e.Cookie}
	}
}

// recheckDNS forgets sockets that were closed by an exec.
func (t *task) recheckDNS() {
	for fd := range t.p.dns {
		if link, err := os.Readlink(t.procFD(fd)); err != nil || !strings.HasPrefix(link, "socket:") {
			delete(t.p.dns, fd)
		}
	}
}

// asked records the questions in what went to a name server.
func (t *task) asked(c *call, fd int, payload []byte) {
	d := t.p.dns[fd]
	if d == nil || len(payload) == 0 {
		return
	}
	t.dns(c, d, d.messages(&d.out, payload), false)
}

// answered records the answers in what came from a name server.
func (t *task) answered(c *call, d *dnsSocket, payload []byte) {
	t.dns(c, d, d.messages(&d.in, payload), true)
}

func (d *dnsSocket) messages(s *dnsStream, b []byte) [][]byte {
	if d.tcp {
		return s.feed(b)
	}
	return [][]byte{b}
}

func (t *task) dns(c *call, d *dnsSocket, messages [][]byte, response bool) {
	for _, b := range messages {
		m, ok := parseDNS(b)
		if !ok || m.response != response || response && m.answers == nil {
			continue
		}
		e := t.event(bodycam.TypeDNS, c)
		e.Host, e.Answers, e.Remote, e.Cookie, e.Proto = m.name, m.answers, d.remote, d.cookie, bodycam.ProtoUDP
		if d.tcp {
			e.Proto = bodycam.ProtoTCP
		}
		e.Detail = dnsTypes[m.qtype]
		if e.Detail == "" {
			e.Detail = "TYPE" + strconv.Itoa(int(m.qtype))
		}
		e.Marks |= t.unverified()
		t.s.emit(e)
	}
}

// onWrite handles write and send on a name server's socket.
func onWrite(t *task, c *call) *pending {
	fd := c.fd(0)
	if t.p.dns[fd] == nil {
		return nil
	}
	payload, err := t.read(c.args[1], int(min(c.args[2], 65537)))
	if err != nil {
		return nil
	}
	return &pending{done: func(ret int64) bool {
		if ret > 0 {
			t.asked(c, fd, payload[:min(int(ret), len(payload))])
		}
		return false
	}}
}

func onWritev(t *task, c *call) *pending {
	fd := c.fd(0)
	if t.p.dns[fd] == nil {
		return nil
	}
	payload := t.gather(c, c.args[1], c.args[2], 65537)
	return &pending{done: func(ret int64) bool {
		if ret > 0 {
			t.asked(c, fd, payload[:min(int(ret), len(payload))])
		}
		return false
	}}
}

func onRead(t *task, c *call) *pending {
	d := t.p.dns[c.fd(0)]
	if d == nil {
		return nil
	}
	return &pending{done: func(ret int64) bool {
		if ret > 0 {
			if b, err := t.read(c.args[1], int(min(ret, 65537))); err == nil {
				t.answered(c, d, b)
			}
		}
		return false
	}}
}

func onReadv(t *task, c *call) *pending {
	d := t.p.dns[c.fd(0)]
	if d == nil {
		return nil
	}
	return &pending{done: func(ret int64) bool {
		if ret > 0 {
			t.answered(c, d, t.gather(c, c.args[1], c.args[2], int(min(ret, 65537))))
		}
		return false
	}}
}

func onRecvmmsg(t *task, c *call) *pending {
	d := t.p.dns[c.fd(0)]
	if d == nil {
		return nil
	}
	step := uint64(message{}.size(c) + c.word())
	return &pending{done: func(ret int64) bool {
		for i := range min(max(ret, 0), 1024) {
			at := c.args[1] + uint64(i)*step
			m, ok := t.message(c, at)
			n, err := t.read(at+step-uint64(c.word()), 4)
			if ok && err == nil && len(n) == 4 {
				t.answered(c, d, t.gather(c, m.iov, m.iovLen, int(min(uint64(n[0])|uint64(n[1])<<8, 65535))))
			}
		}
		return false
	}}
}

func onClose(t *task, c *call) *pending {
	delete(t.p.dns, c.fd(0))
	return nil
}

func onCloseRange(t *task, c *call) *pending {
	if c.args[2]&unix.CLOSE_RANGE_CLOEXEC == 0 {
		for fd := range t.p.dns {
			if uint64(fd) >= c.args[0]&0xffffffff && uint64(fd) <= c.args[1]&0xffffffff {
				delete(t.p.dns, fd)
			}
		}
	}
	return nil
}
