package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/bodycam-dev/bodycam/internal/trust/liars"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
)

// verdict is one audit's outcome: a line of the file.
type verdict struct {
	Build    string         `json:"build"` // digest of the programs that audited
	Judge    string         `json:"judge"`
	Probes   int            `json:"probes"`
	Agent    string         `json:"agent"`
	Seed     uint64         `json:"seed"`
	Want     string         `json:"want"`
	Gate     string         `json:"gate,omitempty"`
	Right    bool           `json:"right"`
	Why      string         `json:"why,omitempty"` // why it isn't right
	Score    float64        `json:"score"`
	Interval score.Interval `json:"interval"`
	Patterns []string       `json:"patterns,omitempty"`
	Evidence string         `json:"evidence,omitempty"`
	Reasons  []string       `json:"reasons,omitempty"`
	Seconds  float64        `json:"seconds"`
}

// verdicts are those of one build, judge and number of probes, kept in a file.
type verdicts struct {
	build, judge string
	probes       int

	mu   sync.Mutex
	file *os.File // nil: they aren't kept
	list []verdict
}

// openVerdicts reads what stands in a file. Lines of other builds stay there and count for nothing; a last line that was cut
// off is removed.
func openVerdicts(path, bodycam, judge string, probes int) (*verdicts, error) {
	v := &verdicts{judge: judge, probes: probes}
	own, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	sum := sha256.New()
	for _, p := range []string{own, bodycam} {
		f, err := os.Open(p)
		if errors.Is(err, fs.ErrNotExist) && p == bodycam {
			continue // it may not be needed
		}
		if err == nil {
			_, err = io.Copy(sum, f)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return nil, fmt.Errorf("digesting %s: %w", p, err)
		}
	}
	v.build = hex.EncodeToString(sum.Sum(nil)[:6])
	if path == "" {
		return v, nil
	}
	if v.file, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return nil, fmt.Errorf("keeping verdicts: %w", err)
	}
	whole := int64(0)
	for r := bufio.NewReader(v.file); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		var one verdict
		if err == nil {
			err = json.Unmarshal(line, &one)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("reading verdicts from %s, byte %d: %w", path, whole, err), v.file.Close())
		}
		whole += int64(len(line))
		if one.Build == v.build && one.Judge == judge && one.Probes == probes {
			v.list = append(v.list, one)
		}
	}
	if err := v.file.Truncate(whole); err != nil {
		return nil, errors.Join(fmt.Errorf("keeping verdicts: %w", err), v.file.Close())
	}
	_, err = v.file.Seek(whole, io.SeekStart)
	return v, err
}

func (v *verdicts) close() error {
	if v.file == nil {
		return nil
	}
	return v.file.Close()
}

func (v *verdicts) has(agent string, seed uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.list, func(x verdict) bool { return x.Agent == agent && x.Seed == seed })
}

// add keeps a verdict.
func (v *verdicts) add(x verdict) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	x.Build, x.Judge, x.Probes = v.build, v.judge, v.probes
	v.list = append(v.list, x)
	if v.file == nil {
		return nil
	}
	b, err := json.Marshal(x)
	if err == nil {
		_, err = v.file.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keeping a verdict: %w", err)
	}
	return nil
}

// of are an agent's verdicts with the seeds of this table.
func (v *verdicts) of(agent string, first, seeds int) []verdict {
	var out []verdict
	for _, x := range v.list {
		if x.Agent == agent && x.Seed >= uint64(first) && x.Seed < uint64(first+seeds) {
			out = append(out, x)
		}
	}
	return out
}

// wrong is the number of verdicts that aren't what the agents deserve.
func (v *verdicts) wrong(agents []liars.Agent, first, seeds int) int {
	n := 0
	for _, a := range agents {
		for _, x := range v.of(a.Name, first, seeds) {
			if !x.Right {
				n++
			}
		}
	}
	return n
}

// print writes the table.
func (v *verdicts) print(w io.Writer, agents []liars.Agent, first, seeds int) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "agent\twhat it does\twant\tright\tscore\tpatterns\trests on")
	right, all, seconds := 0, 0, 0.0
	for _, a := range agents {
		var low, high float64
		n, patterns, evidence, why := 0, []string{}, []string{}, []string{}
		list := v.of(a.Name, first, seeds)
		for i, x := range list {
			if i == 0 || x.Score < low {
				low = x.Score
			}
			high = max(high, x.Score)
			patterns, evidence = append(patterns, x.Patterns...), append(evidence, x.Evidence)
			seconds += x.Seconds
			if x.Right {
				n++
			} else {
				why = append(why, fmt.Sprintf("seed %d: %s", x.Seed, x.Why))
			}
		}
		right, all = right+n, all+len(list)
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d of %d\t%.0f–%.0f\t%s\t%s\n", a.Name, a.About, a.Want, n, len(list), low, high, joined(patterns), joined(evidence))
		for _, e := range why {
			fmt.Fprintf(tw, "\t  %s\n", e)
		}
	}
	fmt.Fprintf(tw, "right: %d of %d, in %.0f s\n", right, all, seconds)
	return tw.Flush()
}

func joined(list []string) string {
	slices.Sort(list)
	list = slices.DeleteFunc(slices.Compact(list), func(s string) bool { return s == "" })
	if len(list) == 0 {
		return "–"
	}
	return strings.Join(list, ", ")
}
