package bpf

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The kernel's marks in the head of a record in the ring (linux/bpf.h).
const (
	ringBusy    = 1 << 31
	ringDiscard = 1 << 30
	ringHead    = 8
)

// ringStep is how much more of the ring is mapped when the reader comes to where nothing was yet. A page's mapping is dear to make and to
// give back, and most runs fill a small part of the ring.
const ringStep = 1 << 20

// ring reads a BPF ring buffer. Records are used where they lie: the library's reader copies each.
type ring struct {
	size     uint64
	consumer []byte // one page, ours to write
	producer []byte // one page and the data
	data     []byte
	mapped   uint64   // bytes of data that can be read so far
	fd       int      // the map's
	whole    []byte   // a record that goes on at the ring's beginning
	file     *os.File // the ring again: the Go runtime's poller waits for it
	conn     syscall.RawConn
	kicked   atomic.Bool
}

func newRing(m *ebpf.Map) (*ring, error) {
	r := &ring{size: uint64(m.MaxEntries()), fd: m.FD()}
	page := os.Getpagesize()
	var err error
	if r.consumer, err = unix.Mmap(m.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("mapping the ring's consumer page: %w", err)
	}
	if r.producer, err = unix.Mmap(-1, 0, page+int(r.size), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE); err != nil {
		_ = unix.Munmap(r.consumer)
		return nil, fmt.Errorf("finding room to map the ring: %w", err)
	}
	r.data = r.producer[page:]
	if err := r.mapPart(0, page); err != nil {
		_, _ = unix.Munmap(r.consumer), unix.Munmap(r.producer)
		return nil, err
	}
	if err := r.poll(m.FD()); err != nil {
		r.close()
		return nil, fmt.Errorf("polling the ring: %w", err)
	}
	return r, nil
}

// mapPart maps n bytes of the producer's page and the data, from off.
func (r *ring) mapPart(off, n int) error {
	if _, err := unix.MmapPtr(r.fd, int64(os.Getpagesize()+off), unsafe.Pointer(&r.producer[off]), uintptr(n), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return fmt.Errorf("mapping the ring's data: %w", err)
	}
	return nil
}

// reach maps the data as far as the records go that lie between begin and end.
func (r *ring) reach(begin, end uint64) error {
	need := min(begin&(r.size-1)+end-begin, r.size)
	for r.mapped < need {
		if err := r.mapPart(len(r.producer)-len(r.data)+int(r.mapped), ringStep); err != nil {
			return err
		}
		r.mapped += ringStep
	}
	return nil
}

// poll gives the ring to the Go runtime's poller. A thread of the reader's own that sleeps in the kernel would cost more: each
// time it wakes, the runtime wakes its monitor, which then looks every 20 µs how the thread fares.
func (r *ring) poll(fd int) error {
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = unix.SetNonblock(fd, true) // what can't block is polled
	r.file = os.NewFile(uintptr(fd), "ring")
	if err == nil {
		r.conn, err = r.file.SyscallConn()
	}
	if err == nil {
		err = r.file.SetReadDeadline(time.Time{}) // fails where it can't be polled
	}
	return err
}

func (r *ring) close() {
	_ = unix.Munmap(r.consumer)
	_ = unix.Munmap(r.producer)
	_ = r.file.Close()
}

func position(page []byte) *uint64 { return (*uint64)(unsafe.Pointer(&page[0])) }

// waiting returns how many bytes of records wait.
func (r *ring) waiting() uint64 {
	return atomic.LoadUint64(position(r.producer)) - atomic.LoadUint64(position(r.consumer))
}

// wait returns when the kernel says that there is something, or after the time given.
func (r *ring) wait(d time.Duration) error {
	err := r.file.SetReadDeadline(time.Now().Add(d))
	if err == nil && !r.kicked.Load() {
		err = r.conn.Read(func(uintptr) bool { return r.waiting() > 0 })
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("waiting for the ring: %w", err)
	}
	return nil
}

// kick makes wait return, now and from then on.
func (r *ring) kick() {
	r.kicked.Store(true)
	_ = r.file.SetReadDeadline(time.Unix(1, 0)) // it worked before
}

// record returns a record's n bytes, which begin at off.
func (r *ring) record(off, n uint64) []byte {
	off &= r.size - 1
	if off+n <= r.size {
		return r.data[off : off+n]
	}
	r.whole = append(r.whole[:0], r.data[off:]...)
	r.whole = append(r.whole, r.data[:off+n-r.size]...)
	return r.whole
}

// drain hands finished records to f, one by one and where they lie, until none waits or most bytes are done, and gives
// their room back to the kernel. It returns how many bytes that were. f may keep nothing of a record.
func (r *ring) drain(most uint64, f func(record []byte)) (uint64, error) {
	begin := atomic.LoadUint64(position(r.consumer)) // only we write it
	end := atomic.LoadUint64(position(r.producer))
	if err := r.reach(begin, end); err != nil {
		return 0, err
	}
	at := begin
	for at < end && at-begin < most {
		off := at & (r.size - 1)
		head := atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.data[off])))
		if head&ringBusy != 0 {
			break
		}
		n := uint64(head &^ ringDiscard)
		if head&ringDiscard == 0 {
			f(r.record(off+ringHead, n))
		}
		at += ringHead + (n+7)&^7
	}
	atomic.StoreUint64(position(r.consumer), at)
	return at - begin, nil
}
