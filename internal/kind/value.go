package kind

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time span. In files it is a number of seconds (600, 2.5) or text (10m, 1h30m, 250ms).
type Duration time.Duration

// D is the duration as the standard library's type.
func (d Duration) D() time.Duration { return time.Duration(d) }

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes the duration as Go does: 1m30s.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := ParseDuration(string(b))
	if err != nil {
		return err
	}
	*d = v
	return nil
}

const maxDuration = 365 * 24 * time.Hour

// ParseDuration reads a duration: seconds as a number, or units (ns, us, ms, s, m, h, d) as 1h30m. It is at least 0
// and at most 365 days.
func ParseDuration(s string) (Duration, error) {
	s = strings.TrimSpace(s)
	bad := fmt.Errorf("%q is not a duration: want seconds (600) or units (10m, 1h30m)", s)
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		if math.IsNaN(f) || f < 0 || f > maxDuration.Seconds() {
			return 0, fmt.Errorf("%s seconds is out of range: want 0 to 365 days", s)
		}
		return Duration(math.Round(f * float64(time.Second))), nil
	}
	var days time.Duration
	rest := s
	if head, tail, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseUint(head, 10, 16)
		if err != nil {
			return 0, bad
		}
		days, rest = time.Duration(n)*24*time.Hour, tail
	}
	var d time.Duration
	if rest != "" {
		var err error
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, bad
		}
	} else if days == 0 && !strings.HasSuffix(s, "d") {
		return 0, bad
	}
	if d < 0 || d > maxDuration || days+d > maxDuration {
		return 0, fmt.Errorf("%q is out of range: want 0 to 365 days", s)
	}
	return Duration(days + d), nil
}

// Size is a number of bytes. In files it is a number, or text with a unit in powers of 1024: 2G, 512M, 256K, 10 MiB.
type Size int64

var sizeUnits = map[string]uint{
	"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30, "t": 40, "tb": 40, "tib": 40,
}

// ParseSize reads a size. Units are powers of 1024 whether written K, KB or KiB, as Docker has it.
func ParseSize(s string) (Size, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	bad := fmt.Errorf("%q is not a size: want bytes (1048576) or a unit (256K, 512M, 2G, 10 MiB)", s)
	i := strings.IndexFunc(t, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if i < 0 {
		i = len(t)
	}
	shift, ok := sizeUnits[strings.TrimSpace(t[i:])]
	if !ok {
		return 0, bad
	}
	f, err := strconv.ParseFloat(t[:i], 64)
	if err != nil {
		return 0, bad
	}
	f = math.Round(f * float64(uint64(1)<<shift))
	if f > 1<<60 {
		return 0, fmt.Errorf("%q is out of range: want at most 1048576T", s)
	}
	return Size(f), nil
}

// Command is what to run: text for a shell, or arguments. At most one is set.
type Command struct {
	Shell string
	Argv  []string
}

// IsZero tells whether there is no command.
func (c Command) IsZero() bool { return c.Shell == "" && len(c.Argv) == 0 }

// Args is the command as an argument vector; text is given to /bin/sh -c.
func (c Command) Args() []string {
	if c.Shell != "" {
		return []string{"/bin/sh", "-c", c.Shell}
	}
	return c.Argv
}

// MarshalJSON writes text or a list, as in a kind file.
func (c Command) MarshalJSON() ([]byte, error) {
	if c.Shell != "" || c.Argv == nil {
		return json.Marshal(c.Shell)
	}
	return json.Marshal(c.Argv)
}

// UnmarshalJSON reads text or a list.
func (c *Command) UnmarshalJSON(b []byte) error {
	*c = Command{}
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, &c.Argv)
	}
	return json.Unmarshal(b, &c.Shell)
}

// ExitSet is the set of exit statuses that count as success. The zero value holds 0 alone.
type ExitSet struct {
	Any   bool
	Codes []int
}

// Has tells whether the status counts as success.
func (e ExitSet) Has(status int) bool {
	if e.Any || len(e.Codes) == 0 {
		return e.Any || status == 0
	}
	for _, c := range e.Codes {
		if c == status {
			return true
		}
	}
	return false
}

// IsZero tells whether it is the default.
func (e ExitSet) IsZero() bool { return !e.Any && len(e.Codes) == 0 }

// MarshalJSON writes "any" or a list of numbers.
func (e ExitSet) MarshalJSON() ([]byte, error) {
	if e.Any {
		return json.Marshal("any")
	}
	if e.IsZero() {
		return json.Marshal([]int{0})
	}
	return json.Marshal(e.Codes)
}

// UnmarshalJSON reads what MarshalJSON wrote, or one number.
func (e *ExitSet) UnmarshalJSON(b []byte) error {
	*e = ExitSet{}
	switch {
	case string(b) == `"any"`:
		e.Any = true
		return nil
	case len(b) > 0 && b[0] == '[':
		return json.Unmarshal(b, &e.Codes)
	}
	e.Codes = []int{0}
	return json.Unmarshal(b, &e.Codes[0])
}

// HostPath is a path outside the box. In a file it is relative to that file's directory; once read it is absolute.
type HostPath string

// BasePath is a root file system: "host", or a path outside like [HostPath].
type BasePath string

// Date is a day: 2027-01-31.
type Date string

const dateForm = "2006-01-02"

// ParseDate reads a day.
func ParseDate(s string) (Date, error) {
	if _, err := time.Parse(dateForm, s); err != nil {
		return "", fmt.Errorf("%q is not a day: want the form 2027-01-31", s)
	}
	return Date(s), nil
}

// Passed tells whether the day is over at that moment, in UTC.
func (d Date) Passed(now time.Time) bool {
	t, err := time.Parse(dateForm, string(d))
	return err != nil || !now.UTC().Before(t.AddDate(0, 0, 1))
}
