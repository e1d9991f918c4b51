package sensortest

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/miekg/dns"
)

// host is what the trigger programs talk to: everything on loopback, everything answers.
type host struct {
	tcp, tcp6, udp int
	dns            string // address whose port 53 is ours, "" where none could be had
	noDNS          string // why
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	h.tcp = l.Addr().(*net.TCPAddr).Port
	go echo(l)
	if l6, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		t.Cleanup(func() { l6.Close() })
		h.tcp6 = l6.Addr().(*net.TCPAddr).Port
		go echo(l6)
	}
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	h.udp = u.LocalAddr().(*net.UDPAddr).Port
	h.serveDNS(t)
	return h
}

func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			b := make([]byte, 512)
			n, _ := c.Read(b)
			_, _ = c.Write(b[:n])
		}()
	}
}

// serveDNS answers every question with 127.0.0.1, over UDP and, where the port can be had, TCP.
func (h *host) serveDNS(t *testing.T) {
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		for _, x := range q.Question {
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: x.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.IPv4(127, 0, 0, 1)})
		}
		_ = w.WriteMsg(m)
	})
	udp, tcp, err := dnsSockets()
	if err != nil {
		h.noDNS = "port 53 on loopback can't be had: " + err.Error()
		return
	}
	h.dns = udp.LocalAddr().(*net.UDPAddr).IP.String()
	for _, s := range []*dns.Server{{PacketConn: udp, Handler: handler}, {Listener: tcp, Handler: handler}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { _ = s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
}

// dnsSockets binds port 53, or takes the two sockets that BODYCAM_TEST_DNS_FD and its successor hold.
func dnsSockets() (net.PacketConn, net.Listener, error) {
	if v := os.Getenv("BODYCAM_TEST_DNS_FD"); v != "" {
		fd, err := strconv.Atoi(v)
		if err != nil {
			return nil, nil, err
		}
		uf, tf := os.NewFile(uintptr(fd), "dns-udp"), os.NewFile(uintptr(fd+1), "dns-tcp")
		u, err := net.FilePacketConn(uf)
		if err != nil {
			return nil, nil, err
		}
		l, err := net.FileListener(tf)
		if err != nil {
			u.Close()
			return nil, nil, err
		}
		return u, l, nil
	}
	// An address of this process's own, so that several suites can run at once.
	addr := fmt.Sprintf("127.53.%d.%d:53", os.Getpid()>>8&0xff, os.Getpid()&0xff|1)
	u, err := net.ListenPacket("udp4", addr)
	if err != nil {
		return nil, nil, err
	}
	l, err := net.Listen("tcp4", addr)
	if err != nil {
		u.Close()
		return nil, nil, err
	}
	return u, l, nil
}

// DNSFiles binds port 53 of loopback and returns the two sockets, for a test that goes on as an ordinary user.
func DNSFiles() (udp, tcp *os.File, err error) {
	u, l, err := dnsSockets()
	if err != nil {
		return nil, nil, err
	}
	defer u.Close()
	defer l.Close()
	if udp, err = u.(*net.UDPConn).File(); err != nil {
		return nil, nil, err
	}
	if tcp, err = l.(*net.TCPListener).File(); err != nil {
		udp.Close()
		return nil, nil, err
	}
	return udp, tcp, nil
}
