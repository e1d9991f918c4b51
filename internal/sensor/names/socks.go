package names

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"
)

// socksRequest is where a SOCKS client wants to go.
type socksRequest struct {
	version int    // 4 or 5
	command byte   // 1 CONNECT, 2 BIND, 3 UDP ASSOCIATE
	host    string // name or address
	port    uint16
	named   bool // host is a name
}

func (r *socksRequest) target() string {
	if r.named {
		return r.host + ":" + strconv.Itoa(int(r.port))
	}
	a, err := netip.ParseAddr(r.host)
	if err != nil {
		return r.host
	}
	return netip.AddrPortFrom(a, r.port).String()
}

var errNotSOCKS = errors.New("not a SOCKS request")

// parseSOCKS reads what a SOCKS4, 4a or 5 client sends until its request, from the start of the stream, and
// returns how many bytes that takes. SOCKS5 (RFC 1928) begins with a greeting, and the client may authenticate
// (RFC 1929) before its request.
func parseSOCKS(b []byte) (socksRequest, int, error) {
	if len(b) < 2 {
		return socksRequest{}, 0, errIncomplete
	}
	switch b[0] {
	case 4:
		return parseSOCKS4(b)
	case 5:
		return parseSOCKS5(b)
	}
	return socksRequest{}, 0, errNotSOCKS
}

func parseSOCKS4(b []byte) (socksRequest, int, error) {
	q := socksRequest{version: 4, command: b[1]}
	if q.command != 1 && q.command != 2 {
		return q, 0, errNotSOCKS
	}
	if len(b) < 9 {
		return q, 0, errIncomplete
	}
	q.port = binary.BigEndian.Uint16(b[2:])
	ip := [4]byte(b[4:8])
	_, off, err := cString(b, 8)
	if err != nil {
		return q, 0, err
	}
	if ip[0]|ip[1]|ip[2] == 0 && ip[3] != 0 { // 4a: the name follows
		name, next, err := cString(b, off)
		if err != nil {
			return q, 0, err
		}
		q.host, q.named = canonical(name), true
		return q, next, nil
	}
	q.host = netip.AddrFrom4(ip).String()
	return q, off, nil
}

func cString(b []byte, off int) (string, int, error) {
	for i := off; i < len(b); i++ {
		if b[i] == 0 {
			return string(b[off:i]), i + 1, nil
		}
		if i-off > 255 {
			return "", 0, errNotSOCKS
		}
	}
	return "", 0, errIncomplete
}

func parseSOCKS5(b []byte) (socksRequest, int, error) {
	q := socksRequest{version: 5}
	off := 2 + int(b[1])
	if b[1] == 0 || b[1] > 16 {
		return q, 0, errNotSOCKS
	}
	if len(b) <= off {
		return q, 0, errIncomplete
	}
	if b[off] == 1 { // user name and password: lengths only, the values are nobody's business
		if len(b) < off+2 {
			return q, 0, errIncomplete
		}
		off += 2 + int(b[off+1])
		if len(b) <= off {
			return q, 0, errIncomplete
		}
		off += 1 + int(b[off])
	}
	if len(b) < off+5 {
		return q, 0, errIncomplete
	}
	if b[off] != 5 || b[off+2] != 0 || b[off+1] < 1 || b[off+1] > 3 {
		return q, 0, errNotSOCKS
	}
	q.command = b[off+1]
	kind := b[off+3]
	off += 4
	size := 0
	switch kind {
	case 1:
		size = 4
	case 4:
		size = 16
	case 3:
		size = int(b[off])
		off++
	default:
		return q, 0, errNotSOCKS
	}
	if len(b) < off+size+2 {
		return q, 0, errIncomplete
	}
	if kind == 3 {
		q.host, q.named = canonical(string(b[off:off+size])), true
	} else {
		a, _ := netip.AddrFromSlice(b[off : off+size])
		q.host = a.String()
	}
	off += size
	q.port = binary.BigEndian.Uint16(b[off:])
	return q, off + 2, nil
}
