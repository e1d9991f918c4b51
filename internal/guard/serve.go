//go:build linux

package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// question is an access that waits in the kernel.
type question struct {
	fd   int32 // the file, opened for us
	exec bool
	tid  int32 // the thread that waits
}

// parseQuestion reads struct fanotify_event_metadata.
func parseQuestion(b []byte) (question, error) {
	if len(b) < unix.FAN_EVENT_METADATA_LEN {
		return question{}, fmt.Errorf("a fanotify event of %d bytes", len(b))
	}
	if v := b[4]; v != unix.FANOTIFY_METADATA_VERSION {
		return question{}, fmt.Errorf("fanotify speaks version %d, this program %d", v, unix.FANOTIFY_METADATA_VERSION)
	}
	mask := binary.NativeEndian.Uint64(b[8:])
	return question{
		fd:   int32(binary.NativeEndian.Uint32(b[16:])),
		exec: mask&unix.FAN_OPEN_EXEC_PERM != 0,
		tid:  int32(binary.NativeEndian.Uint32(b[20:])),
	}, nil
}

// serve answers until Close. It takes one question at a time, so that no other waits behind one that takes too long.
func (g *Guard) serve(loop int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	a := &Access{}
	pipes := &pipes{}
	var buf [unix.FAN_EVENT_METADATA_LEN]byte
	for {
		n, err := unix.Read(g.fd, buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			if !g.wait(pipes) {
				pipes.close()
				close(g.done)
				return
			}
			continue
		case err != nil: // the file can't be handed over, and the kernel has refused it
			g.unopened.Add(1)
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
				time.Sleep(time.Millisecond)
			}
			continue
		}
		q, err := parseQuestion(buf[:n])
		if err != nil {
			g.fail(err)
			continue
		}
		if q.fd < 0 {
			continue
		}
		if !g.answer(loop, q, a, pipes) {
			return
		}
	}
}

// wait waits for a question. It returns false when the guard is closed.
func (g *Guard) wait(p *pipes) bool {
	timeout := -1
	if len(p.held) > 0 {
		timeout = 100
	}
	fds := []unix.PollFd{{Fd: int32(g.fd), Events: unix.POLLIN}, {Fd: int32(g.stop), Events: unix.POLLIN}}
	_, err := unix.Poll(fds, timeout)
	p.trim()
	return err != nil && errors.Is(err, unix.EINTR) || err == nil && fds[1].Revents == 0
}

// answer decides one question. It returns false where somebody else has answered in the meantime, and goes on from here.
func (g *Guard) answer(loop int, q question, a *Access, p *pipes) bool {
	began := time.Now()
	g.mu.Lock()
	broken := g.broken != nil
	g.since, g.at = began, q.fd
	g.mu.Unlock()

	allow := g.decide(q, a, broken)
	hold := allow && a.pipe && a.reads()

	g.mu.Lock()
	if g.loop != loop {
		g.mu.Unlock()
		unix.Close(int(q.fd))
		return false
	}
	g.since = time.Time{}
	g.reply(q.fd, allow)
	g.mu.Unlock()
	if hold {
		p.hold(q.fd)
	} else {
		unix.Close(int(q.fd))
	}
	if took := uint64(time.Since(began)); took > g.slowest.Load() {
		g.slowest.Store(took)
	}
	return true
}

// decide says whether an access is let. A panic is a no.
func (g *Guard) decide(q question, a *Access, broken bool) (allow bool) {
	if recorders(q.tid) {
		a.pipe = false
		return true
	}
	defer func() {
		if r := recover(); r != nil {
			g.fail(fmt.Errorf("deciding about an access: %v", r))
			allow = false
		}
	}()
	again, err := a.fill(q, &g.o)
	if again { // asked and answered as the execution that it belongs to
		return true
	}
	if !broken && err == nil && g.o.Allow(a) {
		g.asked.Add(1)
		return true
	}
	if g.outsider(q.tid) {
		return true
	}
	g.asked.Add(1)
	g.refused.Add(1)
	if err != nil && !broken && g.o.Unclear != nil {
		g.o.Unclear(a, err)
	}
	return false
}

// reply writes a struct fanotify_response.
func (g *Guard) reply(fd int32, allow bool) {
	var b [8]byte
	binary.NativeEndian.PutUint32(b[:], uint32(fd))
	response := uint32(unix.FAN_DENY)
	if allow {
		response = unix.FAN_ALLOW
	}
	binary.NativeEndian.PutUint32(b[4:], response)
	_, _ = unix.Write(g.fd, b[:]) // ENOENT: whoever asked was killed
}

// hurry looks whether a decision takes too long. Then it is a no, and so is every one after it.
func (g *Guard) hurry() {
	err := fmt.Errorf("a decision took longer than %s", g.o.Patience)
	tick := time.NewTicker(g.o.Patience / 4)
	defer tick.Stop()
	for {
		select {
		case <-g.done:
			return
		case <-tick.C:
		}
		g.mu.Lock()
		late, first := !g.since.IsZero() && time.Since(g.since) > g.o.Patience, false
		if late {
			first = g.breaks(err) // before the answer: what follows it is refused
			g.since = time.Time{}
			g.reply(g.at, false)
			g.refused.Add(1)
			g.loop++
			go g.serve(g.loop)
		}
		g.mu.Unlock()
		if first && g.o.Failed != nil {
			g.o.Failed(err)
		}
		if late {
			return
		}
	}
}

// fail has everything refused from now on.
func (g *Guard) fail(err error) {
	g.mu.Lock()
	first := g.breaks(err)
	g.mu.Unlock()
	if first && g.o.Failed != nil {
		g.o.Failed(err)
	}
}

// breaks notes why, and tells whether it is the first reason. The caller holds mu.
func (g *Guard) breaks(err error) (first bool) {
	if g.broken != nil {
		return false
	}
	g.broken = err
	return true
}

// recorders tells whether a thread is this process's own.
func recorders(tid int32) bool { return isThread("self", tid) }

func isThread(of string, tid int32) bool {
	return unix.Access("/proc/"+of+"/task/"+strconv.Itoa(int(tid)), unix.F_OK) == nil
}

// outsider tells whether a thread surely isn't one of the sandbox's commands: of its init, which is the recorder's, or
// of the host, where somebody looks into the sandbox. The thread waits in its call, so its number is nobody else's.
func (g *Guard) outsider(tid int32) bool {
	if isThread(strconv.Itoa(g.init), tid) {
		return true
	}
	ns, err := pidNamespace(int(tid))
	return err == nil && ns != g.pidns
}

func pidNamespace(pid int) (string, error) { return os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)) }

// pipes are named pipes whose reader was let. The descriptor that the kernel opened for us counts as a reader too, and a
// writer that waited goes on: if it were closed before the true reader is there, the writer would have none.
type pipes struct{ held []heldPipe }

type heldPipe struct {
	fd    int32
	until time.Time
}

const (
	holdPipes = 500 * time.Millisecond
	mostPipes = 64
)

func (p *pipes) hold(fd int32) {
	p.trim()
	if len(p.held) >= mostPipes {
		unix.Close(int(p.held[0].fd))
		p.held = p.held[1:]
	}
	p.held = append(p.held, heldPipe{fd, time.Now().Add(holdPipes)})
}

func (p *pipes) trim() {
	for len(p.held) > 0 && time.Now().After(p.held[0].until) {
		unix.Close(int(p.held[0].fd))
		p.held = p.held[1:]
	}
}

func (p *pipes) close() {
	for _, h := range p.held {
		unix.Close(int(h.fd))
	}
	p.held = nil
}
