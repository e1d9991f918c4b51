package names

import (
	"crypto/sha256"
	"hash"
	"io"
	"net/netip"
	"slices"
	"sync"

	"net/http"
)

// Content is one exchange that passed through the proxy in the clear.
type Content struct {
	Time  int64  // when it began: wall clock, nanoseconds since 1970
	Boot  uint64 // the same since boot
	Proto string // "HTTP/1.1", "HTTP/2.0", "smtp", "git", "tcp", "tls" (other than HTTP, opened)

	Client netip.AddrPort
	Remote netip.AddrPort // as the sandbox saw it
	Host   string
	Target string // what answered: "upstream", "forward", "stand-in"

	// Of HTTP: names of header fields only, sorted. Their values carry credentials.
	Method, URL    string
	Status         int
	RequestHeader  []string
	ResponseHeader []string

	Request, Response Body
	Err               string // why the exchange did not end well
}

// Body is what was sent one way.
type Body struct {
	Bytes  uint64
	SHA256 [32]byte // of the whole
	Data   []byte   // its beginning, up to Options.MaxBody
}

// Cut tells whether Data is not the whole.
func (b *Body) Cut() bool { return uint64(len(b.Data)) < b.Bytes }

// capture takes a copy of bytes that pass.
type capture struct {
	mu   sync.Mutex
	hash hash.Hash
	body Body
	max  int
}

func newCapture(max int) *capture { return &capture{hash: sha256.New(), max: max} }

func (c *capture) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hash.Write(b)
	c.body.Bytes += uint64(len(b))
	if room := c.max - len(c.body.Data); room > 0 {
		c.body.Data = append(c.body.Data, b[:min(room, len(b))]...)
	}
	return len(b), nil
}

// result is what passed so far.
func (c *capture) result() Body {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.body
	b.Data = slices.Clone(b.Data)
	c.hash.Sum(b.SHA256[:0])
	return b
}

// captured reads through to a body and takes a copy.
type captured struct {
	io.ReadCloser
	to *capture
}

func (c *captured) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.to.Write(b[:n])
	return n, err
}

// capturedDuplex is the same for a connection that an upgrade has made of a response.
type capturedDuplex struct {
	io.ReadWriteCloser
	in, out *capture
}

func (c *capturedDuplex) Read(b []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(b)
	c.in.Write(b[:n])
	return n, err
}

func (c *capturedDuplex) Write(b []byte) (int, error) {
	n, err := c.ReadWriteCloser.Write(b)
	c.out.Write(b[:n])
	return n, err
}

func headerNames(h http.Header) []string {
	out := make([]string, 0, len(h))
	for k := range h {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
