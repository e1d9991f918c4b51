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

// ring reads a BPF ring buffer. It takes all that waits with one copy, which is why it isn't the library's reader,
// which goes record by record.
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

// take appends the finished records that wait to buf, with their ring heads, up to buf's capacity, and gives their
// room back to the kernel.
func (r *ring) take(buf []byte) []byte {
	cons := atomic.LoadUint64(position(r.consumer))
	prod := atomic.LoadUint64(position(r.producer))
	room := uint64(cap(buf) - len(buf))
	end := cons
	for end < prod {
		off := end & (r.size - 1)
		head := atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.data[off])))
		if head&ringBusy != 0 {
			break
		}
		n := ringHead + (uint64(head&^ringDiscard)+7)&^7
		if end+n-cons > room {
			break
		}
		end += n
	}
	if end == cons {
		return buf
	}
	off := cons & (r.size - 1)
	buf = append(buf, r.data[off:off+end-cons]...)
	atomic.StoreUint64(position(r.consumer), end)
	return buf
}
