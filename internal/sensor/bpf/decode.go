package bpf

import (
	"bytes"
	"fmt"
	"path"
	"unsafe"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor"
)

// decoder turns records into events. It runs in one goroutine and is the only one that calls the sink.
//
// It keeps little: per process its identity and parent, per task the names of the files in its cache, and the
// few events that wait for their other half (argv, an answer, the outcome of a connection attempt).
type decoder struct {
	sink   sensor.Sink
	tables *callTables
	root   string // prefix of paths seen from the recorder's own mount namespace, "" for none
	offset int64  // wall clock minus boot clock
	argMax int

	count [sensorSourceSRC_NUM]bodycam.Counters
	seqs  []streamSeq
	procs map[int32]process
	last  process // of parentOf

	lastTID  int32 // of taskOf
	lastTask *task

	tasks   map[int32]*task
	execs   map[uint32]*heldExec // by thread: argv is still coming
	net     netState
	blind   map[string]uint64
	spare   []*task // of tasks that ended, to be used again
	scratch slot
	text    text

	stopped map[int32]*heldEvent // by thread: calls that a signal interrupted

	ev bodycam.Event
}

type streamSeq struct{ next, got uint64 }

type process struct{ id, parent bodycam.Proc }

// task mirrors the names in a task's cache in the kernel.
type task struct {
	slots [cacheSlots]*slot
}

// slot returns a slot to be filled.
func (t *task) slot(i uint16) *slot {
	p := &t.slots[i%cacheSlots]
	if *p == nil {
		*p = &slot{}
	}
	return *p
}

const cacheSlots = uint16(len(sensorCache{}.E))

// slot is what is known of the file in a slot: enough to report what is done with it later.
type slot struct {
	oid        uint64
	path       string
	given      string
	access     bodycam.Access
	flags      uint64
	nr         int32
	abi        bodycam.ABI
	marks      bodycam.Mark
	dev, ino   uint64
	typ        bodycam.Type
	detail     string
	ownOpening bool
}

func newDecoder(tables *callTables, offset int64, root string, argMax int, sink sensor.Sink) *decoder {
	return &decoder{
		sink: sink, tables: tables, root: root, offset: offset, argMax: argMax,
		procs: map[int32]process{}, tasks: map[int32]*task{}, execs: map[uint32]*heldExec{},
		net: newNetState(), blind: map[string]uint64{}, stopped: map[int32]*heldEvent{},
	}
}

// one decodes a record. A malformed one is counted as lost, not an error: only the sink's errors are.
func (d *decoder) one(b []byte) error {
	r, err := view(b)
	if err != nil {
		d.count[sensorSourceSRC_PART].Seen++
		d.count[sensorSourceSRC_PART].Lost++
		return nil
	}
	d.sequence(r)
	return d.record(r)
}

func (d *decoder) sequence(r record) {
	for int(r.Stream) >= len(d.seqs) && len(d.seqs) < 4096 {
		d.seqs = append(d.seqs, streamSeq{})
	}
	if int(r.Stream) < len(d.seqs) {
		s := &d.seqs[r.Stream]
		s.got++
		s.next = max(s.next, r.Seq+1)
	}
}

// record decodes one record. What can't be read is counted as lost under its source.
func (d *decoder) record(r record) error {
	if len(d.execs) > 0 && sensorKind(r.Kind) != sensorKindK_ARGV && d.execs[r.Tid] != nil {
		if err := d.finishExec(r.Tid); err != nil {
			return err
		}
	}
	err := d.kind(r)
	if err == errShort {
		c := d.counter(r)
		c.Lost++
		return nil
	}
	return err
}

func (d *decoder) counter(r record) *bodycam.Counters {
	if int(r.Source) < len(d.count) {
		return &d.count[r.Source]
	}
	return &d.count[sensorSourceSRC_PART]
}

func (d *decoder) kind(r record) error {
	switch sensorKind(r.Kind) {
	case sensorKindK_OPEN, sensorKindK_FILE:
		return d.open(r)
	case sensorKindK_FLUSH:
		return d.flush(r)
	case sensorKindK_MMAP:
		return d.mmap(r)
	case sensorKindK_EXEC:
		return d.exec(r)
	case sensorKindK_ARGV:
		return d.argv(r)
	case sensorKindK_FORK, sensorKindK_CLONE_NS, sensorKindK_EXIT, sensorKindK_THREAD, sensorKindK_SIGNAL:
		return d.life(r)
	case sensorKindK_NET, sensorKindK_STATE, sensorKindK_FLOW, sensorKindK_DNS:
		return d.netRecord(r)
	}
	b, s, err := r.body()
	if err != nil {
		return err
	}
	switch sensorKind(r.Kind) {
	case sensorKindK_CALL:
		return d.call(r, b, &s)
	case sensorKindK_RACED:
		return d.raced(r, b, &s)
	case sensorKindK_URING:
		return d.uring(r, b, &s)
	case sensorKindK_PASSFD:
		return d.passed(r, b, &s)
	}
	return errShort
}

// life reports what happens to processes.
func (d *decoder) life(r record) error {
	l, _, err := cut[sensorLife](r)
	if err != nil {
		return err
	}
	other := bodycam.Proc{PID: int32(l.Tgid), Start: l.Start}
	switch sensorKind(r.Kind) {
	case sensorKindK_FORK:
		return d.fork(r, other, l.Value)
	case sensorKindK_CLONE_NS:
		e := d.begin(r, bodycam.TypeNamespace)
		e.Flags, e.Child = l.Value, other
		return d.deliver(r.Source)
	case sensorKindK_EXIT:
		return d.exit(r, int32(l.Value))
	case sensorKindK_SIGNAL:
		e := d.begin(r, bodycam.TypeSignal)
		e.Signal, e.Child = int32(l.Value), other
		return d.deliver(r.Source)
	}
	if err := d.notRestarted(int32(r.Tid)); err != nil {
		return err
	}
	d.forget(int32(r.Tid))
	return nil
}

// begin clears the event and fills what every record's head tells.
func (d *decoder) begin(r record, t bodycam.Type) *bodycam.Event {
	e := &d.ev
	*e = bodycam.Event{} // the sink may have written to any field
	e.Time, e.Boot, e.Type, e.Sensor, e.Count = int64(r.Time)+d.offset, r.Time, t, Name, 1
	e.NR, e.ABI = r.Nr, bodycam.ABI(r.Abi)
	if r.Nr < 0 {
		e.ABI = bodycam.ABINone
	}
	e.TID, e.UID, e.GID, e.SID = int32(r.Tid), r.Uid, r.Gid, r.Sid
	if r.Start == 0 {
		e.Marks = bodycam.MarkNoProcess
		return e
	}
	e.Proc = bodycam.Proc{PID: int32(r.Tgid), Start: r.Start}
	e.Parent = d.parentOf(e.Proc)
	return e
}

// at sets when the event happened, where that isn't when its record was made.
func (d *decoder) at(boot uint64) {
	d.ev.Boot = boot
	d.ev.Time = int64(boot) + d.offset
}

// parentOf returns a process's parent. Records come in runs of one process, so the last answer is kept.
func (d *decoder) parentOf(p bodycam.Proc) bodycam.Proc {
	if d.last.id != p {
		d.last = process{id: p}
		if pr, ok := d.procs[p.PID]; ok && pr.id == p {
			d.last = pr
		}
	}
	return d.last.parent
}

// born notes a process and its parent.
func (d *decoder) born(p process) {
	d.procs[p.id.PID] = p
	d.last = process{}
}

// deliver hands the event to the sink and counts it: one emitted, the rest of its count folded.
func (d *decoder) deliver(source uint8) error {
	c := &d.count[source]
	c.Emitted++
	c.Folded += d.ev.N() - 1
	if err := d.sink(&d.ev); err != nil {
		return fmt.Errorf("delivering %s event: %w", d.ev.Type, err)
	}
	return nil
}

// taskOf returns what is kept for a task, or nil. Records come in runs of one task, so the last answer is kept.
func (d *decoder) taskOf(tid int32) *task {
	if d.lastTask == nil || d.lastTID != tid {
		d.lastTID, d.lastTask = tid, d.tasks[tid]
	}
	return d.lastTask
}

// taskFor is taskOf, and begins to keep something.
func (d *decoder) taskFor(tid int32) *task {
	t := d.taskOf(tid)
	if t == nil {
		if n := len(d.spare); n > 0 {
			t, d.spare = d.spare[n-1], d.spare[:n-1]
		} else {
			t = &task{}
		}
		d.tasks[tid] = t
		d.lastTask = t
	}
	return t
}

// forget frees what is kept for a task that ended.
func (d *decoder) forget(tid int32) {
	t := d.taskOf(tid)
	if t == nil {
		return
	}
	delete(d.tasks, tid)
	d.lastTask = nil
	if len(d.spare) < 64 {
		for _, s := range t.slots {
			if s != nil {
				s.oid = 0
			}
		}
		d.spare = append(d.spare, t)
	}
}

// place makes the path as the sandbox sees it.
func (d *decoder) place(r record, p []byte) string {
	if d.root != "" && r.Flags&recHostNS != 0 {
		if rest, ok := bytes.CutPrefix(p, []byte(d.root)); ok && (len(rest) == 0 || rest[0] == '/') {
			if p = rest; len(rest) == 0 {
				return "/"
			}
		}
	}
	return d.text.keep(p)
}

// given keeps a name as the program gave it. It is often the end of the path that it led to: then it costs nothing.
func (d *decoder) given(name []byte, path string) string {
	if n := len(path) - len(name); n >= 0 && path[n:] == string(name) {
		return path[n:]
	}
	return d.text.keep(name)
}

// text makes strings that share blocks of memory, so that few events cost an allocation. A string is for ever, and keeps
// its block, so blocks are small.
type text struct{ room []byte }

const textBlock = 2048

func (t *text) keep(b []byte) string {
	if len(b) > textBlock/8 {
		return string(b)
	}
	if len(b) > cap(t.room)-len(t.room) {
		t.room = make([]byte, 0, textBlock)
	}
	n := len(t.room)
	t.room = append(t.room, b...)
	s := t.room[n:]
	return unsafe.String(unsafe.SliceData(s), len(s)) // these bytes are never written again
}

const (
	recHostNS = 1
	recWorker = 2

	walkDeleted  = 1
	walkAnon     = 2
	walkCut      = 4
	walkDetached = 8
	walkNoFD     = 16
	walkObject   = 32
	walkUnsure   = 64
	walkRest     = 128
	walkName     = 256
)

// walkMarks says what the bits of a walk mean for an event.
func walkMarks(bits uint32) bodycam.Mark {
	var m bodycam.Mark
	if bits&walkDeleted != 0 {
		m |= bodycam.MarkDeleted
	}
	if bits&walkAnon != 0 {
		m |= bodycam.MarkAnonymous
	}
	if bits&walkCut != 0 {
		m |= bodycam.MarkTruncated
	}
	if bits&walkDetached != 0 {
		m |= bodycam.MarkDetached
	}
	return m
}

// join resolves a name against the path that it starts from, as text: symbolic links are not followed. An absolute
// name starts from the process's root, whose path is "" where that is the tree's top.
func join(base, given string) string {
	switch {
	case given == "":
		return base
	case given[0] == '/' && base != "":
		return path.Clean(base + path.Clean(given))
	case given[0] == '/':
		return path.Clean(given)
	case base == "":
		return given
	}
	return path.Clean(base + "/" + given)
}

// dev turns the kernel's dev_t into the event's form.
func dev(kernel uint32) uint64 { return uint64(kernel>>20)<<32 | uint64(kernel&0xfffff) }

func errnoOf(ret int64) int32 {
	if ret < 0 && ret >= -4095 {
		return int32(-ret)
	}
	return 0
}

func (d *decoder) total() bodycam.Counters {
	var t bodycam.Counters
	for _, c := range d.count {
		t.Add(c)
	}
	return t
}

// gaps compares how many records came with how many the kernel side tried to send, per stream.
func (d *decoder) gaps(tried []uint64) uint64 {
	var n uint64
	for i, want := range tried {
		var got uint64
		if i < len(d.seqs) {
			got = d.seqs[i].got
		}
		if want > got {
			n += want - got
		}
	}
	return n
}

func (d *decoder) blindness() []bodycam.Blind {
	var out []bodycam.Blind
	if n := d.blind["io_uring"]; n > 0 {
		out = append(out, bodycam.Blind{What: "io_uring", Why: "requests to io_uring were submitted; what came of them is not known", Count: n})
	}
	return out
}
