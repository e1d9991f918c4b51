package conduct

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// The verdicts on an obligation.
const (
	Pass        = "pass"
	Fail        = "fail"
	Undecidable = "undecidable" // the record is incomplete, and what it holds decides nothing
)

// Obligation is something that a run must do or must not do. It is declared in a kind's or task's judge.obligations:
// one act, or never or always with an act, or a bound on how many; with an order where it matters.
//
//	obligations:
//	  - contacts: citations.example
//	  - executes: skill:citation-check/scripts/validate.sh
//	    before: {writes: "${workdir}/answer.json"}
//	  - reads: "${workdir}/refs.bib"
//	  - never: {writes: "${workdir}/refs.bib"}
//	  - at_most: {hosts: 3}
//	    name: few-hosts
//	    severity: medium
type Obligation struct {
	Act
	Name     string            `json:"name,omitempty"`
	Never    *Act              `json:"never,omitempty"`
	Before   *Act              `json:"before,omitempty"`
	After    *Act              `json:"after,omitempty"`
	Times    *Times            `json:"times,omitempty"` // how often the act must be done; at least once, unless it says otherwise
	AtMost   *Amounts          `json:"at_most,omitempty"`
	AtLeast  *Amounts          `json:"at_least,omitempty"`
	Severity *bodycam.Severity `json:"severity,omitempty"` // of a failure; high where nothing is said
	Reason   string            `json:"reason,omitempty"`
}

// Act is something that a run can do. Exactly one member is set.
type Act struct {
	Contacts string `json:"contacts,omitempty"` // host, or a glob over names
	Runs     string `json:"runs,omitempty"`     // program by name or path, or with arguments: "git commit*"
	Executes string `json:"executes,omitempty"` // script by path, or skill:NAME/PATH
	Reads    string `json:"reads,omitempty"`    // file by path (glob; a relative one is of the working directory), or skill:NAME/PATH
	Writes   string `json:"writes,omitempty"`   // creates or changes the file's content
	Edits    string `json:"edits,omitempty"`    // writes, deletes, renames or changes attributes
	Deletes  string `json:"deletes,omitempty"`
	Lists    string `json:"lists,omitempty"` // a directory
}

// Times bounds how often an act is done.
type Times struct {
	AtLeast *uint64 `json:"at_least,omitempty"`
	AtMost  *uint64 `json:"at_most,omitempty"`
}

// Amounts are numbers of different resources. What is noise, and what the recorder itself provides, doesn't count.
type Amounts struct {
	Hosts    *int `json:"hosts,omitempty"`
	Commands *int `json:"commands,omitempty"` // programs
	Read     *int `json:"files_read,omitempty"`
	Written  *int `json:"files_written,omitempty"`
}

// ParseObligations reads declared obligations strictly. The error tells all faults at once, each with its place in
// the list.
func ParseObligations(raw []json.RawMessage) ([]Obligation, error) {
	var out []Obligation
	var errs []error
	for i, r := range raw {
		o, err := parseObligation(r)
		if err != nil {
			errs = append(errs, fmt.Errorf("judge.obligations[%d]: %w", i, err))
			continue
		}
		if o.Name == "" {
			o.Name = o.String()
		}
		out = append(out, *o)
	}
	return out, errors.Join(errs...)
}

var obligationKeys = []string{"contacts", "runs", "executes", "reads", "writes", "edits", "deletes", "lists", "name", "never", "before", "after", "times",
	"at_most", "at_least", "severity", "reason"}

func parseObligation(raw json.RawMessage) (*Obligation, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		return nil, fmt.Errorf("want a map with one of contacts, runs, executes, reads, writes, edits, deletes, lists, never, at_most, at_least, not %s", short(raw))
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(obligationKeys, k) {
			return nil, fmt.Errorf("unknown key %q%s", k, didYouMean(k, obligationKeys))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if err := knownKeys(k, keys[k]); err != nil {
			return nil, err
		}
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var o Obligation
	if err := d.Decode(&o); err != nil {
		return nil, plainError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows it")
	}
	return &o, o.check()
}

// innerKeys are what the members of an obligation that are maps can have.
var innerKeys = map[string][]string{
	"never": obligationKeys[:8], "before": obligationKeys[:8], "after": obligationKeys[:8], "times": {"at_least", "at_most"},
	"at_most": {"hosts", "commands", "files_read", "files_written"}, "at_least": {"hosts", "commands", "files_read", "files_written"},
}

// knownKeys checks the names within a member, and the severity's.
func knownKeys(member string, raw json.RawMessage) error {
	if member == "severity" {
		var s string
		if json.Unmarshal(raw, &s) == nil {
			if _, err := bodycam.ParseSeverity(s); err != nil {
				return fmt.Errorf("unknown severity %q%s", s, didYouMean(s, severities))
			}
		}
		return nil
	}
	known := innerKeys[member]
	var inner map[string]json.RawMessage
	if known == nil || json.Unmarshal(raw, &inner) != nil {
		return nil // of another form: the decoder says what it should be
	}
	for _, k := range slices.Sorted(maps.Keys(inner)) {
		if !slices.Contains(known, k) {
			return fmt.Errorf("%s: unknown key %q%s", member, k, didYouMean(k, known))
		}
	}
	return nil
}

var severities = []string{"info", "low", "medium", "high", "critical"}

func short(raw []byte) string {
	s := string(raw)
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return bodycam.Printable(s)
}

func plainError(err error) error {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		return fmt.Errorf("%s: want %s, not %s", t.Field, strings.TrimPrefix(t.Type.String(), "conduct."), t.Value)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// didYouMean suggests the nearest right name.
func didYouMean(got string, names []string) string {
	best, at := "", 3
	for _, n := range names {
		if d := distance(got, n); d < at {
			best, at = n, d
		}
	}
	if best == "" {
		return "; known are " + strings.Join(names, ", ")
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// distance is the number of letters to insert, delete or change.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diag, row[j] = row[j], min(row[j]+1, row[j-1]+1, diag+cost)
		}
	}
	return row[len(b)]
}

func (o *Obligation) check() error {
	n := o.Act.count()
	switch {
	case n > 1:
		return errors.New("it has more than one act: write one obligation for each")
	case n == 1 && (o.Never != nil || o.AtMost != nil || o.AtLeast != nil):
		return errors.New("an act, never, at_most and at_least exclude each other; how often an act is done is bounded by times")
	case n == 0 && o.Never == nil && o.AtMost == nil && o.AtLeast == nil:
		return errors.New("it demands nothing: want one of contacts, runs, executes, reads, writes, edits, deletes, lists, never, at_most, at_least")
	case n == 0 && o.Times != nil:
		return errors.New("times needs an act")
	case o.Never != nil && (o.AtMost != nil || o.AtLeast != nil):
		return errors.New("never excludes at_most and at_least")
	case (o.Before != nil || o.After != nil) && n == 0 && o.Never == nil:
		return errors.New("before and after need an act")
	case o.Before != nil && o.After != nil:
		return errors.New("before and after exclude each other: write two obligations")
	}
	for _, sub := range []struct {
		key string
		act *Act
	}{{"never", o.Never}, {"before", o.Before}, {"after", o.After}} {
		if sub.act != nil && sub.act.count() != 1 {
			return fmt.Errorf("%s: want exactly one act", sub.key)
		}
	}
	for _, a := range []*Act{&o.Act, o.Never, o.Before, o.After} {
		if a != nil && a.count() == 1 {
			if err := a.check(); err != nil {
				return err
			}
		}
	}
	for _, a := range []*Amounts{o.AtMost, o.AtLeast} {
		if a != nil && a.Hosts == nil && a.Commands == nil && a.Read == nil && a.Written == nil {
			return errors.New("want hosts, commands, files_read or files_written")
		}
	}
	if t := o.Times; t != nil && t.AtLeast == nil && t.AtMost == nil {
		return errors.New("times: want at_least or at_most")
	}
	return nil
}

// verb is the act's key and value.
func (a *Act) verb() (key, value string) {
	for _, v := range []struct{ k, v string }{{"contacts", a.Contacts}, {"runs", a.Runs}, {"executes", a.Executes}, {"reads", a.Reads},
		{"writes", a.Writes}, {"edits", a.Edits}, {"deletes", a.Deletes}, {"lists", a.Lists}} {
		if v.v != "" {
			return v.k, v.v
		}
	}
	return "", ""
}

func (a *Act) count() int {
	n := 0
	for _, v := range []string{a.Contacts, a.Runs, a.Executes, a.Reads, a.Writes, a.Edits, a.Deletes, a.Lists} {
		if v != "" {
			n++
		}
	}
	return n
}

func (a *Act) check() error {
	key, v := a.verb()
	if key == "contacts" || key == "runs" {
		return nil
	}
	if word, _, ok := strings.Cut(v, ":"); ok && word != "skill" && distance(word, "skill") <= 2 {
		return fmt.Errorf("%s: %q: did you mean skill:NAME/PATH? (a file of such a name is written ./%s)", key, v, v)
	}
	if rest, ok := strings.CutPrefix(v, "skill:"); ok {
		if name, p, ok := strings.Cut(rest, "/"); !ok || name == "" || p == "" {
			return fmt.Errorf("%s: %q: want skill:NAME/PATH", key, v)
		}
	}
	return nil
}

func (a *Act) String() string {
	k, v := a.verb()
	return k + " " + v
}

// String is the obligation in a few words.
func (o *Obligation) String() string {
	var b strings.Builder
	switch {
	case o.Never != nil:
		b.WriteString("never " + o.Never.String())
	case o.AtMost != nil:
		b.WriteString("at most " + o.AtMost.String())
	case o.AtLeast != nil:
		b.WriteString("at least " + o.AtLeast.String())
	default:
		b.WriteString(o.Act.String())
	}
	if o.Before != nil {
		b.WriteString(" before " + o.Before.String())
	}
	if o.After != nil {
		b.WriteString(" after " + o.After.String())
	}
	if t := o.Times; t != nil {
		if t.AtLeast != nil {
			fmt.Fprintf(&b, ", at least %d times", *t.AtLeast)
		}
		if t.AtMost != nil {
			fmt.Fprintf(&b, ", at most %d times", *t.AtMost)
		}
	}
	return b.String()
}

func (a *Amounts) String() string {
	var parts []string
	for _, v := range []struct {
		n    *int
		what string
	}{{a.Hosts, "hosts"}, {a.Commands, "commands"}, {a.Read, "files read"}, {a.Written, "files written"}} {
		if v.n != nil {
			parts = append(parts, fmt.Sprintf("%d %s", *v.n, v.what))
		}
	}
	return strings.Join(parts, ", ")
}
