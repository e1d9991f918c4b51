package sensortest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

func netCases() []Case {
	connect, send := typ(bodycam.TypeConnect), typ(bodycam.TypeSend)
	tcp, udp := proto(bodycam.ProtoTCP), proto(bodycam.ProtoUDP)
	return []Case{
		{Name: "13-net/tcp", Argv: []string{"nets", "connect", "{tcp}"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, connect, tcp, here(o), pid(o.PID), errno(0))
			port := o.num(t, "local")
			o.some(t, tcp, here(o), cond{"local port", func(e *bodycam.Event) bool { return int(e.Local.Port()) == port }})
		}},
		{Name: "13-net/tcp6", Argv: []string{"nets", "connect6", "{tcp6}"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, connect, tcp, remote("::1", o.suite.host.tcp6), o.outcome(t, "connect"))
		}},
		{Name: "13-net/mapped", Argv: []string{"nets", "mapped", "{tcp}"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, connect, tcp, here(o), o.outcome(t, "connect"))
		}},
		{Name: "13-net/udp-sendto", Argv: []string{"nets", "sendto", "{udp}"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, send, udp, there(o), errno(0))
		}},
		{Name: "13-net/udp-sendmsg", Argv: []string{"nets", "sendmsg", "{udp}"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, send, udp, there(o), errno(0))
		}},
		{Name: "13-net/udp-sendmmsg", Argv: []string{"nets", "sendmmsg"}, Check: func(t *testing.T, o *Outcome) {
			if o.num(t, "sent") != 3 {
				t.Fatalf("the trigger sent %s of 3", o.fact("sent"))
			}
			for i := range 3 {
				o.one(t, send, udp, remote(fmt.Sprintf("127.0.0.%d", 11+i), 9), errno(0))
			}
		}},
		{Name: "13-net/raw-icmp", Argv: []string{"nets", "raw"}, Need: func(o *Outcome) string {
			if o.fact("socket") != "0" && len(o.suite.traits.Refused) == 0 {
				return "this user can't make a raw socket: errno " + o.fact("socket")
			}
			return ""
		}, Check: func(t *testing.T, o *Outcome) {
			o.text(t, send, cond{"raw or ICMP to loopback", func(e *bodycam.Event) bool {
				return (e.Proto == bodycam.ProtoRaw || e.Proto == bodycam.ProtoICMP) && e.Remote.Addr().Unmap().String() == "127.0.0.1"
			}}, o.outcome(t, "sendto"))
		}},
		{Name: "13-net/udp-connected", Argv: []string{"nets", "udpconnect", "{udp}"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, connect, udp, there(o), errno(0))
		}},
		{Name: "13-net/tcp-fast-open", Argv: []string{"nets", "fastopen", "{tcp}"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, either(connect, send), tcp, here(o), o.outcome(t, "sendto"))
		}},
		{Name: "13-net/server", Argv: []string{"nets", "server"}, Check: func(t *testing.T, o *Outcome) {
			port, peer := o.num(t, "port"), o.num(t, "peer")
			o.one(t, typ(bodycam.TypeBind), errno(0), cond{"bound to loopback", func(e *bodycam.Event) bool { return e.Local.IsValid() && e.Local.Addr().IsLoopback() }})
			o.one(t, typ(bodycam.TypeListen), errno(0))
			o.one(t, typ(bodycam.TypeAccept), pid(o.PID), errno(0), remote("127.0.0.1", peer), cond{"local port", func(e *bodycam.Event) bool { return int(e.Local.Port()) == port }})
			o.one(t, connect, remote("127.0.0.1", port), errno(0))
		}},
		{Name: "13-net/passed-descriptor", Argv: []string{"nets", "passfd"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, typ(bodycam.TypeOpen), path(o.in("key")), access(bodycam.Read), errno(0))
			o.some(t, typ(bodycam.TypePassFD), pid(o.PID), errno(0))
		}},
	}
}

func dnsCases() []Case {
	connect, send, tcp := typ(bodycam.TypeConnect), typ(bodycam.TypeSend), proto(bodycam.ProtoTCP)
	return []Case{
		{Name: "14-names/dns-sendto", Argv: []string{"nets", "dns-sendto", "{dns}"}, Check: func(t *testing.T, o *Outcome) {
			asked(o, t, "sendto.example.test")
		}},
		{Name: "14-names/dns-connected", Argv: []string{"nets", "dns-connected", "{dns}"}, Check: func(t *testing.T, o *Outcome) {
			asked(o, t, "send.example.test", "write.example.test", "sendmsg.example.test", "mmsg-a.example.test", "mmsg-b.example.test")
		}},
		{Name: "14-names/dns-tcp", Argv: []string{"nets", "dns-tcp", "{dns}"}, Check: func(t *testing.T, o *Outcome) {
			asked(o, t, "tcp.example.test")
		}},
		{Name: "14-names/two-names-one-address", Argv: []string{"nets", "dns-twonames", "{dns}", "{tcp}"}, Check: func(t *testing.T, o *Outcome) {
			asked(o, t, "one.example.test", "two.example.test")
			o.one(t, connect, here(o), errno(0))
		}},
		{Name: "14-names/dns-hostile", Argv: []string{"nets", "dns-hostile", "{dns}"}, Check: func(t *testing.T, o *Outcome) {
			o.count(t, 4, send, remote(o.suite.host.dns, 53), errno(0))
			o.one(t, question("nul\x01\xff\n.example.test"))
			o.count(t, 1, typ(bodycam.TypeDNS), cond{"a question", func(e *bodycam.Event) bool { return len(e.Answers) == 0 }})
		}},
		{Name: "14-names/python-getaddrinfo-literal", Argv: []string{"/usr/bin/python3", "-c", "import socket,sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])))", "{tcp}"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, connect, tcp, here(o), errno(0))
			o.count(t, 0, typ(bodycam.TypeDNS))
		}},
	}
}

func unixCases() []Case {
	connect, send, tcp := typ(bodycam.TypeConnect), typ(bodycam.TypeSend), proto(bodycam.ProtoTCP)
	return []Case{
		{Name: "15-unix/path", Argv: []string{"nets", "unix"}, Check: func(t *testing.T, o *Outcome) {
			at := func(name string) cond {
				return cond{"unix socket " + name, func(e *bodycam.Event) bool {
					return e.Proto == bodycam.ProtoUnix && (e.UnixAddr == name || e.UnixAddr == o.in(name) || e.Path == o.in(name))
				}}
			}
			o.text(t, typ(bodycam.TypeBind), at("sock"), errno(0))
			o.named(t, connect, at("none.sock"), errno(int32(unix.ENOENT)))
			o.some(t, connect, at("sock"), errno(0))
			o.named(t, connect, errno(0), either(at("docker.sock"), given("docker.sock")))
			o.count(t, 2, connect, errno(0), proto(bodycam.ProtoUnix))
		}},
		{Name: "15-unix/abstract", Argv: []string{"nets", "abstract"}, Check: func(t *testing.T, o *Outcome) {
			name := fmt.Sprintf("bodycam-%d\x00x", o.PID)
			addr := func(n string) cond {
				return cond{fmt.Sprintf("abstract socket %q", n), func(e *bodycam.Event) bool { return e.UnixAddr == "@"+n }}
			}
			o.named(t, connect, addr(name), errno(0))
			o.named(t, send, addr(strings.Replace(name, "b", "B", 1)), errno(0))
		}},
		{Name: "16-outcomes/einprogress", Argv: []string{"nets", "inprogress", "{tcp}"}, Check: func(t *testing.T, o *Outcome) {
			// A sensor that sees how the attempt ended tells that.
			o.one(t, connect, here(o), either(o.outcome(t, "connect"), errno(0)))
		}},
		{Name: "16-outcomes/refused", Argv: []string{"nets", "refused"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, connect, remote("127.0.0.1", 1), errno(int32(unix.ECONNREFUSED)))
		}},
		{Name: "16-outcomes/bad-address", Argv: []string{"nets", "badaddr"}, Check: func(t *testing.T, o *Outcome) {
			for _, key := range []string{"short", "fault", "notsock", "badf"} {
				o.text(t, connect, o.outcome(t, key))
			}
		}},
		{Name: "20-kin/socketcall", Argv: []string{"nets", "socketcall", "{tcp}"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, connect, tcp, here(o), o.outcome(t, "connect"))
		}},
	}
}

// question is a DNS event that asks for a name.
func question(name string) cond {
	return both(typ(bodycam.TypeDNS), hostname(name), cond{"a question", func(e *bodycam.Event) bool { return len(e.Answers) == 0 }})
}

// asked asserts that each name was asked for once, by the workload's process, and answered.
func asked(o *Outcome, t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		o.one(t, question(n), pid(o.PID))
		if o.suite.traits.DNSAnswers {
			o.some(t, typ(bodycam.TypeDNS), hostname(n), cond{"an answer of 127.0.0.1", func(e *bodycam.Event) bool {
				return len(e.Answers) == 1 && e.Answers[0].String() == "127.0.0.1"
			}})
		}
	}
}

// here and there are the test's TCP and UDP ports.
func here(o *Outcome) cond  { return remote("127.0.0.1", o.suite.host.tcp) }
func there(o *Outcome) cond { return remote("127.0.0.1", o.suite.host.udp) }
