package names

import (
	"bytes"
	"strings"
)

// A sniffer reads along with what a client sends and reports the names in it. It never changes or delays a byte.
type sniffer struct {
	// found is called for each name; it must not keep the finding.
	found func(*finding)
	// proto is the protocol as far as it shows: "tls", "http", "h2c", "ssh", "socks", "git", "" when unknown.
	proto string
	// notes are words for the flow's Detail.
	notes []string

	phase phase
	buf   []byte
	hello helloReader
	seen  int // bytes of buf that hold no end of a request head
	body  bodySkipper
	depth int // of protocols inside proxies
}

type phase uint8

const (
	phaseStart phase = iota
	phaseTLS
	phaseHTTP
	phaseBody
	phaseSOCKS
	phaseSSH
	phaseDone
)

// finding is one name in a stream.
type finding struct {
	hello *hello
	head  *requestHead
	socks *socksRequest
}

// maxDepth bounds proxies inside proxies.
const maxDepth = 8

// done tells that the sniffer needs no more bytes.
func (s *sniffer) done() bool { return s.phase == phaseDone }

// feed reads the next bytes of the stream.
func (s *sniffer) feed(b []byte) {
	for len(b) > 0 && s.phase != phaseDone {
		if s.phase == phaseBody {
			var ended bool
			if b, ended = s.body.skip(b); ended {
				s.phase = phaseHTTP
			}
			if s.body.bad {
				s.stop("unread-requests")
			}
			continue
		}
		s.buf = append(s.buf, b...)
		b = nil
		for s.step() {
			if s.phase == phaseBody {
				b, s.buf = s.buf, nil
				break
			}
		}
	}
}

// step takes one thing off the buffer. It returns false when it needs more bytes or the sniffer is done.
func (s *sniffer) step() bool {
	if len(s.buf) == 0 {
		return false
	}
	switch s.phase {
	case phaseStart:
		return s.start()
	case phaseTLS:
		h, err := s.hello.read(s.buf)
		switch {
		case err == nil:
			s.found(&finding{hello: &h})
			s.finish()
		case err != errIncomplete || len(s.buf) > maxHello:
			s.stop("bad-client-hello")
		}
		return false
	case phaseHTTP:
		return s.http()
	case phaseSOCKS:
		q, n, err := parseSOCKS(s.buf)
		switch {
		case err == nil:
			s.found(&finding{socks: &q})
			s.buf = s.buf[n:]
			s.enter()
			return s.phase != phaseDone
		case err != errIncomplete || len(s.buf) > 1024:
			s.stop("")
		}
		return false
	case phaseSSH:
		if i := bytes.IndexByte(s.buf, '\n'); i >= 0 || len(s.buf) > 255 {
			if i < 0 {
				i = 255
			}
			s.stop("banner=" + word(strings.TrimRight(string(s.buf[:i]), "\r\n")))
		}
	}
	return false
}

// start tells the protocol by its first bytes.
func (s *sniffer) start() bool {
	b := s.buf
	switch {
	case b[0] == 22:
		s.name("tls")
		s.phase = phaseTLS
		return true
	case b[0] == 5 || b[0] == 4:
		s.name("socks")
		s.phase = phaseSOCKS
		return true
	case hasPrefixPartly(b, "SSH-"):
		if len(b) >= 4 {
			s.name("ssh")
			s.phase = phaseSSH
			return true
		}
		return false
	case hasPrefixPartly(b, "PRI * HTTP/2.0\r\n"):
		if len(b) >= 16 {
			s.name("h2c")
			s.stop("unread-requests")
		}
		return false
	case isGit(b):
		s.name("git")
		line := b[4:min(len(b), 1024)]
		if i := bytes.IndexByte(line, 0); i >= 0 {
			line = line[:i]
		}
		s.stop("request=" + word(string(line)))
		return false
	}
	ok, more := looksHTTP(b)
	if !ok {
		s.stop("")
		return false
	}
	if more {
		return false
	}
	s.phase = phaseHTTP
	return true
}

func (s *sniffer) http() bool {
	if !s.headEnded() {
		return false
	}
	h, n, err := parseHead(s.buf)
	if err == errIncomplete {
		return false
	}
	if err != nil {
		if s.proto != "" {
			s.notes = append(s.notes, "unread-requests")
		}
		s.stop("")
		return false
	}
	s.name("http")
	s.found(&finding{head: &h})
	s.buf = s.buf[n:]
	switch {
	case h.method == "CONNECT":
		s.enter()
		return s.phase != phaseDone
	case h.odd || h.upgrade:
		s.stop("unread-requests")
		return false
	}
	s.body = newBodySkipper(h.length)
	s.phase = phaseBody
	return true
}

// headEnded tells whether a whole request head is there, or so much that it can't be one. It looks at each byte
// once, so that a client which sends single bytes costs no more than others.
func (s *sniffer) headEnded() bool {
	from := max(0, s.seen-2)
	tail := s.buf[from:]
	if bytes.Contains(tail, []byte("\n\n")) || bytes.Contains(tail, []byte("\n\r\n")) || len(s.buf) > maxHead {
		s.seen = 0
		return true
	}
	s.seen = len(s.buf)
	return false
}

// enter begins anew for the stream inside a proxy's.
func (s *sniffer) enter() {
	if s.depth++; s.depth > maxDepth {
		s.finish()
		return
	}
	s.phase, s.hello = phaseStart, helloReader{}
}

func (s *sniffer) name(proto string) {
	switch {
	case s.proto == "":
		s.proto = proto
	case s.depth > 0 && !strings.HasSuffix(s.proto, proto):
		s.proto += "+" + proto
	}
}

func (s *sniffer) stop(note string) {
	if note != "" {
		s.notes = append(s.notes, note)
	}
	s.finish()
}

func (s *sniffer) finish() { s.phase, s.buf = phaseDone, nil }

// hasPrefixPartly tells whether b begins with prefix or is itself the beginning of it.
func hasPrefixPartly(b []byte, prefix string) bool {
	n := min(len(b), len(prefix))
	return string(b[:n]) == prefix[:n]
}

// isGit tells a request of the git protocol: a pkt-line with a git command.
func isGit(b []byte) bool {
	return len(b) >= 12 && string(b[4:8]) == "git-"
}

// word makes a value fit for an event's Detail, where words are separated by spaces: spaces and control
// characters become "_", and it is cut after 1,024 bytes.
func word(s string) string {
	if len(s) > 1024 {
		s = s[:1024] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, s)
}
