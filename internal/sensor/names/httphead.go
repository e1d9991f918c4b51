package names

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// requestHead is the start of an HTTP/1 request, as far as it names things.
type requestHead struct {
	method string
	target string // as given: path, absolute URL (to a proxy), or authority (CONNECT)
	proto  string
	host   string // Host header, or the authority of an absolute target, which outranks it (RFC 9112 section 3.2.2)
	// viaProxy tells that the target is absolute or that the method is CONNECT: the client talks to a proxy, and
	// host is where it wants to go through it.
	viaProxy bool
	upgrade  bool
	// length is that of the body; -1 for chunked.
	length int64
	// odd tells that the framing can be read in two ways (several lengths, length and chunked): what follows
	// this head on the connection is then not read, because the server might read it otherwise.
	odd bool
}

// maxHead bounds a request head; larger ones are refused by all common servers.
const maxHead = 64 << 10

var errNotHTTP = errors.New("not an HTTP/1 request")

// looksHTTP tells whether b can be the start of an HTTP/1 request: a method in capitals and a space. It is true
// for a prefix of one. more is set where b is too short to tell.
func looksHTTP(b []byte) (ok, more bool) {
	for i, c := range b {
		switch {
		case c == ' ':
			return i >= 3, false
		case c >= 'A' && c <= 'Z' || c == '-' && i > 0:
			if i >= 24 {
				return false, false
			}
		default:
			return false, false
		}
	}
	return true, true
}

// parseHead reads a request head from the start of b and returns how many bytes it takes. Both CRLF and LF end a
// line, as servers accept it.
func parseHead(b []byte) (requestHead, int, error) {
	var h requestHead
	if ok, more := looksHTTP(b); !ok {
		return h, 0, errNotHTTP
	} else if more {
		return h, 0, errIncomplete
	}
	line, off, ok := cutLine(b, 0)
	if !ok {
		return h, 0, incompleteHead(b)
	}
	parts := strings.Fields(line)
	if len(parts) != 3 || !strings.HasPrefix(parts[2], "HTTP/1.") {
		return h, 0, errNotHTTP
	}
	h.method, h.target, h.proto = parts[0], parts[1], parts[2]
	hosts, lengths, chunked := 0, 0, false
	for {
		line, off, ok = cutLine(b, off)
		if !ok {
			return h, 0, incompleteHead(b)
		}
		if line == "" {
			break
		}
		key, value, found := strings.Cut(line, ":")
		if !found {
			continue
		}
		value = strings.Trim(value, " \t")
		switch lowerASCII(strings.TrimRight(key, " \t")) {
		case "host":
			if hosts++; hosts == 1 {
				h.host = value
			}
		case "content-length":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 0 {
				h.odd = true
			}
			lengths++
			h.length = max(n, 0)
		case "transfer-encoding":
			chunked = true
			h.odd = h.odd || !strings.EqualFold(value, "chunked")
		case "upgrade":
			h.upgrade = true
		}
	}
	h.odd = h.odd || hosts > 1 || lengths > 1 || lengths > 0 && chunked
	if chunked {
		h.length = -1
	}
	h.authority()
	return h, off, nil
}

// authority lets the target outrank the Host header where it names a host.
func (h *requestHead) authority() {
	if h.method == "CONNECT" {
		h.host, h.viaProxy = h.target, true
		return
	}
	if _, rest, ok := strings.Cut(h.target, "://"); ok && !strings.HasPrefix(h.target, "/") {
		rest, _, _ = strings.Cut(rest, "/")
		rest, _, _ = strings.Cut(rest, "?")
		if i := strings.LastIndexByte(rest, '@'); i >= 0 {
			rest = rest[i+1:]
		}
		h.host, h.viaProxy = rest, true
	}
}

func incompleteHead(b []byte) error {
	if len(b) > maxHead {
		return errNotHTTP
	}
	return errIncomplete
}

func cutLine(b []byte, off int) (string, int, bool) {
	i := bytes.IndexByte(b[off:], '\n')
	if i < 0 {
		return "", off, false
	}
	return string(bytes.TrimSuffix(b[off:off+i], []byte("\r"))), off + i + 1, true
}

// splitHostPort separates a port from a host, leniently: what has no port is a host, brackets are taken off.
func splitHostPort(s string) (host, port string) {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		host, port, _ = strings.Cut(rest, "]")
		return canonical(host), strings.TrimPrefix(port, ":")
	}
	if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.IndexByte(s, ':') == i {
		return canonical(s[:i]), s[i+1:]
	}
	return canonical(s), ""
}

// bodySkipper finds the end of a request's body in a stream.
type bodySkipper struct {
	left    int64 // bytes of the body or of the current chunk
	chunked bool
	// state of the chunked coding
	inTrailer bool
	afterData bool
	line      []byte
	bad       bool
}

func newBodySkipper(length int64) bodySkipper {
	if length < 0 {
		return bodySkipper{chunked: true}
	}
	return bodySkipper{left: length}
}

// skip consumes body bytes from b. It returns what is left of b, and whether the body has ended.
func (s *bodySkipper) skip(b []byte) (rest []byte, done bool) {
	for {
		if s.left > 0 {
			n := min(s.left, int64(len(b)))
			s.left -= n
			b = b[n:]
			if s.left > 0 {
				return nil, false
			}
		}
		if !s.chunked {
			return b, true
		}
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			s.line = append(s.line, b...)
			s.bad = len(s.line) > 4096
			return nil, s.bad
		}
		line := string(bytes.TrimRight(append(s.line, b[:i]...), "\r"))
		s.line = s.line[:0]
		b = b[i+1:]
		switch {
		case s.inTrailer:
			if line == "" {
				return b, true
			}
		case s.afterData:
			s.afterData = false
			s.bad = line != ""
		default:
			size, _, _ := strings.Cut(line, ";")
			n, err := strconv.ParseUint(strings.TrimSpace(size), 16, 62)
			s.bad = err != nil
			s.left = int64(n)
			s.afterData = n > 0
			s.inTrailer = n == 0
		}
		if s.bad {
			return nil, true
		}
	}
}
