//go:build linux

package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"
)

// The recorder reaches a server in the box; the box's loopback is its own.
func TestDial(t *testing.T) {
	b := testBox(t, func(*Config) {})
	p, err := b.Start(t.Context(), Cmd{Argv: []string{"python3", "-c", `import socket
s=socket.create_server(("127.0.0.1",8123))
while True:
    c,_=s.accept()
    c.sendall(b"got "+c.makefile("rb").readline())
    c.close()`}, Env: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	for end := time.Now().Add(20 * time.Second); ; {
		c, err := b.Dial(t.Context(), 8123)
		if err != nil {
			if !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(end) {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		fmt.Fprintln(c, "hello")
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || line != "got hello\n" {
			t.Errorf("%q %v", line, err)
		}
		c.Close()
		break
	}
	if _, err := b.Dial(t.Context(), 8124); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a closed port: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Dial(ctx, 8123); err == nil {
		t.Error("dialled after the end")
	}
}
