package names

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
)

// The DNS wire format (RFC 1035 section 4), as little of it as the recorder needs. It is our own because the
// names that matter most here are hostile ones: golang.org/x/net/dns/dnsmessage refuses labels with a dot in
// them, and a name that was refused could not be recorded. Tests hold this codec against dnsmessage.

// DNS record types that are treated each in its own way.
const (
	dnsA     = 1
	dnsNS    = 2
	dnsCNAME = 5
	dnsSOA   = 6
	dnsPTR   = 12
	dnsMX    = 15
	dnsTXT   = 16
	dnsAAAA  = 28
	dnsSRV   = 33
	dnsOPT   = 41
	dnsSVCB  = 64
	dnsHTTPS = 65
	dnsANY   = 255

	dnsClassIN = 1
)

// DNS response codes.
const (
	rcodeOK       = 0
	rcodeFormat   = 1
	rcodeServFail = 2
	rcodeNXDomain = 3
	rcodeNotImpl  = 4
	rcodeRefused  = 5
)

const (
	dnsHeaderLen = 12
	dnsMaxName   = 255 // bytes on the wire, with the root label
	dnsMaxUDP    = 512 // without EDNS
)

var errDNS = errors.New("not a DNS query")

// question is what a query asks. One query holds one question: no resolver sends more, and no server answers more.
type question struct {
	id        uint16
	recursion bool
	opcode    byte
	// name is the asked name as given, without the dot at its end: labels joined by dots. A dot or backslash that
	// is part of a label has a backslash before it (RFC 1035 section 5.1); every other byte is as it was.
	name  string
	qtype uint16
	class uint16
	// raw is the question section as it came, to be echoed.
	raw []byte
	// edns is the UDP size that the client takes; 0 without EDNS.
	edns uint16
}

// parseQuery reads a query. Compression pointers in the question are refused: there is nothing to point back at.
func parseQuery(b []byte) (question, error) {
	var q question
	if len(b) < dnsHeaderLen {
		return q, errDNS
	}
	q.id = binary.BigEndian.Uint16(b)
	flags := binary.BigEndian.Uint16(b[2:])
	q.opcode = byte(flags >> 11 & 15)
	q.recursion = flags&0x0100 != 0
	if flags&0x8000 != 0 || binary.BigEndian.Uint16(b[4:]) != 1 {
		return q, errDNS
	}
	name, next, err := readName(b, dnsHeaderLen)
	if err != nil || next+4 > len(b) {
		return q, errDNS
	}
	q.name = name
	q.qtype = binary.BigEndian.Uint16(b[next:])
	q.class = binary.BigEndian.Uint16(b[next+2:])
	q.raw = b[dnsHeaderLen : next+4]
	q.edns = findOPT(b, next+4)
	return q, nil
}

// readName reads an uncompressed name.
func readName(b []byte, off int) (string, int, error) {
	var s strings.Builder
	start := off
	for {
		if off >= len(b) {
			return "", 0, errDNS
		}
		n := int(b[off])
		off++
		if n == 0 {
			break
		}
		if n > 63 || off+n > len(b) || off+n-start >= dnsMaxName {
			return "", 0, errDNS
		}
		if s.Len() > 0 {
			s.WriteByte('.')
		}
		for _, c := range b[off : off+n] {
			if c == '.' || c == '\\' {
				s.WriteByte('\\')
			}
			s.WriteByte(c)
		}
		off += n
	}
	return s.String(), off, nil
}

// skipName finds the end of a name that may be compressed.
func skipName(b []byte, off int) (int, error) {
	for off < len(b) {
		n := int(b[off])
		switch {
		case n == 0:
			return off + 1, nil
		case n&0xc0 == 0xc0:
			if off+2 > len(b) {
				return 0, errDNS
			}
			return off + 2, nil
		case n > 63:
			return 0, errDNS
		}
		off += 1 + n
	}
	return 0, errDNS
}

// record is where one resource record lies in a message.
type record struct {
	rtype      uint16
	class      uint16
	data, next int // offsets of the data and of what follows it
}

func readRecord(b []byte, off int) (record, error) {
	off, err := skipName(b, off)
	if err != nil || off+10 > len(b) {
		return record{}, errDNS
	}
	r := record{rtype: binary.BigEndian.Uint16(b[off:]), class: binary.BigEndian.Uint16(b[off+2:]), data: off + 10}
	r.next = r.data + int(binary.BigEndian.Uint16(b[off+8:]))
	if r.next > len(b) {
		return record{}, errDNS
	}
	return r, nil
}

// findOPT returns the UDP size of an EDNS record (RFC 6891) after the question, 0 if there is none.
func findOPT(b []byte, off int) uint16 {
	n := int(binary.BigEndian.Uint16(b[6:])) + int(binary.BigEndian.Uint16(b[8:])) + int(binary.BigEndian.Uint16(b[10:]))
	for range n {
		r, err := readRecord(b, off)
		if err != nil {
			return 0
		}
		if r.rtype == dnsOPT {
			return max(r.class, dnsMaxUDP)
		}
		off = r.next
	}
	return 0
}

// answer is one record of a reply to the asked name.
type answer struct {
	rtype uint16
	data  []byte
}

func addrAnswer(a netip.Addr) answer {
	if a.Is4() {
		return answer{dnsA, a.AsSlice()}
	}
	return answer{dnsAAAA, a.AsSlice()}
}

// reply builds a response. Answers are for the asked name itself, which is why the compression pointer to the
// question suffices for each.
func reply(q *question, rcode int, ttl uint32, answers []answer) []byte {
	b := make([]byte, dnsHeaderLen, dnsHeaderLen+len(q.raw)+32*len(answers)+11)
	binary.BigEndian.PutUint16(b, q.id)
	flags := uint16(0x8080) | uint16(q.opcode)<<11 | uint16(rcode) // response, recursion available
	if q.recursion {
		flags |= 0x0100
	}
	binary.BigEndian.PutUint16(b[2:], flags)
	if len(q.raw) > 0 {
		binary.BigEndian.PutUint16(b[4:], 1)
	}
	binary.BigEndian.PutUint16(b[6:], uint16(len(answers)))
	b = append(b, q.raw...)
	for _, a := range answers {
		b = append(b, 0xc0, dnsHeaderLen)
		b = binary.BigEndian.AppendUint16(b, a.rtype)
		b = binary.BigEndian.AppendUint16(b, dnsClassIN)
		b = binary.BigEndian.AppendUint32(b, ttl)
		b = binary.BigEndian.AppendUint16(b, uint16(len(a.data)))
		b = append(b, a.data...)
	}
	return appendOPT(b, q)
}

// appendOPT answers EDNS with EDNS.
func appendOPT(b []byte, q *question) []byte {
	if q.edns == 0 {
		return b
	}
	binary.BigEndian.PutUint16(b[10:], binary.BigEndian.Uint16(b[10:])+1)
	return append(b, 0, 0, dnsOPT, 0x04, 0xd0, 0, 0, 0, 0, 0, 0) // root, OPT, 1,232 bytes
}

// truncate makes a reply fit for UDP: one that doesn't is emptied and says so, and the client asks by TCP.
func truncate(b []byte, q *question) []byte {
	limit := dnsMaxUDP
	if q.edns > dnsMaxUDP {
		limit = int(min(q.edns, 1232))
	}
	if len(b) <= limit {
		return b
	}
	short := reply(q, int(b[3]&15), 0, nil)
	short[2] |= 0x02
	return short
}

// relay turns what an upstream server answered into a reply to q: the answer section alone, since additional
// records would give real addresses for names that have synthetic ones here. Records of address types are
// dropped for the same reason. It returns the number of answers that were kept.
func relay(upstream []byte, q *question) ([]byte, int, error) {
	if len(upstream) < dnsHeaderLen || upstream[2]&0x80 == 0 {
		return nil, 0, errDNS
	}
	questions := int(binary.BigEndian.Uint16(upstream[4:]))
	count := int(binary.BigEndian.Uint16(upstream[6:]))
	off := dnsHeaderLen
	for range questions {
		next, err := skipName(upstream, off)
		if err != nil || next+4 > len(upstream) {
			return nil, 0, errDNS
		}
		off = next + 4
	}
	if questions != 1 {
		return nil, 0, errDNS
	}
	end := off
	kept := 0
	for range count {
		r, err := readRecord(upstream, end)
		if err != nil {
			return nil, 0, errDNS
		}
		if r.rtype == dnsA || r.rtype == dnsAAAA {
			break // compression pointers only point backwards, so a message can be cut anywhere between records
		}
		end = r.next
		kept++
	}
	b := append([]byte(nil), upstream[:end]...)
	binary.BigEndian.PutUint16(b, q.id)
	b[2] &^= 0x02 // asked again by TCP where it was cut
	binary.BigEndian.PutUint16(b[6:], uint16(kept))
	binary.BigEndian.PutUint32(b[8:], 0)
	return appendOPT(b, q), kept, nil
}

// canonical is the form of a name that compares: ASCII letters in lower case, no dot at the end.
func canonical(name string) string {
	name = strings.TrimSuffix(name, ".")
	for i := 0; i < len(name); i++ {
		if c := name[i]; c >= 'A' && c <= 'Z' {
			return lowerASCII(name)
		}
	}
	return name
}

func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// arpaAddr reads the address out of a name for reverse look-up (in-addr.arpa, ip6.arpa).
func arpaAddr(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		p := strings.Split(rest, ".")
		if len(p) != 4 {
			return netip.Addr{}, false
		}
		a, err := netip.ParseAddr(p[3] + "." + p[2] + "." + p[1] + "." + p[0])
		return a, err == nil
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa")
	if !ok || len(rest) != 63 {
		return netip.Addr{}, false
	}
	var hex [39]byte
	out := hex[:0]
	for i := 0; i < 32; i++ {
		c := rest[62-2*i]
		if i > 0 && rest[63-2*i] != '.' {
			return netip.Addr{}, false
		}
		if i > 0 && i%4 == 0 {
			out = append(out, ':')
		}
		out = append(out, c)
	}
	a, err := netip.ParseAddr(string(out))
	return a, err == nil
}

// wireName encodes a canonical name that is known to be well formed, for the data of PTR records.
func wireName(name string) []byte {
	var out, label []byte
	flush := func() {
		if len(label) > 0 && len(label) < 64 {
			out = append(append(out, byte(len(label))), label...)
		}
		label = label[:0]
	}
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c == '\\' && i+1 < len(name):
			i++
			label = append(label, name[i])
		case c == '.':
			flush()
		default:
			label = append(label, c)
		}
	}
	flush()
	return append(out, 0)
}

// dnsTypeNames are those that occur in practice; others are written TYPEnnn (RFC 3597).
var dnsTypeNames = map[uint16]string{
	dnsA: "A", dnsNS: "NS", dnsCNAME: "CNAME", dnsSOA: "SOA", dnsPTR: "PTR", dnsMX: "MX", dnsTXT: "TXT",
	dnsAAAA: "AAAA", dnsSRV: "SRV", dnsSVCB: "SVCB", dnsHTTPS: "HTTPS", dnsANY: "ANY",
}
