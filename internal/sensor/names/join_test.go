package names

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

const ms = uint64(time.Millisecond)

// trace collects what a joiner passes on.
type trace struct {
	mu     sync.Mutex
	events []bodycam.Event
}

func (t *trace) sink(e *bodycam.Event) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, *e)
	return nil
}

func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, e := range t.events {
		fmt.Fprintf(&b, "%d %s pid=%d %s/%s %v\n", e.Boot/ms, e.Type, e.Proc.PID, e.Host, e.HostSource, e.Marks.Names())
	}
	return b.String()
}

func proc(pid int32) bodycam.Proc { return bodycam.Proc{PID: pid, Start: uint64(pid) * 1000} }

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func kernel(boot uint64, typ bodycam.Type, pid int32, proto bodycam.Proto, cookie uint64, local, remote string) *bodycam.Event {
	e := &bodycam.Event{Boot: boot * ms, Type: typ, Proc: proc(pid), Proto: proto, Cookie: cookie, Sensor: "bpf", UID: 1000}
	if local != "" {
		e.Local = ap(local)
	}
	if remote != "" {
		e.Remote = ap(remote)
	}
	return e
}

func dnsEvent(boot uint64, local, host, answer string) *bodycam.Event {
	return &bodycam.Event{Boot: boot * ms, Type: bodycam.TypeDNS, Proto: bodycam.ProtoUDP, Local: ap(local), Host: host, HostSource: bodycam.HostDNS,
		Answers: []netip.Addr{netip.MustParseAddr(answer)}, Sensor: SensorName}
}

func tcpEvent(boot uint64, typ bodycam.Type, local, remote, host string, src bodycam.HostSource) *bodycam.Event {
	return &bodycam.Event{Boot: boot * ms, Type: typ, Proto: bodycam.ProtoTCP, Local: ap(local), Remote: ap(remote), Host: host, HostSource: src, Sensor: SensorName}
}

// feed hands events to a joiner, each by its sensor.
func feed(t *testing.T, j *Joiner, events ...*bodycam.Event) {
	t.Helper()
	for _, e := range events {
		sink := j.Kernel
		if e.Sensor == SensorName {
			sink = j.Names
		}
		if err := sink(e); err != nil {
			t.Fatal(err)
		}
	}
}

// TestJoin holds the joiner against the conversation of three processes: curl looks a name up and connects; its
// child connects to the same address; another uses an address as such.
func TestJoin(t *testing.T) {
	var tr trace
	j := NewJoiner(tr.sink, JoinerOptions{Hosts: map[string][]netip.Addr{"localhost": {netip.MustParseAddr("127.0.0.1")},
		"db": {netip.MustParseAddr("10.0.0.9")}, "db2": {netip.MustParseAddr("10.0.0.9")}}})
	const udp, tcp = bodycam.ProtoUDP, bodycam.ProtoTCP
	feed(t, j,
		kernel(1, bodycam.TypeConnect, 10, udp, 100, "10.0.0.2:5001", "10.0.0.1:53"),
		dnsEvent(2, "10.0.0.2:5001", "web.test", "198.18.0.1"),
		kernel(3, bodycam.TypeConnect, 10, tcp, 101, "10.0.0.2:6001", "198.18.0.1:443"),
		tcpEvent(4, bodycam.TypeTLS, "10.0.0.2:6001", "198.18.0.1:443", "web.test", bodycam.HostSNI),
		kernel(5, bodycam.TypeConnect, 11, tcp, 102, "10.0.0.2:6002", "198.18.0.1:443"),
		tcpEvent(6, bodycam.TypeFlow, "10.0.0.2:6002", "198.18.0.1:443", "web.test", bodycam.HostDNS),
		kernel(7, bodycam.TypeConnect, 12, tcp, 103, "10.0.0.2:6003", "203.0.113.5:443"),
		kernel(8, bodycam.TypeConnect, 12, tcp, 104, "", "127.0.0.1:8000"),
		kernel(9, bodycam.TypeSend, 12, udp, 105, "10.0.0.2:6004", "10.0.0.9:5432"),
		tcpEvent(10, bodycam.TypeFlow, "10.0.0.2:6001", "198.18.0.1:443", "web.test", bodycam.HostDNS),
		kernel(11, bodycam.TypeFlow, 10, tcp, 101, "10.0.0.2:6001", "198.18.0.1:443"),
		tcpEvent(12, bodycam.TypeFlow, "10.0.0.2:7777", "203.0.113.5:443", "", bodycam.HostLiteral),
	)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	const want = `1 connect pid=10 /literal []
2 dns pid=10 web.test/dns []
3 connect pid=10 web.test/dns []
4 tls pid=10 web.test/sni []
5 connect pid=11 web.test/dns-shared []
6 flow pid=11 web.test/dns-shared []
7 connect pid=12 /literal []
8 connect pid=12 localhost/hosts-file []
9 send pid=12 db/ambiguous []
10 flow pid=10 web.test/dns []
11 flow pid=10 web.test/dns []
12 flow pid=0 /literal [no-process]
`
	if got := tr.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	s := j.Stats()
	if s.Kernel != 7 || s.Joined != 4 || s.Orphan != 1 || s.Named != 5 || s.Late != 0 {
		t.Errorf("%+v", s)
	}
	for _, e := range tr.events {
		if e.Sensor == SensorName && e.Proc.PID != 0 && (e.Cookie == 0 || e.UID != 1000) {
			t.Errorf("no cookie or uid: %s", show(&e))
		}
	}
}

// The two sources may arrive in any interleaving: the record is the same, and in the order of time.
func TestJoinDoesNotDependOnArrival(t *testing.T) {
	const udp, tcp = bodycam.ProtoUDP, bodycam.ProtoTCP
	var kernels, proxies []*bodycam.Event
	boot := uint64(1)
	for i := range 40 {
		pid := int32(10 + i%5)
		name := fmt.Sprintf("host%d.test", i%7)
		addr := fmt.Sprintf("198.18.0.%d", i%7+1)
		l1, l2 := fmt.Sprintf("10.0.0.2:%d", 20000+i), fmt.Sprintf("10.0.0.2:%d", 30000+i%3) // ports are used again
		kernels = append(kernels, kernel(boot, bodycam.TypeConnect, pid, udp, uint64(1000+i), l1, "10.0.0.1:53"))
		proxies = append(proxies, dnsEvent(boot+1, l1, name, addr))
		kernels = append(kernels, kernel(boot+2, bodycam.TypeConnect, pid, tcp, uint64(2000+i), l2, addr+":443"))
		proxies = append(proxies, tcpEvent(boot+3, bodycam.TypeTLS, l2, addr+":443", name, bodycam.HostSNI),
			tcpEvent(boot+4, bodycam.TypeFlow, l2, addr+":443", name, bodycam.HostDNS))
		boot += 5
	}
	run := func(seed uint64) string {
		r := rand.New(rand.NewPCG(seed, 1))
		var tr trace
		j := NewJoiner(tr.sink, JoinerOptions{Clock: func() uint64 { return 0 }}) // the timer lets nothing go
		k, p := kernels, proxies
		for len(k)+len(p) > 0 {
			// A proxy event comes before the kernel's of the same conversation are read, or up to 150 ms later;
			// but an answer always before the connection that rests on it.
			mustProxy := len(k) == 0 || slices.ContainsFunc(p, func(e *bodycam.Event) bool { return e.Type == bodycam.TypeDNS && e.Boot < k[0].Boot })
			if len(p) > 0 && (mustProxy || r.IntN(2) == 0) {
				e := *p[0]
				feed(t, j, &e)
				p = p[1:]
			} else {
				e := *k[0]
				feed(t, j, &e)
				k = k[1:]
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if s := j.Stats(); s.Orphan != 0 || s.Joined != uint64(len(proxies)) {
			t.Errorf("seed %d: %+v", seed, s)
		}
		slices.SortStableFunc(tr.events, func(a, b bodycam.Event) int { return int(int64(a.Boot) - int64(b.Boot)) })
		return tr.String()
	}
	first := run(0)
	for seed := range uint64(50) {
		if got := run(seed); got != first {
			a, b := strings.Split(got, "\n"), strings.Split(first, "\n")
			for i := range a {
				if i >= len(b) || a[i] != b[i] {
					t.Fatalf("seed %d, line %d: %q, with seed 0 %q", seed, i, a[i], b[min(i, len(b)-1)])
				}
			}
		}
	}
	if strings.Count(first, "connect") != 80 || strings.Contains(first, "pid=0") {
		t.Error(first)
	}
}

// A connection attempt that the sensor tells only when it has ended comes after the proxy's events of it.
func TestJoinLateKernel(t *testing.T) {
	var tr trace
	j := NewJoiner(tr.sink, JoinerOptions{Clock: func() uint64 { return 0 }})
	feed(t, j,
		kernel(1, bodycam.TypeOpen, 5, 0, 0, "", ""),
		tcpEvent(100, bodycam.TypeTLS, "10.0.0.2:6001", "203.0.113.5:443", "x.test", bodycam.HostSNI),
		kernel(150, bodycam.TypeOpen, 5, 0, 0, "", ""), // the record has gone on, but not a whole window
		kernel(101, bodycam.TypeConnect, 10, bodycam.ProtoTCP, 1, "10.0.0.2:6001", "203.0.113.5:443"),
	)
	if got := tr.events[len(tr.events)-2]; got.Proc.PID != 10 || got.Type != bodycam.TypeTLS {
		t.Errorf("not joined:\n%s", tr.String())
	}
	feed(t, j,
		tcpEvent(160, bodycam.TypeTLS, "10.0.0.2:6002", "203.0.113.5:443", "y.test", bodycam.HostSNI),
		kernel(170, bodycam.TypeOpen, 5, 0, 0, "", ""),
		kernel(361, bodycam.TypeOpen, 5, 0, 0, "", ""), // a window later: given up
	)
	got := tr.events[len(tr.events)-2]
	if got.Host != "y.test" || got.Marks&bodycam.MarkNoProcess == 0 {
		t.Errorf("not given up:\n%s", tr.String())
	}
}

// When the kernel has nothing to say, proxy events leave by the clock.
func TestJoinQuietKernel(t *testing.T) {
	var tr trace
	j := NewJoiner(tr.sink, JoinerOptions{Window: 20 * time.Millisecond, Patience: 60 * time.Millisecond})
	_, boot := now()
	feed(t, j, kernel(1, bodycam.TypeConnect, 10, bodycam.ProtoTCP, 1, "10.0.0.2:6001", "203.0.113.5:443"))
	for _, local := range []string{"10.0.0.2:6001", "10.0.0.2:6002"} {
		e := tcpEvent(0, bodycam.TypeTLS, local, "203.0.113.5:443", local, bodycam.HostSNI)
		e.Boot = boot
		feed(t, j, e)
	}
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) && strings.Count(tr.String(), "tls") < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	if got := tr.String(); !strings.Contains(got, "pid=10 10.0.0.2:6001/sni []") || !strings.Contains(got, "pid=0 10.0.0.2:6002/sni [no-process]") {
		t.Error(got)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// Whatever a hostile agent does, memory is bounded and nothing is lost.
func TestJoinIsBounded(t *testing.T) {
	n := 0
	j := NewJoiner(func(*bodycam.Event) error { n++; return nil }, JoinerOptions{MaxSockets: 100, MaxHeld: 50, Clock: func() uint64 { return 0 }})
	const each = 5000
	for i := range each {
		port := 1024 + i%300
		local := fmt.Sprintf("10.0.0.2:%d", port)
		remote := fmt.Sprintf("203.0.%d.%d:443", i/250%250, i%250+1)
		k := kernel(1, bodycam.TypeConnect, int32(i+1), bodycam.ProtoTCP, uint64(i%120), local, remote) // cookies are used again, as no kernel does
		feed(t, j, k, tcpEvent(uint64(1e6+i), bodycam.TypeFlow, local, "198.51.100.1:1", "x", bodycam.HostDNS))
		if len(j.held)+len(j.waiting) > 50 || len(j.sockets.byCookie) > 100 || len(j.sockets.byPort) > 100 || len(j.sockets.byTuple) > 100 || len(j.sockets.byUse) > 100 {
			t.Fatalf("after %d: held %d, waiting %d, sockets %d %d %d", i, len(j.held), len(j.waiting), len(j.sockets.byCookie), len(j.sockets.byPort), len(j.sockets.byTuple))
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if s := j.Stats(); n != 2*each || s.Joined+s.Orphan != each || s.Kernel != each || s.Early == 0 {
		t.Errorf("%d events, %+v", n, s)
	}
	if j.pending() != 0 || len(j.byKey) != 0 {
		t.Error("something stayed behind")
	}
}

// One datagram socket may talk to many addresses, and one port of the sandbox may belong to several sockets.
func TestSocketsAreToldApart(t *testing.T) {
	var tr trace
	j := NewJoiner(tr.sink, JoinerOptions{Clock: func() uint64 { return 0 }})
	const udp, tcp = bodycam.ProtoUDP, bodycam.ProtoTCP
	feed(t, j,
		kernel(1, bodycam.TypeSend, 10, udp, 1, "0.0.0.0:5001", "10.0.0.1:53"),
		kernel(2, bodycam.TypeSend, 10, udp, 1, "0.0.0.0:5001", "203.0.113.1:9999"),
		dnsEvent(3, "10.0.0.2:5001", "a.test", "198.18.0.1"),
		kernel(4, bodycam.TypeSend, 11, udp, 2, "127.0.0.1:5001", "127.0.0.1:7"), // the same port on another address
		dnsEvent(5, "10.0.0.2:5001", "b.test", "198.18.0.2"),
		kernel(6, bodycam.TypeConnect, 12, tcp, 3, "10.0.0.2:6000", "203.0.113.1:80"),
		kernel(7, bodycam.TypeConnect, 13, tcp, 4, "10.0.0.2:6000", "203.0.113.2:80"), // the same local port, another destination
		tcpEvent(8, bodycam.TypeFlow, "10.0.0.2:6000", "203.0.113.1:80", "one", bodycam.HostHTTP),
		tcpEvent(9, bodycam.TypeFlow, "10.0.0.2:6000", "203.0.113.2:80", "two", bodycam.HostHTTP),
		tcpEvent(10, bodycam.TypeFlow, "10.0.0.2:6000", "203.0.113.3:80", "three", bodycam.HostHTTP),
		// The address is used again by another process; events of the first connection come late.
		kernel(400, bodycam.TypeConnect, 14, tcp, 5, "10.0.0.2:6000", "203.0.113.1:80"),
		tcpEvent(399, bodycam.TypeFlow, "10.0.0.2:6000", "203.0.113.1:80", "four", bodycam.HostHTTP),
		tcpEvent(401, bodycam.TypeFlow, "10.0.0.2:6000", "203.0.113.1:80", "five", bodycam.HostHTTP),
	)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for host, pid := range map[string]int32{"a.test": 10, "b.test": 10, "one": 12, "two": 13, "three": 0, "four": 12, "five": 14} {
		i := slices.IndexFunc(tr.events, func(e bodycam.Event) bool { return e.Host == host && e.Sensor == SensorName })
		if i < 0 || tr.events[i].Proc.PID != pid {
			t.Errorf("%s: want pid %d:\n%s", host, pid, tr.String())
		}
	}
}

func TestJoinSinkFails(t *testing.T) {
	n := 0
	j := NewJoiner(func(*bodycam.Event) error {
		n++
		return unix.ENOSPC
	}, JoinerOptions{})
	if err := j.Kernel(kernel(1, bodycam.TypeOpen, 1, 0, 0, "", "")); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if err := j.Names(dnsEvent(1, "10.0.0.2:1", "x", "198.18.0.1")); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if err := j.Close(); !errors.Is(err, unix.ENOSPC) || n != 1 {
		t.Errorf("got %v after %d events", err, n)
	}
}

// Sockets that the kernel tells of before they have a port are found by elimination, and only if it is certain.
func TestSocketsWithoutPort(t *testing.T) {
	const udp, tcp = bodycam.ProtoUDP, bodycam.ProtoTCP
	var tr trace
	j := NewJoiner(tr.sink, JoinerOptions{Clock: func() uint64 { return 0 }})
	asked := func(boot uint64, pid int32, cookie uint64, name, answer string) *bodycam.Event {
		e := kernel(boot, bodycam.TypeDNS, pid, udp, cookie, "", "")
		e.Host, e.Answers = name, []netip.Addr{netip.MustParseAddr(answer)}
		return e
	}
	feed(t, j,
		// One process asks on a socket that is not bound, then again after its port became known.
		kernel(1, bodycam.TypeSend, 10, udp, 1, "", "10.0.0.1:53"),
		dnsEvent(2, "10.0.0.2:5001", "a.test", "198.18.0.1"),
		kernel(300, bodycam.TypeOpen, 1, 0, 0, "", ""),
		dnsEvent(301, "10.0.0.2:5001", "b.test", "198.18.0.2"),
		kernel(302, bodycam.TypeOpen, 1, 0, 0, "", ""),
		// Two processes at once, told apart by what the sensor saw them ask.
		kernel(400, bodycam.TypeSend, 11, udp, 2, "", "10.0.0.1:53"),
		kernel(400, bodycam.TypeSend, 12, udp, 3, "", "10.0.0.1:53"),
		asked(401, 11, 2, "c.test", "198.18.0.3"),
		asked(401, 12, 3, "d.test", "198.18.0.4"),
		dnsEvent(402, "10.0.0.2:5003", "d.test", "198.18.0.4"),
		dnsEvent(402, "10.0.0.2:5002", "c.test", "198.18.0.3"),
		kernel(700, bodycam.TypeOpen, 1, 0, 0, "", ""),
		// Two that can't be told apart.
		kernel(800, bodycam.TypeSend, 13, udp, 4, "", "10.0.0.1:53"),
		kernel(800, bodycam.TypeSend, 14, udp, 5, "", "10.0.0.1:53"),
		dnsEvent(801, "10.0.0.2:5004", "e.test", "198.18.0.5"),
		kernel(1100, bodycam.TypeOpen, 1, 0, 0, "", ""),
		// TCP Fast Open.
		kernel(1200, bodycam.TypeConnect, 15, tcp, 6, "", "198.18.0.1:443"),
		tcpEvent(1201, bodycam.TypeTLS, "10.0.0.2:6001", "198.18.0.1:443", "f.test", bodycam.HostSNI),
		kernel(1500, bodycam.TypeOpen, 1, 0, 0, "", ""),
		tcpEvent(9000, bodycam.TypeFlow, "10.0.0.2:6001", "198.18.0.1:443", "g.test", bodycam.HostSNI),
		tcpEvent(9001, bodycam.TypeFlow, "10.0.0.2:6002", "198.18.0.2:443", "h.test", bodycam.HostSNI),
	)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for host, pid := range map[string]int32{"a.test": 10, "b.test": 10, "c.test": 11, "d.test": 12, "e.test": 0, "f.test": 15, "g.test": 15, "h.test": 0} {
		i := slices.IndexFunc(tr.events, func(e bodycam.Event) bool { return e.Host == host && e.Sensor == SensorName })
		if i < 0 || tr.events[i].Proc.PID != pid || (tr.events[i].Cookie == 0) != (pid == 0) {
			t.Errorf("%s: want pid %d:\n%s", host, pid, tr.String())
		}
	}
}
