package names

import (
	"encoding/binary"
	"errors"
	"strings"
)

// hello is what a TLS ClientHello (RFC 8446 section 4.1.2) says in the clear.
type hello struct {
	sni  string   // server_name, lower case; "" if there is none
	alpn []string // application protocols offered
	// ech tells that an encrypted ClientHello came along: sni may be a cover name. Browsers send a meaningless one
	// at random (GREASE), which looks the same: it is a mark, not a finding.
	ech     bool
	version uint16 // highest version offered
}

const (
	extServerName        = 0
	extALPN              = 16
	extSupportedVersions = 43
	extECH               = 0xfe0d

	// maxHello bounds the bytes that are kept while a ClientHello is incomplete. Real ones, post-quantum key
	// shares included, are below 4 KiB.
	maxHello = 64 << 10
)

var (
	errIncomplete = errors.New("more bytes are needed")
	errNotTLS     = errors.New("not a TLS ClientHello")
)

// parseHello reads a ClientHello from the start of a stream. With errIncomplete the caller comes again with more.
func parseHello(b []byte) (hello, error) {
	var r helloReader
	return r.read(b)
}

// helloReader puts a ClientHello together that may be split over several records. It looks at each byte once,
// however small the pieces are that a client sends.
type helloReader struct {
	next int // where the next record begins in the stream
	msg  []byte
}

// read continues with a stream of which more may be there than at the last call.
func (r *helloReader) read(b []byte) (hello, error) {
	for {
		rest := b[min(r.next, len(b)):]
		if len(rest) > 0 && rest[0] != 22 || len(rest) > 1 && rest[1] != 3 {
			return hello{}, errNotTLS
		}
		if len(rest) < 5 {
			return hello{}, errIncomplete
		}
		n := int(binary.BigEndian.Uint16(rest[3:]))
		if n == 0 || n > 1<<14+256 || len(r.msg) == 0 && len(rest) > 5 && rest[5] != 1 {
			return hello{}, errNotTLS
		}
		if len(rest) < 5+n {
			return hello{}, errIncomplete // nor will a server act on part of a record
		}
		r.msg = append(r.msg, rest[5:5+n]...)
		r.next += 5 + n
		if len(r.msg) < 4 {
			continue
		}
		want := 4 + int(r.msg[1])<<16 + int(r.msg[2])<<8 + int(r.msg[3])
		if want > maxHello {
			return hello{}, errNotTLS
		}
		if len(r.msg) >= want {
			return parseHelloMessage(r.msg[4:want])
		}
	}
}

func parseHelloMessage(b []byte) (hello, error) {
	var h hello
	r := reader{b: b}
	h.version = r.u16()
	r.take(32)           // random
	r.take(int(r.u8()))  // session id
	r.take(int(r.u16())) // cipher suites
	r.take(int(r.u8()))  // compression methods
	if r.bad {
		return hello{}, errNotTLS
	}
	if len(r.b) == 0 {
		return h, nil // no extensions: SSL 3 and early TLS
	}
	exts := reader{b: r.take(int(r.u16()))}
	for !exts.bad && len(exts.b) > 0 {
		kind := exts.u16()
		body := reader{b: exts.take(int(exts.u16()))}
		switch kind {
		case extServerName:
			h.sni = readServerName(&body)
		case extALPN:
			list := reader{b: body.take(int(body.u16()))}
			for !list.bad && len(list.b) > 0 {
				if p := list.take(int(list.u8())); !list.bad {
					h.alpn = append(h.alpn, string(p))
				}
			}
		case extSupportedVersions:
			list := reader{b: body.take(int(body.u8()))}
			for !list.bad && len(list.b) > 0 {
				if v := list.u16(); v&0x0f0f != 0x0a0a { // not GREASE
					h.version = max(h.version, v)
				}
			}
		case extECH:
			h.ech = true
		}
	}
	if r.bad || exts.bad {
		return hello{}, errNotTLS
	}
	return h, nil
}

func readServerName(body *reader) string {
	list := reader{b: body.take(int(body.u16()))}
	for !list.bad && len(list.b) > 0 {
		kind := list.u8()
		name := list.take(int(list.u16()))
		if kind == 0 && !list.bad {
			return canonical(string(name))
		}
	}
	return ""
}

// versionName is the usual name of a TLS version.
func versionName(v uint16) string {
	switch v {
	case 0x0304:
		return "1.3"
	case 0x0303:
		return "1.2"
	case 0x0302:
		return "1.1"
	case 0x0301:
		return "1.0"
	case 0x0300:
		return "ssl3"
	}
	return "unknown"
}

// words describes a hello for an event's Detail.
func (h *hello) words() string {
	w := "tls=" + versionName(h.version)
	if len(h.alpn) > 0 {
		w += " alpn=" + word(strings.Join(h.alpn, ","))
	}
	if h.ech {
		w += " ech"
	}
	if h.sni == "" {
		w += " no-sni"
	}
	return w
}

// reader takes big-endian values off the front of b. After the first read past the end, bad stays set and
// everything reads as zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.bad = true
		r.b = nil
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) u8() byte {
	if v := r.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if v := r.take(2); v != nil {
		return binary.BigEndian.Uint16(v)
	}
	return 0
}
