package session

import (
	"runtime"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

// A watcher judges beside the record: the sink copies events for it and goes on, so that judging takes nothing from the
// sensor's way to the disk. The watcher's thread yields to everybody else of the recorder. Where it falls behind by more than
// mostBehind events the sink waits for it: no event goes unjudged, as none goes unrecorded.

const (
	batchEvents = 256
	mostBehind  = 128 * batchEvents
	// Few events at a time would cost a wake-up each: then the watcher lets some gather.
	fewEvents = batchEvents / 4
	gathering = time.Millisecond
	// yielding is the watcher's niceness.
	yielding = 10
)

type watching struct {
	ask func(*bodycam.Event)

	mu      sync.Mutex
	changed sync.Cond // events came, were judged, or no more will come
	queue   []*batch  // the oldest first; the last takes further events
	free    []*batch
	waiting int  // events that were not judged yet
	idle    bool // the watcher has nothing to do
	over    bool
	ended   chan struct{} // closed with the watcher's end

	most  int // events that were waiting at a time
	waits int // events for which the sink waited
}

type batch struct {
	n      int
	events [batchEvents]bodycam.Event
}

// watch begins to ask about events that are put.
func watch(ask func(*bodycam.Event)) *watching {
	w := &watching{ask: ask, ended: make(chan struct{})}
	w.changed.L = &w.mu
	go w.run()
	return w
}

// put takes in an event, in order.
func (w *watching) put(e *bodycam.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.waiting >= mostBehind && !w.over {
		w.waits++
		w.changed.Wait()
	}
	if w.over {
		return
	}
	var b *batch
	if n := len(w.queue); n > 0 && w.queue[n-1].n < batchEvents {
		b = w.queue[n-1]
	} else {
		if n := len(w.free); n > 0 {
			b, w.free = w.free[n-1], w.free[:n-1]
		} else {
			b = &batch{}
		}
		w.queue = append(w.queue, b)
	}
	b.events[b.n] = *e
	b.n++
	w.waiting++
	w.most = max(w.most, w.waiting)
	if w.idle {
		w.idle = false
		w.changed.Broadcast()
	}
}

func (w *watching) run() {
	defer close(w.ended)
	runtime.LockOSThread() // for good: the thread ends with the watcher
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), yielding)
	for {
		b := w.next()
		if b == nil {
			return
		}
		for i := range b.n {
			w.ask(&b.events[i])
		}
		few := b.n < fewEvents
		w.judged(b)
		if few {
			time.Sleep(gathering)
		}
	}
}

// next waits for events and takes the oldest, nil where no more will come.
func (w *watching) next() *batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 {
		if w.over {
			return nil
		}
		w.idle = true
		w.changed.Wait()
	}
	w.idle = false
	b := w.queue[0]
	w.queue = append(w.queue[:0], w.queue[1:]...)
	return b
}

func (w *watching) judged(b *batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting -= b.n
	clear(b.events[:b.n]) // what they point to can go
	b.n = 0
	w.free = append(w.free, b)
	w.changed.Broadcast()
}

// drain waits until all events put so far were judged.
func (w *watching) drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.waiting > 0 {
		w.changed.Wait()
	}
}

// close judges what is left and ends the watcher. It tells how far that was behind at most, and how often the record waited.
// It can be called again.
func (w *watching) close() (most, waits int) {
	w.mu.Lock()
	w.over = true
	w.changed.Broadcast()
	w.mu.Unlock()
	<-w.ended
	return w.most, w.waits
}
