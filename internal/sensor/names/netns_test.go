package names

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

// netns is a network namespace with no way out but what nftables leads to three sockets.
type netns struct {
	t    *testing.T
	work chan func()
	tcp  net.Listener
	udp  net.PacketConn
	dns  net.Listener
}

// newNetns makes a namespace that lives as long as one thread. It goes with it.
func newNetns(t *testing.T) *netns {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making a network namespace needs root")
	}
	n := &netns{t: t, work: make(chan func())}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		failed <- unix.Unshare(unix.CLONE_NEWNET)
		for f := range n.work {
			f()
		}
	}()
	if err := <-failed; err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
	t.Cleanup(func() { close(n.work) })
	for _, c := range []string{"link set lo up", "link add d0 type veth peer name d1", "link set d1 up", "addr add 10.77.0.2/24 dev d0", "addr add fd77::2/64 dev d0 nodad",
		"link set d0 up", "route add default dev d0", "-6 route add default dev d0"} {
		if out, err := n.run("", "ip", strings.Fields(c)...); err != nil {
			t.Fatalf("ip %s: %v: %s", c, err, out)
		}
	}
	n.do(func() {
		var errs [3]error
		n.tcp, errs[0] = net.Listen("tcp", ":0")
		n.dns, errs[1] = net.Listen("tcp", ":0")
		n.udp, errs[2] = net.ListenPacket("udp4", "127.0.0.1:0")
		if err := errors.Join(errs[:]...); err != nil {
			t.Error(err)
		}
	})
	rules := fmt.Sprintf(`table inet names {
	chain out {
		type nat hook output priority -100;
		ip daddr 127.0.0.0/8 return
		ip6 daddr ::1 return
		udp dport 53 redirect to :%s
		tcp dport 53 redirect to :%s
		meta l4proto tcp redirect to :%s
	}
}`, portOf(n.udp.LocalAddr()), portOf(n.dns.Addr()), portOf(n.tcp.Addr()))
	if out, err := n.run(rules, "nft", "-f", "-"); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	return n
}

// do runs f on the namespace's thread.
func (n *netns) do(f func()) {
	done := make(chan bool)
	n.work <- func() { f(); close(done) }
	<-done
}

// run runs a program in the namespace.
func (n *netns) run(stdin, name string, args ...string) (string, error) {
	var out []byte
	var err error
	n.do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		c := exec.CommandContext(ctx, name, args...)
		c.Stdin = strings.NewReader(stdin)
		c.Env = []string{"PATH=" + os.Getenv("PATH")}
		out, err = c.CombinedOutput()
	})
	return string(out), err
}

func kernelOriginalDst(c *net.TCPConn) (netip.AddrPort, error) {
	sc, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var dst netip.AddrPort
	var serr error
	err = sc.Control(func(fd uintptr) {
		if addrPort(c.LocalAddr()).Addr().Is4() {
			m, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST) // as long as a sockaddr_in
			if serr = err; err == nil {
				b := m.Multiaddr
				dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), uint16(b[2])<<8|uint16(b[3]))
			}
			return
		}
		m, err := unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, unix.SO_ORIGINAL_DST)
		if serr = err; err == nil {
			dst = netip.AddrPortFrom(netip.AddrFrom16(m.Addr.Addr), m.Addr.Port<<8|m.Addr.Port>>8)
		}
	})
	return dst, errors.Join(err, serr)
}

// TestNamespace lets programs of the system, which know nothing of the proxy, go through it.
func TestNamespace(t *testing.T) {
	for _, tool := range []string{"ip", "nft", "curl", "getent"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is needed", tool)
		}
	}
	n := newNetns(t)
	up := newUpstreamDNS(t)
	var tr trace
	p, err := New(Options{Local: []string{"127.0.0.0/8"}, OriginalDst: kernelOriginalDst, Emit: tr.sink, Resolver: up.resolver(), Nameservers: []string{up.addr}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(context.Background(), n.tcp, n.udp, n.dns) }()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s got %d bytes", r.Host, len(body))
	}))
	defer srv.Close()
	port := portOf(srv.Listener.Addr())

	if out, err := n.run("", "getent", "ahostsv4", "web.test"); err != nil || !strings.HasPrefix(out, "198.18.0.") {
		t.Errorf("getent: %q, %v", out, err)
	}
	if out, err := n.run(strings.Repeat("x", 100_000), "curl", "-sS", "--max-time", "10", "--data-binary", "@-", "http://web.test:"+port+"/up"); err != nil || out != "web.test:"+port+" got 100000 bytes" {
		t.Errorf("curl: %q, %v", out, err)
	}
	if out, err := n.run("", "curl", "-sS", "--max-time", "10", "http://[2001:db8::7]:8080/six"); err == nil {
		t.Errorf("an address of the documentation range answered: %q", out)
	}
	if out, err := n.run("", "curl", "-sS", "--max-time", "10", "http://nowhere.test/"); err == nil || !strings.Contains(out, "resolve") {
		t.Errorf("curl: %q, %v", out, err)
	}
	p.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	find := func(typ bodycam.Type, host string) *bodycam.Event {
		for i := range tr.events {
			if tr.events[i].Type == typ && (tr.events[i].Host == host || tr.events[i].Remote.String() == host) {
				return &tr.events[i]
			}
		}
		t.Fatalf("no %s of %s", typ, host)
		return nil
	}
	if e := find(bodycam.TypeFlow, "web.test"); e.BytesWritten < 100_000 || e.Remote.Port() != netip.MustParseAddrPort("1.1.1.1:"+port).Port() ||
		e.Local.Addr() != netip.MustParseAddr("10.77.0.2") && !p.table.synthetic(e.Local.Addr()) {
		t.Error(show(e))
	}
	if e := find(bodycam.TypeFlow, "[2001:db8::7]:8080"); e.Errno == 0 || e.Local.Addr() != netip.MustParseAddr("fd77::2") {
		t.Error(show(e))
	}
	if e := find(bodycam.TypeHTTP, "web.test"); !strings.HasPrefix(e.Detail, "POST /up") {
		t.Error(show(e))
	}
	if e := find(bodycam.TypeDNS, "nowhere.test"); e.Errno != int32(unix.ENOENT) || !e.Local.IsValid() {
		t.Error(show(e))
	}
}
