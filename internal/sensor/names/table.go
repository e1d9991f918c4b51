package names

import (
	"encoding/binary"
	"net/netip"
	"sync"
)

// table gives each name an address of its own and tells the name of an address. A name keeps its address for the
// life of the table: an address never means two names, so address to name is exact at any time.
type table struct {
	v4, v6 netip.Prefix // v6 may be invalid: then names have no IPv6 address
	limit  uint32

	mu     sync.RWMutex
	index  map[string]uint32
	byRank []string // index 0 is unused
}

func newTable(v4, v6 netip.Prefix, limit int) *table {
	room := uint64(1)<<(32-v4.Bits()) - 2 // neither the network's nor the broadcast address
	return &table{v4: v4.Masked(), v6: v6, limit: uint32(min(uint64(limit), room)),
		index: map[string]uint32{}, byRank: make([]string, 1)}
}

// assign returns the addresses of a name, new ones if it has none. It fails when the table is full.
func (t *table) assign(name string) (v4, v6 netip.Addr, ok bool) {
	t.mu.RLock()
	n, known := t.index[name]
	t.mu.RUnlock()
	if !known {
		t.mu.Lock()
		defer t.mu.Unlock()
		if n, known = t.index[name]; !known {
			if uint32(len(t.byRank)) > t.limit {
				return v4, v6, false
			}
			n = uint32(len(t.byRank))
			t.byRank = append(t.byRank, name)
			t.index[name] = n
		}
	}
	v4, v6 = t.addrs(n)
	return v4, v6, true
}

func (t *table) addrs(n uint32) (v4, v6 netip.Addr) {
	base := t.v4.Addr().As4()
	binary.BigEndian.PutUint32(base[:], binary.BigEndian.Uint32(base[:])+n)
	v4 = netip.AddrFrom4(base)
	if t.v6.IsValid() {
		b := t.v6.Masked().Addr().As16()
		binary.BigEndian.PutUint32(b[12:], n)
		v6 = netip.AddrFrom16(b)
	}
	return v4, v6
}

// synthetic tells whether an address lies in the ranges that the table gives out.
func (t *table) synthetic(a netip.Addr) bool {
	return t.v4.Contains(a) || t.v6.IsValid() && t.v6.Contains(a)
}

// name tells which name has the address.
func (t *table) name(a netip.Addr) (string, bool) {
	if !t.synthetic(a) {
		return "", false
	}
	var n uint32
	if a.Is4() {
		b, base := a.As4(), t.v4.Addr().As4()
		n = binary.BigEndian.Uint32(b[:]) - binary.BigEndian.Uint32(base[:])
	} else {
		b := a.As16()
		n = binary.BigEndian.Uint32(b[12:])
		if _, v6 := t.addrs(n); v6 != a {
			return "", false
		}
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if n == 0 || n >= uint32(len(t.byRank)) {
		return "", false
	}
	return t.byRank[n], true
}
