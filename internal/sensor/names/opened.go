package names

import (
	"context"
	"crypto/tls"
	"io"
	"net"
)

// reached remembers the upstream address of a connection that requests are made on. Transports call it from
// goroutines of their own.
func (c *conn) reached(up net.Conn) {
	c.mu.Lock()
	c.upstream = up.RemoteAddr().String()
	c.mu.Unlock()
}

// dialInside reaches the connection's host with TLS, for a protocol other than HTTP.
func (c *conn) dialInside(name, proto string) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(c.p.ctx, c.p.o.DialTimeout+helloWait)
	defer cancel()
	raw, err := c.dialOut(ctx)
	if err != nil {
		c.fail("", err)
		return nil, err
	}
	c.reached(raw)
	cfg := &tls.Config{RootCAs: c.p.o.Roots, ServerName: name}
	if proto != "" {
		cfg.NextProtos = []string{proto}
	}
	up := tls.Client(raw, cfg)
	if err := up.HandshakeContext(ctx); err != nil {
		c.outcome, c.why, c.errno = "upstream-tls-failed", err.Error(), errnoOf(err)
		raw.Close()
		return nil, err
	}
	return up, nil
}

// passInside passes bytes between the client's TLS, which ends here, and the upstream's, first what each has said
// already.
func (c *conn) passInside(client, up *tls.Conn, first, greeting []byte) {
	cl := c.p.onClose(func() { up.Close() })
	defer c.p.forget(cl)
	wall, boot := now()
	sent, got := newCapture(c.p.o.MaxBody), newCapture(c.p.o.MaxBody)
	errs := make(chan error, 2)
	pass := func(dst, src net.Conn, to *capture) {
		_, err := io.Copy(io.MultiWriter(dst, to), src)
		if err == nil {
			err = closeWrite(dst)
		}
		errs <- err
	}
	go pass(up, &replay{Conn: client, pre: first}, sent)
	go pass(client, &replay{Conn: up, pre: greeting}, got)
	for range 2 {
		if err := <-errs; err != nil && c.outcome == "ok" {
			c.broken(err, up.NetConn())
			reset(up.NetConn())
			c.reset()
		}
	}
	if c.p.o.Content != nil {
		host, _ := c.host()
		c.p.o.Content(&Content{Time: wall, Boot: boot, Proto: "tls", Client: c.client, Remote: c.dst, Host: host,
			Target: "upstream", Request: sent.result(), Response: got.result()})
	}
}
