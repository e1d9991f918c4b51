//go:build linux

package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/boxinit"
)

// netFiles are the sockets that live in the box's network namespace and are held here.
type netFiles struct {
	tcp     *net.TCPListener
	dns     net.PacketConn
	dnsTCP  net.Listener
	forward []net.Listener
}

func (n *netFiles) close() {
	for _, c := range append([]io.Closer{}, n.closers()...) {
		c.Close()
	}
}

func (n *netFiles) closers() []io.Closer {
	var out []io.Closer
	if n.tcp != nil {
		out = append(out, n.tcp)
	}
	if n.dns != nil {
		out = append(out, n.dns)
	}
	if n.dnsTCP != nil {
		out = append(out, n.dnsTCP)
	}
	for _, l := range n.forward {
		out = append(out, l)
	}
	return out
}

// takeNet turns the sockets that init sent into listeners, and starts forwarding.
func (b *Box) takeNet(files []*os.File) error {
	defer boxinit.CloseAll(files)
	want := len(b.cfg.Network.ForwardPorts)
	if b.cfg.Network.Mode == NetProxied {
		want += 3
	}
	if len(files) != want {
		return fmt.Errorf("init sent %d sockets, not %d", len(files), want)
	}
	if b.cfg.Network.Mode == NetProxied {
		tcp, err := net.FileListener(files[0])
		if err != nil {
			return err
		}
		b.nets.tcp = tcp.(*net.TCPListener)
		if b.nets.dns, err = net.FilePacketConn(files[1]); err != nil {
			return err
		}
		if b.nets.dnsTCP, err = net.FileListener(files[2]); err != nil {
			return err
		}
		files = files[3:]
	}
	for i, f := range files {
		l, err := net.FileListener(f)
		if err != nil {
			return err
		}
		b.nets.forward = append(b.nets.forward, l)
		go forward(l, net.JoinHostPort("127.0.0.1", strconv.Itoa(int(b.cfg.Network.ForwardPorts[i]))))
	}
	return nil
}

// NetListeners returns the sockets on which a box with NetProxied reaches the recorder. They live in the box's network
// namespace; the recorder accepts and answers, and dials out from its own. tcp gets every TCP connection that doesn't go
// to the box itself (OriginalDst says where to), dns and dnsTCP what goes to port 53, wherever to, IPv4 and IPv6.
// Anything else that wants to leave is dropped and counted (DroppedPackets). Close closes them.
func (b *Box) NetListeners() (tcp *net.TCPListener, dns net.PacketConn, dnsTCP net.Listener, err error) {
	if b.nets.tcp == nil {
		return nil, nil, nil, errors.New("sandbox: this box's network is not proxied")
	}
	return b.nets.tcp, b.nets.dns, b.nets.dnsTCP, nil
}

// DroppedPackets counts packets that wanted to leave a proxied network and were neither TCP nor DNS.
func (b *Box) DroppedPackets(ctx context.Context) (uint64, error) {
	a, err := b.call(ctx, &boxinit.Request{Dropped: true})
	return a.Count, err
}

// Dial connects to a port on which a program of the box listens on the box's loopback. The connection lives in the box's
// network namespace; what comes over it is not trusted.
func (b *Box) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a, err := b.call(ctx, &boxinit.Request{Dial: port})
	if err != nil {
		return nil, fmt.Errorf("connecting to port %d in the box: %w", port, err)
	}
	defer boxinit.CloseAll(a.files)
	if len(a.files) != 1 {
		return nil, fmt.Errorf("connecting to port %d in the box: init sent %d sockets", port, len(a.files))
	}
	return net.FileConn(a.files[0])
}

// forward joins connections of the box to one port of the host's loopback.
func forward(l net.Listener, to string) {
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of files, for example
			continue
		}
		go func() {
			defer c.Close()
			up, err := net.DialTimeout("tcp", to, 10*time.Second)
			if err != nil {
				if t, ok := c.(*net.TCPConn); ok {
					_ = t.SetLinger(0) // a reset, as the box would see for a closed port
				}
				return
			}
			defer up.Close()
			splice(c.(*net.TCPConn), up.(*net.TCPConn))
		}()
	}
}

// splice copies both ways, and each way's end by itself.
func splice(a, b *net.TCPConn) {
	var wg sync.WaitGroup
	for _, d := range [][2]*net.TCPConn{{a, b}, {b, a}} {
		wg.Go(func() {
			_, _ = io.Copy(d[0], d[1])
			_ = d[0].CloseWrite()
		})
	}
	wg.Wait()
}

// ErrDirect says that a connection came to the listener because the box named its very address and port: it was going
// nowhere else, and must not be passed on.
var ErrDirect = errors.New("a connection straight to the recorder's listener")

// OriginalDst is where a connection accepted from NetListeners was really going, or ErrDirect.
func OriginalDst(c *net.TCPConn) (netip.AddrPort, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	local, ok := c.LocalAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("original destination: local address %v", c.LocalAddr())
	}
	var dst netip.AddrPort
	var serr error
	err = raw.Control(func(fd uintptr) {
		if local.IP.To4() != nil {
			var m *unix.IPv6Mreq // as large as the sockaddr_in that is wanted
			if m, serr = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); serr == nil {
				b := m.Multiaddr
				dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), uint16(b[2])<<8|uint16(b[3]))
			}
			return
		}
		var i *unix.IPv6MTUInfo // starts with a sockaddr_in6
		if i, serr = unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, unix.SO_ORIGINAL_DST); serr == nil {
			dst = netip.AddrPortFrom(netip.AddrFrom16(i.Addr.Addr), ntohs(i.Addr.Port))
		}
	})
	if err == nil {
		err = serr
	}
	own := netip.AddrPortFrom(local.AddrPort().Addr().Unmap(), uint16(local.Port))
	if errors.Is(err, syscall.ENOENT) || err == nil && dst == own { // there was no translation
		return netip.AddrPort{}, ErrDirect
	}
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("original destination of %s: %w", strconv.Quote(c.RemoteAddr().String()), err)
	}
	return dst, nil
}

// ntohs turns around a port as the kernel stores it.
func ntohs(p uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], p)
	return binary.BigEndian.Uint16(b[:])
}
