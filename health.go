package bodycam

import "slices"

// Counters balance: Seen = Emitted + Folded + Lost.
type Counters struct {
	Seen    uint64 `json:"seen"`    // calls that the sensor's hooks saw
	Emitted uint64 `json:"emitted"` // events delivered
	Folded  uint64 `json:"folded"`  // calls that an event with Count > 1 stands for, beyond the first
	Lost    uint64 `json:"lost"`    // calls seen but not delivered
}

// Add sums counters.
func (c *Counters) Add(d Counters) {
	c.Seen += d.Seen
	c.Emitted += d.Emitted
	c.Folded += d.Folded
	c.Lost += d.Lost
}

// Balanced tells whether the counters account for everything seen.
func (c Counters) Balanced() bool { return c.Seen == c.Emitted+c.Folded+c.Lost }

// Blind is a named hole in what a sensor could see.
type Blind struct {
	What  string `json:"what"` // short stable name: "io_uring", "tls-content", "sensor-died", "non-dns-udp"
	Why   string `json:"why"`
	Count uint64 `json:"count,omitempty"` // how often it mattered in this run; 0: it can't be counted
	From  int64  `json:"from,omitempty"`  // wall clock nanoseconds; 0 and 0: the whole run
	To    int64  `json:"to,omitempty"`
	// Inherent holes are those of the configuration (contents of TLS), known before the run. They are shown, but
	// don't make a record incomplete: nothing that the record claims to hold is missing.
	Inherent bool `json:"inherent,omitempty"`
}

// Health is a sensor's account of itself.
type Health struct {
	Sensor  string              `json:"sensor"`
	Backend string              `json:"backend,omitempty"` // "tp", "lsm", "seccomp-ptrace"
	Total   Counters            `json:"total"`
	Sources map[string]Counters `json:"sources,omitempty"` // per hook or ring
	Gaps    uint64              `json:"gaps"`              // missing sequence numbers
	Blind   []Blind             `json:"blind,omitempty"`
	Note    string              `json:"note,omitempty"`
	CPU     float64             `json:"cpu_seconds,omitempty"` // the recorder's own, for this sensor
	Stopped uint64              `json:"stopped,omitempty"`     // how often back-pressure paused the agent
	Failed  string              `json:"failed,omitempty"`      // the sensor died: why
}

// Completeness says whether a record can carry a "nothing found".
type Completeness struct {
	Complete bool     `json:"complete"`
	Reasons  []string `json:"reasons,omitempty"`
}

// Lacking is the completeness of the same record, for which there are these reasons besides that it isn't whole.
func (c Completeness) Lacking(why ...string) Completeness {
	if len(why) == 0 {
		return c
	}
	return Completeness{Reasons: append(slices.Clone(c.Reasons), why...)}
}

// Assess derives the completeness of a record from the health of its sensors.
func Assess(hs []Health) Completeness {
	var why []string
	if len(hs) == 0 {
		why = append(why, "no sensor ran")
	}
	for _, h := range hs {
		if h.Failed != "" {
			why = append(why, h.Sensor+" failed: "+h.Failed)
		}
		if h.Total.Lost > 0 {
			why = append(why, h.Sensor+": "+plural(h.Total.Lost, "event")+" lost")
		}
		if h.Gaps > 0 {
			why = append(why, h.Sensor+": "+plural(h.Gaps, "sequence number")+" missing")
		}
		if !h.Total.Balanced() {
			why = append(why, h.Sensor+": counters do not balance")
		}
		for _, b := range h.Blind {
			if !b.Inherent {
				why = append(why, h.Sensor+": blind: "+b.What+": "+b.Why)
			}
		}
	}
	return Completeness{Complete: len(why) == 0, Reasons: why}
}
