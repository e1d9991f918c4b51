package names

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	resolveTimeout = 10 * time.Second
	resolveKeep    = 30 * time.Second // how long an answer of the host's resolver is used again
	resolveCache   = 4096
)

// resolver asks the host's resolver for addresses. Concurrent questions for one name become one.
type resolver struct {
	lookup func(ctx context.Context, name string) ([]netip.Addr, error)

	mu      sync.Mutex
	entries map[string]*resolved
}

type resolved struct {
	ready chan struct{}
	addrs []netip.Addr
	err   error
	until time.Time
}

func newResolver(r *net.Resolver) *resolver {
	return &resolver{entries: map[string]*resolved{}, lookup: func(ctx context.Context, name string) ([]netip.Addr, error) {
		// The dot at the end keeps the host's search domains out.
		return r.LookupNetIP(ctx, "ip", name+".")
	}}
}

// addrs returns the addresses of a canonical name, IPv4 first.
func (r *resolver) addrs(name string) ([]netip.Addr, error) {
	now := time.Now()
	r.mu.Lock()
	e := r.entries[name]
	if e != nil {
		select {
		case <-e.ready:
			if now.After(e.until) {
				e = nil
			}
		default: // being asked
		}
	}
	if e == nil {
		e = &resolved{ready: make(chan struct{})}
		r.shrink(now)
		r.entries[name] = e
		go r.ask(name, e)
	}
	r.mu.Unlock()
	<-e.ready
	return e.addrs, e.err
}

func (r *resolver) ask(name string, e *resolved) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	addrs, err := r.lookup(ctx, name)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	keep := resolveKeep
	if err != nil {
		keep = time.Second
	}
	e.addrs, e.err, e.until = addrs, err, time.Now().Add(keep)
	close(e.ready)
}

// shrink keeps the cache bounded: expired entries go first, then any that are not being asked.
func (r *resolver) shrink(now time.Time) {
	if len(r.entries) < resolveCache {
		return
	}
	for pass := range 2 {
		for name, e := range r.entries {
			select {
			case <-e.ready:
				if pass == 1 || now.After(e.until) {
					delete(r.entries, name)
				}
			default:
			}
			if pass == 1 && len(r.entries) < resolveCache*3/4 {
				return
			}
		}
		if len(r.entries) < resolveCache*3/4 {
			return
		}
	}
}

// isNotFound tells "there is no such name" from "the resolver did not answer".
func isNotFound(err error) bool {
	var d *net.DNSError
	return errors.As(err, &d) && d.IsNotFound
}

// nameservers reads the host's DNS servers from resolv.conf.
func nameservers(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the host's DNS servers: %w", err)
	}
	defer f.Close()
	var out []string
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if w := strings.Fields(sc.Text()); len(w) >= 2 && w[0] == "nameserver" {
			out = append(out, net.JoinHostPort(w[1], "53"))
		}
	}
	return out, sc.Err()
}

// askServers sends a query to the host's DNS servers as it is and returns what they answer: for record types that
// have no synthetic answer (MX, TXT, SRV …).
func askServers(servers []string, query []byte) ([]byte, error) {
	if len(servers) == 0 {
		return nil, errors.New("the host has no DNS server in resolv.conf")
	}
	var errs []error
	for _, s := range servers {
		b, err := exchangeUDP(s, query)
		if err == nil && b[2]&0x02 != 0 { // cut
			b, err = exchangeTCP(s, query)
		}
		if err == nil {
			return b, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func exchangeUDP(server string, query []byte) ([]byte, error) {
	c, err := net.DialTimeout("udp", server, 3*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(3 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := c.Write(query); err != nil {
		return nil, err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return nil, err
		}
		if n >= dnsHeaderLen && buf[0] == query[0] && buf[1] == query[1] {
			return buf[:n], nil
		}
	}
}

func exchangeTCP(server string, query []byte) ([]byte, error) {
	c, err := net.DialTimeout("tcp", server, 3*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, err
	}
	if err := writeTCPMessage(c, query); err != nil {
		return nil, err
	}
	b, err := readTCPMessage(c)
	if err == nil && len(b) < dnsHeaderLen {
		err = errDNS
	}
	return b, err
}

// writeTCPMessage and readTCPMessage handle the length before each DNS message on TCP (RFC 1035 section 4.2.2).
func writeTCPMessage(w io.Writer, msg []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(msg)), uint16(len(msg))), msg...))
	return err
}

func readTCPMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}
