package session

import (
	"testing"
	"testing/synctest"

	"github.com/bodycam-dev/bodycam"
)

// A watcher is asked about every event in order. It holds nobody up until it is far behind; then the record waits for it, and
// that is told.
func TestWatching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var seen []uint64
		w := watch(func(e *bodycam.Event) {
			if len(seen) == 0 {
				<-gate
			}
			seen = append(seen, e.Seq)
		})
		e := bodycam.Event{}
		put := func() {
			e.Seq++
			w.put(&e)
		}
		for range mostBehind {
			put() // does not wait: else the test stands still
		}
		done := make(chan struct{})
		go func() {
			for range 1000 {
				put()
			}
			close(done)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("the record didn't wait for a watcher that is far behind")
		default:
		}
		close(gate)
		<-done
		w.drain()
		if len(seen) != mostBehind+1000 {
			t.Errorf("asked about %d of %d events", len(seen), mostBehind+1000)
		}
		put()
		most, waits := w.close()
		if most != mostBehind || waits == 0 {
			t.Errorf("behind by %d at most, %d waits", most, waits)
		}
		for i, n := range seen {
			if n != uint64(i+1) {
				t.Fatalf("event %d came as number %d", n, i+1)
			}
		}
		if len(seen) != int(e.Seq) {
			t.Errorf("the last of %d events was left out", e.Seq)
		}
		w.put(&e) // nobody judges any more, and nobody waits
		if most, _ := w.close(); most != mostBehind {
			t.Error("a second close says something else")
		}
	})
}
