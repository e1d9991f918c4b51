//go:build linux

package boxinit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Everything in this file runs in the box's init, inside the box's own network namespace, whose rules no command can
// change: they hold no power over the user namespace that owns it.

// Addr4 and Gateway4 are the box's address and that of its name server, which any address would do for, since all of
// port 53 is redirected. Nothing but the box itself ever sees them.
var (
	Addr4    = netip.MustParseAddr("10.203.0.2")
	Gateway4 = netip.MustParseAddr("10.203.0.1")
	boxAddr6 = netip.MustParseAddr("fd62:6f64:7963::2")
	gateway6 = netip.MustParseAddr("fd62:6f64:7963::1")
)

const (
	nftTable   = "bodycam"
	nftDropped = "dropped"
)

// boxNet is what init remembers of a proxied network.
type boxNet struct{ table *nftables.Table }

// setupNet brings up loopback and, in a proxied network, an interface that leads nowhere, with rules that turn every
// connection to one of our listeners. It returns those, then one listener for each forwarded port.
func setupNet(s *Setup) (*boxNet, []*os.File, []string, error) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, nil, nil, err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return nil, nil, nil, fmt.Errorf("bring up loopback: %w", err)
	}
	var n *boxNet
	var files []*os.File
	var notes []string
	if s.Proxied {
		if n, files, notes, err = setupProxied(); err != nil {
			return nil, nil, nil, err
		}
	}
	for _, p := range s.Forward {
		f, err := listenTCP(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), p))
		if err != nil {
			CloseAll(files)
			return nil, nil, nil, fmt.Errorf("forward port %d: %w", p, err)
		}
		files = append(files, f)
	}
	return n, files, notes, nil
}

func setupProxied() (n *boxNet, files []*os.File, notes []string, err error) {
	var ports [3]uint16
	files, ports, err = proxyListeners()
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() {
		if err != nil {
			CloseAll(files)
		}
	}()
	n, err = redirect(ports)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("nftables rules: %w", err)
	}
	link, err := outerLink()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := addAddress(link, Addr4, Gateway4, 24); err != nil {
		return nil, nil, nil, err
	}
	if err := addAddress(link, boxAddr6, gateway6, 64); err != nil {
		notes = append(notes, "no IPv6 in the box: "+err.Error())
	}
	return n, files, notes, nil
}

// outerLink makes eth0: a dummy device, or one end of a pair whose other end leads nowhere either.
func outerLink() (netlink.Link, error) {
	attrs := netlink.LinkAttrs{Name: "eth0", TxQLen: -1}
	var up []string
	err := netlink.LinkAdd(&netlink.Dummy{LinkAttrs: attrs})
	if err == nil {
		up = []string{"eth0"}
	} else {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "nowhere"}); err != nil {
			return nil, fmt.Errorf("make the interface eth0: %w", err)
		}
		up = []string{"nowhere", "eth0"}
	}
	var link netlink.Link
	for _, name := range up {
		if link, err = netlink.LinkByName(name); err != nil {
			return nil, err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return nil, fmt.Errorf("bring up %s: %w", name, err)
		}
	}
	return link, nil
}

func addAddress(link netlink.Link, addr, gateway netip.Addr, bits int) error {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(bits, addr.BitLen())}}
	if addr.Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(link, a); err != nil {
		return fmt.Errorf("add address %s: %w", addr, err)
	}
	r := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.AsSlice()}
	if err := netlink.RouteAdd(r); err != nil {
		return fmt.Errorf("add route by %s: %w", gateway, err)
	}
	return nil
}

// proxyListeners are, in this order: TCP, DNS over UDP, DNS over TCP; each for both families.
func proxyListeners() ([]*os.File, [3]uint16, error) {
	var ports [3]uint16
	var files []*os.File
	any := netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		any = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	}
	for i := range ports {
		var f *os.File
		var err error
		if i == 1 {
			f, err = listenUDP(any)
		} else {
			f, err = listenTCP(any)
		}
		if err != nil {
			CloseAll(files)
			return nil, ports, err
		}
		files = append(files, f)
		sa, err := unix.Getsockname(int(f.Fd()))
		if err != nil {
			CloseAll(files)
			return nil, ports, err
		}
		switch sa := sa.(type) {
		case *unix.SockaddrInet4:
			ports[i] = uint16(sa.Port)
		case *unix.SockaddrInet6:
			ports[i] = uint16(sa.Port)
		}
	}
	return files, ports, nil
}

func listenTCP(at netip.AddrPort) (*os.File, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp", at.String())
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.(*net.TCPListener).File()
}

// dial connects to a port of the box's loopback.
func dial(port uint16) (*os.File, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	d.SetMultipathTCP(false)
	c, err := d.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		var err6 error
		if c, err6 = d.Dial("tcp", net.JoinHostPort("::1", strconv.Itoa(int(port)))); err6 != nil {
			return nil, err
		}
	}
	defer c.Close()
	return c.(*net.TCPConn).File()
}

func listenUDP(at netip.AddrPort) (*os.File, error) {
	l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.File()
}

// redirect installs the rules. Whatever still wants to leave after them (UDP, ICMP, other protocols) is counted and
// dropped, which the sender sees as EPERM.
func redirect(ports [3]uint16) (*boxNet, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	t := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: nftTable})
	out := c.AddChain(&nftables.Chain{Name: "turn", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest})
	rule := func(ch *nftables.Chain, exprs ...[]expr.Any) {
		var all []expr.Any
		for _, e := range exprs {
			all = append(all, e...)
		}
		c.AddRule(&nftables.Rule{Table: t, Chain: ch, Exprs: all})
	}
	rule(out, isLocal(), verdict(expr.VerdictReturn))
	for _, a := range []netip.Addr{Addr4, boxAddr6} {
		rule(out, isFamily(a), isProto(unix.IPPROTO_UDP), isPort(53), turnTo(a, ports[1]))
		rule(out, isFamily(a), isProto(unix.IPPROTO_TCP), isPort(53), turnTo(a, ports[2]))
		rule(out, isFamily(a), isProto(unix.IPPROTO_TCP), turnTo(a, ports[0]))
	}
	c.AddObj(&nftables.CounterObj{Table: t, Name: nftDropped})
	leave := c.AddChain(&nftables.Chain{Name: "leave", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityFilter})
	rule(leave, isLocal(), verdict(expr.VerdictAccept))
	// The kernel's own neighbour and multicast messages (types 130 to 143) are nobody's attempt to leave.
	rule(leave, isProto(unix.IPPROTO_ICMPV6), []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: []byte{130}},
		&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: []byte{143}}}, verdict(expr.VerdictDrop))
	rule(leave, []expr.Any{&expr.Objref{Type: 1 /* NFT_OBJECT_COUNTER */, Name: nftDropped}}, verdict(expr.VerdictDrop))
	if err := c.Flush(); err != nil {
		return nil, err
	}
	return &boxNet{table: t}, nil
}

func isLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)}}
}

func isFamily(a netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family(a)}}}
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}

func isProto(p byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{p}}}
}

func isPort(p uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(p)}}
}

func turnTo(a netip.Addr, port uint16) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: a.AsSlice()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(port)},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(family(a)), RegAddrMin: 1, RegProtoMin: 2, Specified: true}}
}

func verdict(k expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: k}} }

// dropped counts the packets that wanted to leave and were neither TCP nor DNS.
func (n *boxNet) dropped() (uint64, error) {
	if n == nil {
		return 0, nil
	}
	c, err := nftables.New()
	if err != nil {
		return 0, err
	}
	o, err := c.GetObject(&nftables.CounterObj{Table: n.table, Name: nftDropped})
	if err != nil {
		return 0, fmt.Errorf("read counter: %w", err)
	}
	counter, ok := o.(*nftables.CounterObj)
	if !ok {
		return 0, errors.New("read counter: the kernel answered with something else")
	}
	return counter.Packets, nil
}
