package session

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// foldFor is how long repeats are counted before they are told, in nanoseconds of the events' own clock.
const foldFor = 1_000_000_000

// mostFolds bounds the kinds of calls that are counted at a time.
const mostFolds = 256

// folder counts repeats. Sensors fold the calls that programs make most; others they report one by one, so that a loop of a
// million messages, or of calls that the sandbox refuses, would be a million events. The first of its like is told at once; what
// the same process repeats within foldFor is told as one event, with an exact count.
type folder struct {
	pending map[string]*repeats // by what alike events have in common
	since   uint64              // boot time of the first entry
	key     []byte              // room
}

// repeats are the calls that came after the first of their like: the second, with the amounts of all.
type repeats struct {
	of bodycam.Proc
	n  uint64
	e  bodycam.Event
}

// folds tells whether an event is of a kind that no sensor folds.
func folds(e *bodycam.Event) bool {
	return e.Type == bodycam.TypeIPC || e.Type == bodycam.TypeDenied || e.Marks&bodycam.MarkRefused != 0
}

// take counts an event that is like one before. Where it returns false the event is to be told now; what was counted
// before, and is due, has then been told.
func (f *folder) take(e *bodycam.Event, tell func(*bodycam.Event) error) (taken bool, err error) {
	switch {
	case len(f.pending) == 0:
	case len(f.pending) >= mostFolds, e.Boot > f.since+foldFor:
		err = f.flush(tell, nil)
	case e.Type == bodycam.TypeExit, e.Type == bodycam.TypeExec:
		err = f.flush(tell, &e.Proc)
	}
	if err != nil || !folds(e) {
		return false, err
	}
	like := *e
	like.Seq, like.Time, like.Boot, like.LastBoot, like.Count, like.TID = 0, 0, 0, 0, 0, 0
	if e.Type == bodycam.TypeIPC { // elsewhere Bytes is no amount
		like.Bytes, like.Detail = 0, unnumbered(e.Detail)
	}
	f.key = like.AppendBinary(f.key[:0])
	r := f.pending[string(f.key)]
	if r == nil {
		if len(f.pending) == 0 {
			f.pending, f.since = map[string]*repeats{}, e.Boot
		}
		f.pending[string(f.key)] = &repeats{of: e.Proc}
		return false, nil
	}
	last := max(r.e.LastBoot, e.LastBoot, e.Boot)
	if r.n == 0 {
		r.e = *e
	} else {
		if e.Type == bodycam.TypeIPC {
			r.e.Bytes += e.Bytes
		}
		if e.Detail != r.e.Detail {
			r.e.Detail = like.Detail
		}
	}
	r.n += e.N()
	r.e.Count, r.e.LastBoot = r.n, last
	return true, nil
}

// flush tells what was counted, in the order of its beginnings; of one process, or (nil) of all.
func (f *folder) flush(tell func(*bodycam.Event) error, of *bodycam.Proc) error {
	var due []*repeats
	for k, r := range f.pending {
		if of == nil || r.of == *of {
			delete(f.pending, k)
			if r.n > 0 {
				due = append(due, r)
			}
		}
	}
	slices.SortFunc(due, func(a, b *repeats) int {
		return cmp.Or(cmp.Compare(a.e.Boot, b.e.Boot), cmp.Compare(a.e.TID, b.e.TID))
	})
	for _, r := range due {
		if r.n == 1 {
			r.e.LastBoot = 0
		}
		if err := tell(&r.e); err != nil {
			return err
		}
	}
	return nil
}

// unnumbered is an ipc event's detail without the number that the kernel gave to something new, which is another each time.
func unnumbered(detail string) string {
	before, after, ok := strings.Cut(detail, " is ")
	if !ok {
		return detail
	}
	return before + strings.TrimLeft(after, "0123456789")
}
