package ptrace

import (
	"encoding/binary"
	"net/netip"
)

// Address families, as numbers: what is parsed comes from another process, not from this one's headers.
const (
	afUnix  = 1
	afInet  = 2
	afInet6 = 10
)

// sockaddr is an address as a process handed it to the kernel.
type sockaddr struct {
	family uint16
	ip     netip.AddrPort
	unix   string // path, or "@name"
}

// parseSockaddr reads a struct sockaddr as the kernel would. What it does not know or what is too short has only a
// family, or nothing.
func parseSockaddr(b []byte) (a sockaddr) {
	if len(b) < 2 {
		return a
	}
	a.family = binary.LittleEndian.Uint16(b)
	switch a.family {
	case afInet:
		if len(b) >= 8 {
			a.ip = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:]))
		}
	case afInet6:
		if len(b) >= 24 {
			ip := netip.AddrFrom16([16]byte(b[8:24]))
			a.ip = netip.AddrPortFrom(ip.Unmap(), binary.BigEndian.Uint16(b[2:]))
		}
	case afUnix:
		name := b[2:min(len(b), 110)]
		switch {
		case len(name) == 0: // unnamed: autobind or disconnect
		case name[0] == 0: // abstract: every byte counts
			a.unix = "@" + string(name[1:])
		default:
			for i, c := range name {
				if c == 0 {
					name = name[:i]
					break
				}
			}
			a.unix = string(name)
		}
	}
	return a
}

// dnsMessage is what matters of a DNS message: the first question, and the addresses of an answer.
type dnsMessage struct {
	response bool
	name     string // raw bytes, labels joined by dots, without the last dot
	qtype    uint16
	answers  []netip.Addr
}

var dnsTypes = map[uint16]string{1: "A", 2: "NS", 5: "CNAME", 6: "SOA", 12: "PTR", 15: "MX", 16: "TXT", 28: "AAAA", 33: "SRV",
	41: "OPT", 64: "SVCB", 65: "HTTPS", 252: "AXFR", 255: "ANY"}

// parseDNS reads a message; ok is false where it isn't one with a question.
func parseDNS(b []byte) (m dnsMessage, ok bool) {
	if len(b) < 12 {
		return m, false
	}
	flags, questions, answers := binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:])
	m.response = flags&0x8000 != 0
	if flags>>11&15 != 0 || questions == 0 { // another opcode than QUERY, or nothing asked
		return m, false
	}
	name, at, ok := dnsName(b, 12)
	if !ok || at+4 > len(b) {
		return m, false
	}
	m.name, m.qtype = name, binary.BigEndian.Uint16(b[at:])
	at += 4
	if !m.response || questions != 1 {
		return m, true
	}
	for range answers {
		if _, at, ok = dnsName(b, at); !ok || at+10 > len(b) {
			break // cut answers: what was read stands
		}
		typ, size := binary.BigEndian.Uint16(b[at:]), int(binary.BigEndian.Uint16(b[at+8:]))
		at += 10
		if at+size > len(b) {
			break
		}
		switch {
		case typ == 1 && size == 4:
			m.answers = append(m.answers, netip.AddrFrom4([4]byte(b[at:at+4])))
		case typ == 28 && size == 16:
			m.answers = append(m.answers, netip.AddrFrom16([16]byte(b[at:at+16])))
		}
		at += size
	}
	return m, true
}

// dnsName reads a name at an offset and returns where it ends. A compression pointer must point backwards, so that
// no message can make it loop.
func dnsName(b []byte, at int) (name string, end int, ok bool) {
	var out []byte
	limit := at
	for at < len(b) {
		n := int(b[at])
		switch {
		case n == 0:
			if end == 0 {
				end = at + 1
			}
			return string(out), end, true
		case n&0xc0 == 0xc0:
			if at+1 >= len(b) {
				return "", 0, false
			}
			to := n&0x3f<<8 | int(b[at+1])
			if end == 0 {
				end = at + 2
			}
			if to >= limit {
				return "", 0, false
			}
			at, limit = to, to
		case n&0xc0 != 0 || at+1+n > len(b):
			return "", 0, false
		default:
			if len(out) > 0 {
				out = append(out, '.')
			}
			out = append(out, b[at+1:at+1+n]...)
			if len(out) > 254 {
				return "", 0, false
			}
			at += 1 + n
		}
	}
	return "", 0, false
}

// dnsStream cuts DNS over TCP into messages.
type dnsStream struct{ buf []byte }

// feed takes the next bytes and returns the messages that are whole.
func (s *dnsStream) feed(b []byte) (whole [][]byte) {
	s.buf = append(s.buf, b...)
	for len(s.buf) >= 2 {
		n := 2 + int(binary.BigEndian.Uint16(s.buf))
		if len(s.buf) < n {
			break
		}
		whole = append(whole, s.buf[2:n])
		s.buf = s.buf[n:]
	}
	return whole
}
