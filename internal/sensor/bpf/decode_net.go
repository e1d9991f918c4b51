package bpf

import (
	"net/netip"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

const (
	afUnix    = 1
	afINet    = 2
	afINet6   = 10
	afNetlink = 16
	afPacket  = 17
	afVsock   = 40

	sockStream = 1
	sockRaw    = 3

	eInProgress = 115
	abandoned   = -1000 // of K_STATE: closed before it was decided
	maxHeld     = 4096  // events that wait for their other half, of each kind
)

// netState holds the events that wait for their other half.
type netState struct {
	connects map[uint64]*heldEvent // by cookie: in progress
	outcomes map[uint64]int32      // by cookie: decided before the call returned
	tcp      bool                  // some record was of a TCP socket
}

func newNetState() netState {
	return netState{connects: map[uint64]*heldEvent{}, outcomes: map[uint64]int32{}}
}

func protoOf(n *sensorNet) bodycam.Proto {
	switch n.Family {
	case afUnix:
		return bodycam.ProtoUnix
	case afNetlink:
		return bodycam.ProtoNetlink
	case afPacket:
		return bodycam.ProtoPacket
	case afVsock:
		return bodycam.ProtoVsock
	case afINet, afINet6:
	default:
		return bodycam.ProtoOther
	}
	if n.Socktype == sockRaw {
		return bodycam.ProtoRaw
	}
	switch n.Proto {
	case 6:
		return bodycam.ProtoTCP
	case 17:
		return bodycam.ProtoUDP
	case 1, 58:
		return bodycam.ProtoICMP
	}
	return bodycam.ProtoOther
}

func addrPort(family uint16, a *[16]uint8, port uint16) netip.AddrPort {
	var ip netip.Addr
	switch family {
	case afINet:
		ip = netip.AddrFrom4([4]byte(a[:4]))
	case afINet6:
		ip = netip.AddrFrom16(*a).Unmap()
	default:
		return netip.AddrPort{}
	}
	if ip.IsUnspecified() && port == 0 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, port)
}

// unixName returns a unix socket's address in the event's form.
func unixName(n *sensorNet) string {
	b := n.Upath[:n.Ulen]
	if len(b) == 0 {
		return ""
	}
	if b[0] == 0 {
		return "@" + string(b[1:])
	}
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

func (d *decoder) netRecord(r record) error {
	n, extra, err := r.net()
	if err != nil {
		return err
	}
	d.net.tcp = d.net.tcp || protoOf(n) == bodycam.ProtoTCP
	switch sensorKind(r.Kind) {
	case sensorKindK_STATE:
		return d.outcome(r, n)
	case sensorKindK_DNS:
		return d.packet(r, n, extra)
	}
	types := map[sensorNetop]bodycam.Type{
		sensorNetopNET_CONNECT: bodycam.TypeConnect, sensorNetopNET_SEND: bodycam.TypeSend, sensorNetopNET_BIND: bodycam.TypeBind,
		sensorNetopNET_LISTEN: bodycam.TypeListen, sensorNetopNET_ACCEPT: bodycam.TypeAccept,
	}
	typ := types[sensorNetop(n.Op)]
	if sensorKind(r.Kind) == sensorKindK_FLOW {
		typ = bodycam.TypeFlow
	}
	e := d.begin(r, typ)
	e.Proto, e.Cookie = protoOf(n), n.Cookie
	e.Local, e.Remote = addrPort(n.Family, &n.Laddr, n.Lport), addrPort(n.Family, &n.Raddr, n.Rport)
	if n.Family == afUnix {
		e.UnixAddr = unixName(n)
		e.Path = d.place(r, extra)
		e.Marks |= walkMarks(n.Walk) &^ bodycam.MarkAnonymous
	}
	switch typ {
	case bodycam.TypeFlow:
		e.BytesRead, e.BytesWritten = n.Rd, n.Wr
		return d.endFlow(r)
	case bodycam.TypeUnknown:
		return errShort
	}
	e.Errno = errnoOf(n.Ret)
	if typ == bodycam.TypeSend && n.Ret > 0 {
		e.Bytes = uint64(n.Ret)
	}
	if n.Verified == 0 {
		e.Marks |= bodycam.MarkUnverified
	}
	if n.Flags&1 != 0 {
		e.Marks |= bodycam.MarkNoResult
	}
	if interrupted(n.Ret) {
		return d.interrupt(sensorSourceSRC_NET)
	}
	d.restarted()
	if typ == bodycam.TypeConnect && n.Cookie != 0 {
		return d.connect(r)
	}
	return d.deliver(r.Source)
}

// connect delivers a connection attempt, or keeps it until its outcome is known.
func (d *decoder) connect(r record) error {
	e := &d.ev
	out, known := d.net.outcomes[e.Cookie]
	delete(d.net.outcomes, e.Cookie)
	if e.Errno != eInProgress {
		return d.deliver(r.Source)
	}
	if known {
		e.Errno = out
		return d.deliver(r.Source)
	}
	if len(d.net.connects) >= maxHeld {
		return d.deliver(r.Source)
	}
	if held := d.net.connects[e.Cookie]; held != nil {
		next := *e
		if err := d.release(held); err != nil {
			return err
		}
		d.ev = next
	}
	d.net.connects[d.ev.Cookie] = &heldEvent{ev: d.ev, source: r.Source}
	return nil
}

// outcome ends a connection attempt.
func (d *decoder) outcome(r record, n *sensorNet) error {
	result := int32(eInProgress)
	if n.Ret != abandoned {
		result = errnoOf(n.Ret)
	}
	held := d.net.connects[n.Cookie]
	if held == nil {
		if n.Cookie != 0 && len(d.net.outcomes) < maxHeld {
			d.net.outcomes[n.Cookie] = result
		}
		return nil
	}
	delete(d.net.connects, n.Cookie)
	held.ev.Errno = result
	if l := addrPort(n.Family, &n.Laddr, n.Lport); l.IsValid() && !l.Addr().IsUnspecified() {
		held.ev.Local = l
	}
	return d.release(held)
}

func (d *decoder) release(h *heldEvent) error {
	if h.told {
		return nil
	}
	h.told = true
	d.ev = h.ev
	return d.deliver(h.source)
}

func (d *decoder) endFlow(r record) error {
	delete(d.net.outcomes, d.ev.Cookie)
	return d.deliver(r.Source)
}

// finish delivers everything that still waits: nothing more will come.
func (d *decoder) finish() error {
	for tid := range d.stopped {
		if err := d.notRestarted(tid); err != nil {
			return err
		}
	}
	for tid := range d.execs {
		if err := d.finishExec(tid); err != nil {
			return err
		}
	}
	for k, h := range d.net.connects {
		delete(d.net.connects, k)
		if err := d.release(h); err != nil {
			return err
		}
	}
	return nil
}
