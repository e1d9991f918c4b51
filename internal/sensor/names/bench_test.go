package names

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

// BenchmarkThroughput compares a connection through the proxy with one without and with one through io.Copy in a
// process of its own making, which is what a proxy that records nothing would cost.
func BenchmarkThroughput(b *testing.B) {
	const size = 64 << 20
	source := listen(b, func(c *net.TCPConn) { io.CopyN(c, zeros{}, size) })
	run := func(b *testing.B, dial func() (net.Conn, error)) {
		b.SetBytes(size)
		for b.Loop() {
			c, err := dial()
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, c); n != size || err != nil {
				b.Fatal(n, err)
			}
			c.Close()
		}
	}
	b.Run("direct", func(b *testing.B) {
		run(b, func() (net.Conn, error) { return net.Dial("tcp", "127.0.0.1:"+source) })
	})
	b.Run("copied", func(b *testing.B) {
		relay := listen(b, func(c *net.TCPConn) {
			up, err := net.Dial("tcp", "127.0.0.1:"+source)
			if err != nil {
				b.Error(err)
				return
			}
			defer up.Close()
			io.Copy(c, up)
		})
		run(b, func() (net.Conn, error) { return net.Dial("tcp", "127.0.0.1:"+relay) })
	})
	b.Run("proxied", func(b *testing.B) {
		p := newBench(b, nil)
		run(b, func() (net.Conn, error) { return p.dial("127.0.0.1:" + source) })
	})
}

// BenchmarkRequest is one HTTP request on a connection of its own: what the proxy adds to latency.
func BenchmarkRequest(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }))
	defer srv.Close()
	run := func(b *testing.B, tr *http.Transport) {
		tr.DisableKeepAlives = true
		c := &http.Client{Transport: tr}
		for b.Loop() {
			resp, err := c.Get(srv.URL)
			if err != nil {
				b.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	b.Run("direct", func(b *testing.B) { run(b, &http.Transport{}) })
	b.Run("proxied", func(b *testing.B) {
		p := newBench(b, nil)
		run(b, &http.Transport{DialContext: p.dialContext})
	})
}

// BenchmarkJoiner is what a kernel event that has nothing to do with the network costs on its way through.
func BenchmarkJoiner(b *testing.B) {
	j := NewJoiner(func(*bodycam.Event) error { return nil }, JoinerOptions{})
	e := kernel(1, bodycam.TypeOpen, 5, 0, 0, "", "")
	for b.Loop() {
		e.Boot++
		if err := j.Kernel(e); err != nil {
			b.Fatal(err)
		}
	}
}
