package ledger

import (
	"fmt"
)

// Extent says how many bytes of a file a log's first epochs take.
type Extent struct {
	Name string
	Size int64
}

// Extents says which bytes belong to the log's first epochs: those that a copy of it must have, and that never change
// any more once a checkpoint covers them. Chunks of large payloads, which are named by their digest, come on top.
func (r *Reader) Extents(epochs uint64) ([]Extent, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if epochs > uint64(len(r.epochs)) {
		return nil, fmt.Errorf("the log has %d epochs, not %d", len(r.epochs), epochs)
	}
	out := []Extent{}
	if epochs == 0 {
		return out, nil
	}
	out = append(out, Extent{epochsName, r.epochs[epochs-1].end})
	for i := range r.epochs[:epochs] {
		e := &r.epochs[i]
		logs, payloads := Extent{logName(e.segment), int64(e.logOff + e.logLen)}, Extent{payloadName(e.segment), int64(e.payOff + e.payLen)}
		if i > 0 && r.epochs[i-1].segment == e.segment {
			out[len(out)-2], out[len(out)-1] = logs, payloads
		} else {
			out = append(out, logs, payloads)
		}
	}
	return out, nil
}
