package bodycam

import "fmt"

// Severity orders findings.
type Severity int

// The severities.
const (
	Info Severity = iota
	Low
	Medium
	High
	Critical
)

var severityNames = []string{"info", "low", "medium", "high", "critical"}

func (s Severity) String() string {
	if s < 0 || int(s) >= len(severityNames) {
		return fmt.Sprintf("severity(%d)", int(s))
	}
	return severityNames[s]
}

// ParseSeverity returns the severity of that name.
func ParseSeverity(name string) (Severity, error) {
	for i, n := range severityNames {
		if n == name {
			return Severity(i), nil
		}
	}
	return Info, fmt.Errorf("unknown severity %q: want info, low, medium, high or critical", name)
}

// MarshalText writes the severity's name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a severity's name.
func (s *Severity) UnmarshalText(b []byte) error {
	v, err := ParseSeverity(string(b))
	if err != nil {
		return err
	}
	*s = v
	return nil
}

// Finding is what an analysis says.
type Finding struct {
	Analysis string   `json:"analysis"` // which analysis says so
	Rule     string   `json:"rule"`     // rule or obligation
	Class    string   `json:"class,omitempty"`
	Severity Severity `json:"severity"`
	Title    string   `json:"title"` // one line; raw bytes from the run are escaped in it
	Detail   string   `json:"explanation,omitempty"`
	// Verdict is set for obligations: pass, fail, undecidable.
	Verdict string `json:"verdict,omitempty"`

	Events   []uint64     `json:"events,omitempty"`  // sequence numbers of the events it rests on; the first few of Count
	Records  []uint64     `json:"records,omitempty"` // ledger records that hold those events, where the run has a ledger
	Count    uint64       `json:"count"`             // how many alike calls it stands for
	Row      *int         `json:"row,omitempty"`     // the transcript row that caused it; nil: the agent said nothing of this
	RowText  string       `json:"row_text,omitempty"`
	Tree     []ProcessRef `json:"process_tree,omitempty"` // from the harness down to the process that did it
	Resource string       `json:"resource,omitempty"`
	Naming   string       `json:"naming,omitempty"` // how sure the resource's name is: exact, unverified, …
	Tags     []string     `json:"tags,omitempty"`

	Suppressed string `json:"suppressed,omitempty"` // reason, where a suppression covers it
}

// ProcessRef names a process for people.
type ProcessRef struct {
	PID   int32    `json:"pid"`
	Start uint64   `json:"start"`
	Exe   string   `json:"exe"`
	Argv  []string `json:"argv,omitempty"`
}
