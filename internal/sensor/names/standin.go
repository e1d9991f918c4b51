package names

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// The stand-in of mode Sink answers for hosts that are not listed, politely enough that a program which means to
// send something away goes on to send it. What it was sent is kept, up to a cap, with digests. Nothing leaves.

// standIn serves a connection in place of its host.
func (c *conn) standIn() {
	c.upstream = "stand-in"
	k := &work{c: c, scheme: "http", standIn: true}
	wait := time.Duration(0) // nobody but the client has anything to say
	if speaksFirst(c.dst.Port()) {
		wait = c.p.o.firstWait
	}
	c.peek(wait, true)
	for depth := 0; depth < maxDepth && c.standInConnect(); depth++ {
		c.peek(0, true)
	}
	plain := c.speaksHTTP()
	switch {
	case len(c.pre) > 0 && c.pre[0] == 22:
		c.open(k)
	case len(c.pre) > 0 && plain:
		c.sniff.name("http")
		s := c.stream()
		c.p.web.serve(&webConn{s, k}, s)
	default:
		c.sniff.feed(c.pre)
		s := c.stream()
		defer s.Close()
		c.standInRaw(s, "tcp")
	}
}

// speaksHTTP reads up to the end of the first line, where that can still become an HTTP request's, and tells whether
// it is one. Anything else is kept as it comes, also if it begins with a word in capitals.
func (c *conn) speaksHTTP() bool {
	if ok, _ := looksHTTP(c.pre); !ok || len(c.pre) == 0 || c.raw.SetReadDeadline(time.Now().Add(helloWait)) != nil {
		return false
	}
	defer func() { _ = c.raw.SetReadDeadline(time.Time{}) }() // fails only on a connection that is gone
	buf := make([]byte, 4096)
	for {
		line, _, whole := bytes.Cut(c.pre, []byte("\n"))
		if whole {
			f := bytes.Fields(line)
			return len(f) == 3 && bytes.HasPrefix(f[2], []byte("HTTP/"))
		}
		if ok, _ := looksHTTP(c.pre); !ok || len(c.pre) > maxHead {
			return false
		}
		n, err := c.raw.Read(buf)
		c.pre = append(c.pre, buf[:n]...)
		if err != nil {
			return false
		}
	}
}

// standInConnect plays an HTTP proxy that lets a client through to wherever it wants, which is here again. It
// returns false if that is not what the client asks for.
func (c *conn) standInConnect() bool {
	if len(c.pre) == 0 || !hasPrefixPartly(c.pre, "CONNECT ") {
		return false
	}
	buf := make([]byte, 4096)
	if c.raw.SetReadDeadline(time.Now().Add(helloWait)) != nil {
		return false
	}
	for {
		h, n, err := parseHead(c.pre)
		if err == nil {
			c.sniff.name("http")
			c.found(&finding{head: &h})
			c.pre = c.pre[n:]
			c.up.Add(uint64(n))
			sent, err := io.WriteString(c.raw, "HTTP/1.1 200 Connection established\r\n\r\n")
			c.down.Add(uint64(sent))
			return err == nil && c.raw.SetReadDeadline(time.Time{}) == nil
		}
		if err != errIncomplete {
			return false
		}
		got, err := c.raw.Read(buf)
		c.pre = append(c.pre, buf[:got]...)
		if err != nil {
			return false
		}
	}
}

// standInRaw serves what isn't HTTP.
func (c *conn) standInRaw(client net.Conn, proto string) {
	wall, boot := now()
	sent, got := newCapture(c.p.o.MaxBody), newCapture(c.p.o.MaxBody)
	tap := &tapped{Conn: client, sent: sent, got: got}
	r := bufio.NewReader(tap)
	var err error
	switch {
	case isMailPort(c.dst.Port()):
		proto = "smtp"
		err = standInSMTP(tap, r)
	default:
		if c.dst.Port() == 22 {
			_, err = io.WriteString(tap, "SSH-2.0-OpenSSH_9.2\r\n")
		}
		if first, _ := r.Peek(12); isGit(first) {
			proto = "git"
			err = standInGit(tap, r)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
	}
	if err == nil {
		err = closeWrite(client)
	}
	x := Content{Time: wall, Boot: boot, Proto: proto, Client: c.client, Remote: c.dst, Target: "stand-in",
		Request: sent.result(), Response: got.result()}
	x.Host, _ = c.host()
	c.sniff.name(proto)
	if err != nil {
		c.broken(err, client)
		x.Err = err.Error()
	}
	if c.p.o.Content != nil {
		c.p.o.Content(&x)
	}
}

// tapped keeps a copy of both directions of a connection.
type tapped struct {
	net.Conn
	sent, got *capture
}

func (t *tapped) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	t.sent.Write(b[:n])
	return n, err
}

func (t *tapped) Write(b []byte) (int, error) {
	n, err := t.Conn.Write(b)
	t.got.Write(b[:n])
	return n, err
}

// standInHTTP answers a request: 200 to all, and as an empty repository to git.
func standInHTTP(rw http.ResponseWriter, r *http.Request, x *exchange) {
	h := rw.Header()
	answer := func(kind string, body []byte) {
		h.Set("Content-Type", kind)
		h.Set("Cache-Control", "no-cache")
		x.answered(http.StatusOK, h)
		x.response.Write(body)
		_, _ = rw.Write(body) // the client may have gone: what it sent is what matters
	}
	service := r.URL.Query().Get("service")
	switch {
	case strings.HasSuffix(r.URL.Path, "/info/refs") && strings.HasPrefix(service, "git-"):
		answer("application/x-"+service+"-advertisement",
			append(pktLine("# service="+service+"\n"), append([]byte("0000"), gitRefs(service)...)...))
		return
	case strings.HasSuffix(r.URL.Path, "/git-receive-pack"):
		body := bufio.NewReader(r.Body)
		refs := readPushCommands(body)
		_, _ = io.Copy(io.Discard, body)
		answer("application/x-git-receive-pack-result", pushReport(refs))
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		x.c.Err, x.errno = "reading the request's body: "+err.Error(), errnoOf(err)
	}
	if strings.Contains(r.Header.Get("Accept"), "json") || strings.Contains(r.Header.Get("Content-Type"), "json") {
		answer("application/json", []byte("{}\n"))
		return
	}
	answer("text/plain; charset=utf-8", []byte("ok\n"))
}

func pktLine(s string) []byte { return fmt.Appendf(nil, "%04x%s", len(s)+4, s) }

// gitRefs is how an empty repository advertises itself (gitprotocol-pack).
func gitRefs(service string) []byte {
	caps := "report-status delete-refs ofs-delta agent=git/2.39"
	if service == "git-upload-pack" {
		caps = "multi_ack side-band-64k ofs-delta agent=git/2.39"
	}
	return append(pktLine(strings.Repeat("0", 40)+" capabilities^{}\x00"+caps+"\n"), "0000"...)
}

// readPushCommands reads "old new ref" lines until the flush packet that the pack follows.
func readPushCommands(r *bufio.Reader) []string {
	var refs []string
	for len(refs) < 1024 {
		size := make([]byte, 4)
		if _, err := io.ReadFull(r, size); err != nil {
			return refs
		}
		var n int
		if _, err := fmt.Sscanf(string(size), "%04x", &n); err != nil || n < 4 || n > 65520 {
			return refs
		}
		line := make([]byte, n-4)
		if _, err := io.ReadFull(r, line); err != nil {
			return refs
		}
		line, _, _ = bytes.Cut(line, []byte{0})
		if f := strings.Fields(string(line)); len(f) == 3 {
			refs = append(refs, f[2])
		}
	}
	return refs
}

func pushReport(refs []string) []byte {
	out := pktLine("unpack ok\n")
	for _, r := range refs {
		out = append(out, pktLine("ok "+r+"\n")...)
	}
	return append(out, "0000"...)
}

// standInGit speaks the git protocol's own transport (port 9418).
func standInGit(w io.Writer, r *bufio.Reader) error {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return err
	}
	var n int
	if _, err := fmt.Sscanf(string(head), "%04x", &n); err != nil || n < 4 || n > 65520 {
		return nil // not git after all
	}
	line := make([]byte, n-4)
	if _, err := io.ReadFull(r, line); err != nil {
		return err
	}
	service, _, _ := strings.Cut(string(line), " ")
	if _, err := w.Write(gitRefs(service)); err != nil || service != "git-receive-pack" {
		return err
	}
	refs := readPushCommands(r)
	if len(refs) == 0 {
		return nil
	}
	// The pack has no length and the client does not close its side before it has the report: a pause ends it.
	if err := drainUntilPause(w, r); err != nil {
		return err
	}
	_, err := w.Write(pushReport(refs))
	return err
}

func drainUntilPause(w io.Writer, r *bufio.Reader) error {
	d, ok := w.(interface{ SetReadDeadline(time.Time) error })
	if !ok {
		return nil
	}
	buf := make([]byte, 32<<10)
	for {
		if err := d.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			return err
		}
		_, err := r.Read(buf)
		if isTimeout(err) || err == io.EOF {
			return d.SetReadDeadline(time.Time{})
		}
		if err != nil {
			return err
		}
	}
}

// speaksFirst tells the ports on which the stand-in speaks before the client does.
func speaksFirst(port uint16) bool {
	return port == 22 || isMailPort(port) && port != 465 // there TLS comes first
}

func isMailPort(port uint16) bool {
	return port == 25 || port == 465 || port == 587 || port == 2525
}

// standInSMTP takes mail (RFC 5321) and any credentials.
func standInSMTP(w io.Writer, r *bufio.Reader) error {
	say := func(s string) error { _, err := io.WriteString(w, s+"\r\n"); return err }
	if err := say("220 mail ESMTP"); err != nil {
		return err
	}
	for {
		line, err := readLine(r)
		if err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		verb, rest, _ := strings.Cut(line, " ")
		switch strings.ToUpper(verb) {
		case "EHLO":
			err = say("250-mail\r\n250-8BITMIME\r\n250-SIZE 52428800\r\n250 AUTH PLAIN LOGIN")
		case "DATA":
			if err = say("354 go ahead"); err == nil {
				err = skipMail(r)
			}
			if err == nil {
				err = say("250 2.0.0 queued")
			}
		case "AUTH":
			err = authenticate(say, r, rest)
		case "QUIT":
			return say("221 2.0.0 bye")
		case "STARTTLS":
			err = say("454 4.7.0 TLS not available")
		default:
			err = say("250 2.0.0 ok")
		}
		if err != nil {
			return err
		}
	}
}

// authenticate accepts whatever a client sends as its credentials.
func authenticate(say func(string) error, r *bufio.Reader, rest string) error {
	f := strings.Fields(rest)
	prompts := []string{""}
	if len(f) > 0 && strings.EqualFold(f[0], "LOGIN") {
		prompts = []string{"Username:", "Password:"}
	}
	if len(f) > 1 {
		prompts = prompts[1:]
	}
	for _, p := range prompts {
		if err := say("334 " + base64.StdEncoding.EncodeToString([]byte(p))); err != nil {
			return err
		}
		if _, err := readLine(r); err != nil {
			return err
		}
	}
	return say("235 2.7.0 accepted")
}

func skipMail(r *bufio.Reader) error {
	for {
		line, err := readLine(r)
		if err != nil {
			return err
		}
		if line == "." {
			return nil
		}
	}
}

// readLine reads a line of any length and returns its beginning.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	s := string(line)
	for err == bufio.ErrBufferFull {
		_, err = r.ReadSlice('\n')
	}
	return strings.TrimRight(s, "\r\n"), err
}
