package names

import (
	"container/heap"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor"
)

// A Joiner stands between sensors and the writer of a run. It gives the proxy's events the process that they
// belong to, by protocol and addresses of the socket, and gives the kernel's network events the name of the host.
//
// Kernel events pass through at once. The proxy's wait until the kernel's record has reached their time, so that
// the two leave in the order of Boot and the process is known. A DNS answer is emitted by the proxy before it is
// sent, so a connection that rests on it always comes after it. Nothing is lost: an event whose process isn't found
// in time leaves with MarkNoProcess.
//
// All methods may be called from any goroutine; the next sink is called from one at a time.
type Joiner struct {
	o    JoinerOptions
	next sensor.Sink

	mu       sync.Mutex
	err      error
	stats    JoinerStats
	reached  uint64 // the latest Boot of a kernel event
	held     eventHeap
	order    uint64
	waiting  []*heldEvent              // no process yet, by arrival
	byKey    map[portKey][]*heldEvent  // those of waiting, by their socket's port
	sockets  sockets                   //
	names    map[netip.Addr]*addrNames //
	asked    bounded[ask, struct{}]    // which process asked for which address
	timer    *time.Timer               // runs while something is held
	finished bool
}

// JoinerOptions configure a Joiner.
type JoinerOptions struct {
	// Hosts are the entries of the sandbox's hosts file.
	Hosts map[string][]netip.Addr
	// Window is how long a proxy event waits for the kernel's record to reach its time; 200 ms if 0.
	Window time.Duration
	// Patience is how long a proxy event waits for its process; 2 s if 0. It ends early, a Window after the event,
	// once the kernel's record has gone on that far.
	Patience time.Duration
	// MaxSockets bounds how many sockets are remembered, 65536 if 0; MaxHeld how many events wait, 16384 if 0.
	MaxSockets, MaxHeld int
	// Clock gives the time since boot; nil: the kernel's.
	Clock func() uint64
}

// JoinerStats tell how the joining went.
type JoinerStats struct {
	Kernel uint64 `json:"kernel"` // kernel events passed on
	Named  uint64 `json:"named"`  // kernel events that got a name
	Joined uint64 `json:"joined"` // proxy events that got a process
	Orphan uint64 `json:"orphan"` // proxy events that left without one
	Late   uint64 `json:"late"`   // proxy events that left after a kernel event of a later time
	Early  uint64 `json:"early"`  // proxy events that left before their time, because too many waited
}

type heldEvent struct {
	e     bodycam.Event
	order uint64 // of arrival: ties of Boot keep it
}

type portKey struct {
	proto bodycam.Proto
	port  uint16
}

type ask struct {
	addr netip.Addr
	proc bodycam.Proc
}

// addrNames are the names of one address, in the order in which they were learned.
type addrNames struct {
	dns  []string // latest last
	file []string
}

const (
	maxNamesPerAddr = 16
	maxAddrs        = 1 << 17
)

// NewJoiner makes a joiner that passes all events on to next.
func NewJoiner(next sensor.Sink, o JoinerOptions) *Joiner {
	if o.Window <= 0 {
		o.Window = 200 * time.Millisecond
	}
	if o.Patience <= 0 {
		o.Patience = 2 * time.Second
	}
	if o.MaxSockets <= 0 {
		o.MaxSockets = 1 << 16
	}
	if o.MaxHeld <= 0 {
		o.MaxHeld = 1 << 14
	}
	if o.Clock == nil {
		o.Clock = func() uint64 { _, boot := now(); return boot }
	}
	j := &Joiner{o: o, next: next, byKey: map[portKey][]*heldEvent{}, names: map[netip.Addr]*addrNames{},
		sockets: newSockets(o.MaxSockets), asked: newBounded[ask, struct{}](o.MaxSockets)}
	hosts := make([]string, 0, len(o.Hosts))
	for h := range o.Hosts {
		hosts = append(hosts, h)
	}
	slices.Sort(hosts) // maps have no order, and the record must not depend on chance
	for _, h := range hosts {
		for _, a := range o.Hosts[h] {
			n := j.addr(a.Unmap())
			n.file = append(n.file, canonical(h))
		}
	}
	return j
}

// Kernel takes the events of sensors that see processes. It is a sensor.Sink.
func (j *Joiner) Kernel(e *bodycam.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if s := j.sockets.learn(e); s != nil {
		j.retry(portKey{s.proto, s.local.Port()})
	}
	if e.Type == bodycam.TypeDNS { // a sensor that reads DNS packets
		j.answered(e)
	}
	if e.Boot > j.reached {
		j.advance(e.Boot)
		j.expire(e.Boot, j.o.Window)
		j.reached = e.Boot
	}
	j.name(e)
	j.stats.Kernel++
	j.pass(e)
	return j.err
}

// Names takes the events of the proxy. It is a sensor.Sink.
func (j *Joiner) Names(e *bodycam.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := &heldEvent{e: *e, order: j.order}
	h.e.Answers = slices.Clone(e.Answers)
	h.e.Argv = slices.Clone(e.Argv)
	j.order++
	if e.Type == bodycam.TypeDNS {
		j.answered(e)
	}
	if e.Boot <= j.reached {
		j.settle(h)
	} else {
		heap.Push(&j.held, h)
	}
	j.bound()
	if j.timer == nil && !j.finished && j.pending() > 0 {
		j.timer = time.AfterFunc(j.o.Window, j.tick)
	}
	return j.err
}

// Close passes on all that is held. It is called when the sensors and the proxy have stopped: what comes later all
// the same is passed on without waiting.
func (j *Joiner) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.finished = true
	if j.timer != nil {
		j.timer.Stop()
		j.timer = nil
	}
	j.advance(^uint64(0))
	j.expire(^uint64(0), 0)
	return j.err
}

// Stats may be called at any time.
func (j *Joiner) Stats() JoinerStats {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stats
}

func (j *Joiner) pending() int { return len(j.held) + len(j.waiting) }

// tick lets events go when the kernel has nothing to say for a while.
func (j *Joiner) tick() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.finished || j.timer == nil {
		return
	}
	t := j.o.Clock()
	j.advance(t - min(t, uint64(j.o.Window)))
	j.expire(t, j.o.Patience)
	if j.timer = nil; j.pending() > 0 {
		j.timer = time.AfterFunc(j.o.Window/2, j.tick)
	}
}

// advance settles held events up to a time.
func (j *Joiner) advance(boot uint64) {
	for len(j.held) > 0 && j.held[0].e.Boot <= boot {
		j.settle(heap.Pop(&j.held).(*heldEvent))
	}
}

// settle passes an event on if its process is known, else puts it aside.
func (j *Joiner) settle(h *heldEvent) {
	if j.join(&h.e) {
		j.stats.Joined++
		j.release(h)
		return
	}
	if j.finished {
		j.orphan(h)
		return
	}
	j.waiting = append(j.waiting, h)
	k := portKey{h.e.Proto, h.e.Local.Port()}
	j.byKey[k] = append(j.byKey[k], h)
}

// retry looks again at the events that wait for a socket with that port.
func (j *Joiner) retry(k portKey) {
	list := j.byKey[k]
	if len(list) == 0 {
		return
	}
	for _, h := range slices.Clone(list) {
		if j.join(&h.e) {
			j.unwait(h)
			j.stats.Joined++
			j.release(h)
		}
	}
}

func (j *Joiner) unwait(h *heldEvent) {
	if i := slices.Index(j.waiting, h); i >= 0 {
		j.waiting = slices.Delete(j.waiting, i, i+1)
	}
	k := portKey{h.e.Proto, h.e.Local.Port()}
	list := j.byKey[k]
	if i := slices.Index(list, h); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(j.byKey, k)
	} else {
		j.byKey[k] = list
	}
}

// expire lets go of events that have waited for their process for so long.
func (j *Joiner) expire(boot uint64, patience time.Duration) {
	for len(j.waiting) > 0 {
		h := j.waiting[0]
		if h.e.Boot+uint64(patience) > boot {
			return
		}
		j.unwait(h)
		j.orphan(h)
	}
}

// bound keeps memory bounded.
func (j *Joiner) bound() {
	for j.pending() > j.o.MaxHeld {
		j.stats.Early++
		if len(j.waiting) > 0 {
			h := j.waiting[0]
			j.unwait(h)
			j.orphan(h)
			continue
		}
		j.settle(heap.Pop(&j.held).(*heldEvent))
	}
}

// orphan lets an event go that no socket with its address was found for.
func (j *Joiner) orphan(h *heldEvent) {
	s := j.sockets.find(&h.e, uint64(j.o.Window)) // an event before this one may have told the socket's address
	if s == nil {
		s = j.sockets.eliminate(&h.e, uint64(j.o.Window))
	}
	if s != nil {
		j.assign(&h.e, s)
		j.stats.Joined++
		j.release(h)
		return
	}
	h.e.Marks |= bodycam.MarkNoProcess
	if h.e.Type != bodycam.TypeDNS && h.e.HostSource == bodycam.HostDNS {
		h.e.HostSource = bodycam.HostShared // some process of the run was told the name; not known to be this one
	}
	j.stats.Orphan++
	j.release(h)
}

func (j *Joiner) release(h *heldEvent) {
	if h.e.Boot < j.reached {
		j.stats.Late++
	}
	j.pass(&h.e)
}

// pass hands an event on. After a failure of the next sink nothing more is handed to it.
func (j *Joiner) pass(e *bodycam.Event) {
	if j.err == nil {
		j.err = j.next(e)
	}
}

// join gives a proxy event its process.
func (j *Joiner) join(e *bodycam.Event) bool {
	s := j.sockets.find(e, uint64(j.o.Window))
	if s == nil {
		return false
	}
	j.assign(e, s)
	return true
}

func (j *Joiner) assign(e *bodycam.Event, s *socket) {
	e.Proc, e.Cookie, e.UID, e.GID, e.Parent, e.SID = s.proc, s.cookie, s.uid, s.gid, s.parent, s.sid
	switch {
	case e.Type == bodycam.TypeDNS:
		j.answered(e)
	case e.HostSource == bodycam.HostDNS:
		if _, src := j.hostOf(e.Remote.Addr(), e.Proc); src != bodycam.HostLiteral {
			e.HostSource = src
		}
	}
}

// answered remembers the names of the addresses in a DNS answer, and who asked if that is known.
func (j *Joiner) answered(e *bodycam.Event) {
	for _, a := range e.Answers {
		a = a.Unmap()
		j.addr(a).add(canonical(e.Host))
		if e.Proc.PID != 0 {
			j.asked.put(ask{a, e.Proc}, struct{}{})
		}
	}
}

// name gives a kernel event the name of the host that it goes to.
func (j *Joiner) name(e *bodycam.Event) {
	if e.HostSource != bodycam.HostUnknown || !e.Remote.IsValid() {
		return
	}
	switch e.Type {
	case bodycam.TypeConnect, bodycam.TypeSend:
		e.Host, e.HostSource = j.hostOf(e.Remote.Addr(), e.Proc)
	case bodycam.TypeFlow:
		s := j.sockets.byCookie[e.Cookie]
		if s == nil || !s.outgoing {
			return
		}
		e.Host, e.HostSource = j.hostOf(e.Remote.Addr(), s.proc)
	default:
		return
	}
	if e.Host != "" {
		j.stats.Named++
	}
}

// hostOf says which name an address has, for a process.
func (j *Joiner) hostOf(a netip.Addr, p bodycam.Proc) (string, bodycam.HostSource) {
	a = a.Unmap().WithZone("")
	n := j.names[a]
	if n == nil {
		return "", bodycam.HostLiteral
	}
	_, own := j.asked.get(ask{a, p})
	switch {
	case len(n.dns) == 0 && len(n.file) == 1:
		return n.file[0], bodycam.HostFile
	case len(n.dns) == 0 && len(n.file) > 1:
		return n.file[0], bodycam.HostAmbiguous
	case len(n.dns) == 1 && (len(n.file) == 0 || slices.Equal(n.file, n.dns)):
		if own {
			return n.dns[0], bodycam.HostDNS
		}
		if len(n.file) > 0 {
			return n.dns[0], bodycam.HostFile
		}
		return n.dns[0], bodycam.HostShared
	case len(n.dns) > 0:
		return n.dns[len(n.dns)-1], bodycam.HostAmbiguous
	}
	return "", bodycam.HostLiteral
}

func (j *Joiner) addr(a netip.Addr) *addrNames {
	n := j.names[a]
	if n == nil {
		n = &addrNames{}
		if len(j.names) < maxAddrs { // more than the proxy gives out
			j.names[a] = n
		}
	}
	return n
}

func (n *addrNames) add(name string) {
	if i := slices.Index(n.dns, name); i >= 0 {
		n.dns = slices.Delete(n.dns, i, i+1)
	} else if len(n.dns) >= maxNamesPerAddr {
		n.dns = slices.Delete(n.dns, 0, 1)
	}
	n.dns = append(n.dns, name)
}

// eventHeap orders by Boot, then by arrival.
type eventHeap []*heldEvent

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(a, b int) bool {
	if h[a].e.Boot != h[b].e.Boot {
		return h[a].e.Boot < h[b].e.Boot
	}
	return h[a].order < h[b].order
}
func (h eventHeap) Swap(a, b int) { h[a], h[b] = h[b], h[a] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(*heldEvent)) }
func (h *eventHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return x
}
