package bpf

import (
	"fmt"
	"os"
	"sync/atomic"
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

// ring reads a BPF ring buffer. Records are used where they lie: the library's reader copies each.
type ring struct {
	size     uint64
	consumer []byte // one page, ours to write
	producer []byte // one page and the data, mapped twice in a row
	data     []byte
	epoll    int
	event    int // ends wait at once
}

func newRing(m *ebpf.Map) (*ring, error) {
	r := &ring{size: uint64(m.MaxEntries())}
	page := os.Getpagesize()
	var err error
	if r.consumer, err = unix.Mmap(m.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("mapping the ring's consumer page: %w", err)
	}
	if r.producer, err = unix.Mmap(m.FD(), int64(page), page+2*int(r.size), unix.PROT_READ, unix.MAP_SHARED); err != nil {
		_ = unix.Munmap(r.consumer)
		return nil, fmt.Errorf("mapping the ring's data: %w", err)
	}
	r.data = r.producer[page:]
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		r.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	for _, fd := range []int{m.FD(), r.event} {
		if err == nil {
			err = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN})
		}
	}
	if err != nil {
		r.close()
		return nil, fmt.Errorf("polling the ring: %w", err)
	}
	return r, nil
}

func (r *ring) close() {
	_ = unix.Munmap(r.consumer)
	_ = unix.Munmap(r.producer)
	for _, fd := range []int{r.epoll, r.event} {
		if fd > 0 {
			_ = unix.Close(fd)
		}
	}
}

func position(page []byte) *uint64 { return (*uint64)(unsafe.Pointer(&page[0])) }

// waiting returns how many bytes of records wait.
func (r *ring) waiting() uint64 {
	return atomic.LoadUint64(position(r.producer)) - atomic.LoadUint64(position(r.consumer))
}

// wait returns when the kernel asks for it, or after the time given.
func (r *ring) wait(d time.Duration) error {
	var ev [1]unix.EpollEvent
	_, err := unix.EpollWait(r.epoll, ev[:], int(d.Milliseconds()))
	if err != nil && err != unix.EINTR {
		return fmt.Errorf("waiting for the ring: %w", err)
	}
	return nil
}

// kick makes wait return, now and from then on.
func (r *ring) kick() {
	_, _ = unix.Write(r.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // can't fail: the count is far from full
}

// drain hands finished records to f, one by one and where they lie, until none waits or most bytes are done, and gives
// their room back to the kernel. It returns how many bytes that were. f may keep nothing of a record.
func (r *ring) drain(most uint64, f func(record []byte)) uint64 {
	begin := atomic.LoadUint64(position(r.consumer)) // only we write it
	end := atomic.LoadUint64(position(r.producer))
	at := begin
	for at < end && at-begin < most {
		off := at & (r.size - 1)
		head := atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.data[off])))
		if head&ringBusy != 0 {
			break
		}
		n := uint64(head &^ ringDiscard)
		if head&ringDiscard == 0 {
			f(r.data[off+ringHead : off+ringHead+n])
		}
		at += ringHead + (n+7)&^7
	}
	atomic.StoreUint64(position(r.consumer), at)
	return at - begin
}
