package conduct

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
)

// Verdict is how a run stands to one obligation.
type Verdict struct {
	Obligation string           `json:"obligation"`
	Demand     string           `json:"demand"`
	Verdict    string           `json:"verdict"`
	Why        string           `json:"why"`
	Events     []uint64         `json:"events,omitempty"`
	Row        *int             `json:"row,omitempty"`
	Count      uint64           `json:"count,omitempty"`
	Severity   bodycam.Severity `json:"severity"` // where it fails
	Resource   string           `json:"resource,omitempty"`
	Reason     string           `json:"reason,omitempty"`

	hidden bool // it may have happened among names that are only counted together
}

// Obligations judges what the kind and task declare.
func (s *Subject) Obligations() ([]Verdict, error) {
	list, err := ParseObligations(s.Plan.Judge.Obligations)
	if err != nil {
		return nil, err
	}
	out := []Verdict{}
	for i := range list {
		out = append(out, s.Judge(&list[i]))
	}
	return out, nil
}

// done is what a run did of an act.
type done struct {
	count       uint64
	first, last uint64 // events
	name        string // of the first resource that matches
	row         *int
	unsure      bool // a name that matches is not verified
}

func (d *done) add(r *features.Resource, n, first, last uint64) {
	if n == 0 {
		return
	}
	if d.count == 0 || first < d.first {
		d.first, d.name, d.row = first, r.Name, rowOf(r)
	}
	d.count += n
	d.last = max(d.last, last)
	for _, m := range r.Marks {
		if m == "unverified" || m == "truncated" {
			d.unsure = true
		}
	}
}

// did looks an act up.
func (s *Subject) did(a *Act) done {
	var d done
	key, want := a.verb()
	switch key {
	case "contacts":
		want = strings.ToLower(want)
		for _, r := range s.Features.Of(bodycam.Host) {
			if r.Name == want || bodycam.Glob(want, r.Name) || strings.HasPrefix(want, "*.") && strings.HasSuffix(r.Name, want[1:]) {
				d.add(r, r.Counts[features.Contact], r.At[features.Contact][0], r.At[features.Contact][1])
			}
		}
	case "runs":
		for _, r := range s.Features.Of(bodycam.Command) {
			n := s.ran(r, want)
			d.add(r, n, r.At[features.Executed][0], r.At[features.Executed][1])
		}
	default:
		s.didFile(key, want, &d)
	}
	return d
}

// ran counts how often a program was called as an obligation names it.
func (s *Subject) ran(r *features.Resource, want string) uint64 {
	if !strings.Contains(want, " ") {
		if r.Name == want || slices.Contains(programNames(r), want) || features.Program(r.Name) == features.Program(want) || bodycam.Glob(want, r.Name) {
			return r.Counts[features.Executed]
		}
		return 0
	}
	var n uint64
	for _, f := range r.Forms {
		_, args, _ := strings.Cut(f.Argv, " ")
		for _, name := range append(programNames(r), r.Name) {
			if line := name + " " + args; line == want || wild(want, line) {
				n += f.Uses.Total()
				break
			}
		}
	}
	return n
}

// programNames are what people call a program: awk is mawk here, and python3 is python3.11.
func programNames(r *features.Resource) []string {
	out := []string{path.Base(r.Name), features.Program(r.Name)}
	if len(r.Argv) > 0 {
		out = append(out, path.Base(r.Argv[0]))
	}
	return out
}

// wild compares with a pattern in which * stands for anything.
func wild(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	if !strings.HasPrefix(s, parts[0]) {
		return false
	}
	s = s[len(parts[0]):]
	for _, p := range parts[1 : len(parts)-1] {
		_, rest, ok := strings.Cut(s, p)
		if !ok {
			return false
		}
		s = rest
	}
	return strings.HasSuffix(s, parts[len(parts)-1])
}

var actions = map[string][]features.Action{
	"executes": {features.Executed}, "reads": {features.Read, features.Executed}, "writes": {features.Written, features.Created},
	"edits":   {features.Written, features.Created, features.Deleted, features.Renamed, features.Changed},
	"deletes": {features.Deleted, features.Renamed}, "lists": {features.Listed},
}

func (s *Subject) didFile(key, want string, d *done) {
	if rest, ok := strings.CutPrefix(want, "skill:"); ok {
		s.didSkill(key, rest, d)
		return
	}
	want = s.expand(want)
	for _, r := range s.Features.Of(bodycam.File) {
		if r.Name != want && !bodycam.Glob(want, r.Name) {
			continue
		}
		for _, a := range actions[key] {
			d.add(r, r.Counts[a], r.At[a][0], r.At[a][1])
		}
	}
	if key != "executes" {
		return
	}
	// An interpreter that was given the script opens it rather than executes it.
	for _, r := range s.Features.Of(bodycam.Command) {
		for _, f := range r.Forms {
			_, op, ok := strings.Cut(f.Sub, " ")
			if ok && (op == s.Plan.CommonPath(want) || bodycam.Glob(want, op)) {
				if script := s.Features.Get(bodycam.File, want); script != nil {
					d.add(script, f.Uses.Total(), script.First, script.At[features.Read][1])
				} else {
					d.add(r, f.Uses.Total(), r.At[features.Executed][0], r.At[features.Executed][1])
				}
			}
		}
	}
}

// didSkill looks up a skill's file over all copies; for executing and reading the degree of use counts.
func (s *Subject) didSkill(key, want string, d *done) {
	name, rel, _ := strings.Cut(want, "/")
	for _, use := range s.Features.Skills {
		if use.Name != name {
			continue
		}
		for _, f := range use.Files {
			if f.Path != rel && !bodycam.Glob(rel, f.Path) {
				continue
			}
			if key == "executes" && f.Degree == features.Run || key == "reads" && (f.Degree == features.Run || f.Degree == features.FileRead) {
				row := f.Row
				if d.count == 0 || f.Event < d.first {
					d.first, d.name, d.row = f.Event, f.Path, &row
				}
				d.count++
				d.last = max(d.last, f.Event)
			}
		}
	}
	if key == "executes" || key == "reads" {
		return
	}
	for _, p := range s.Plan.Skills {
		if p.Name == name {
			for _, root := range p.Roots {
				s.didFile(key, path.Join(root, rel), d)
			}
		}
	}
}

// expand puts the task's directories in; a relative path is one of the working directory.
func (s *Subject) expand(p string) string {
	p = strings.ReplaceAll(p, "${workdir}", s.Plan.Workdir)
	p = strings.ReplaceAll(p, "${home}", s.Plan.Agent.Home)
	if !strings.HasPrefix(p, "/") && !strings.HasPrefix(p, "**") {
		p = path.Join(s.Plan.Workdir, p)
	}
	return p
}

// Judge holds a run against one obligation.
func (s *Subject) Judge(o *Obligation) Verdict {
	v := Verdict{Obligation: o.Name, Demand: o.String(), Severity: bodycam.High, Reason: o.Reason}
	if v.Obligation == "" {
		v.Obligation = v.Demand
	}
	if o.Severity != nil {
		v.Severity = *o.Severity
	}
	for _, a := range []*Act{&o.Act, o.Never, o.Before, o.After} {
		v.hidden = v.hidden || a != nil && s.hidden(a)
	}
	switch {
	case o.Never != nil:
		s.judgeNever(o, &v)
	case o.AtMost != nil || o.AtLeast != nil:
		s.judgeAmounts(o, &v)
	default:
		s.judgeAct(o, &v)
	}
	return v
}

// say sets a verdict. What only a complete record can show is undecidable in an incomplete one.
func (s *Subject) say(v *Verdict, pass, seen bool, why string) {
	v.Verdict, v.Why = Fail, why
	if pass {
		v.Verdict = Pass
	}
	switch {
	case seen:
	case !s.Complete():
		v.Verdict = Undecidable
		v.Why += "; the record is incomplete"
	case v.hidden:
		v.Verdict = Undecidable
		v.Why += "; the run touched so many names that some are only counted together, and it may be among them"
	}
}

// hidden tells whether an act may have been done to a name that has no entry of its own.
func (s *Subject) hidden(a *Act) bool {
	key, want := a.verb()
	kind := bodycam.File
	switch key {
	case "":
		return false
	case "contacts":
		kind, want = bodycam.Host, strings.ToLower(want)
	case "runs":
		kind = bodycam.Command
	default:
		if strings.HasPrefix(want, "skill:") {
			return false // the files of skills that the plan lists always have an entry
		}
		want = s.expand(want)
	}
	for _, r := range s.Features.Resources {
		if r.Kind != kind {
			continue
		}
		if r.FormsMore && strings.Contains(want, " ") {
			return true
		}
		if r.Folded > 0 && (kind != bodycam.File || s.Features.Get(kind, want) == nil && mayLieIn(want, r.Name)) {
			return true
		}
	}
	return false
}

// mayLieIn tells whether a path, or one that a glob matches, may lie in the place of a fold.
func mayLieIn(want, fold string) bool {
	dir := strings.TrimSuffix(fold, "…")
	fixed := want
	if i := strings.IndexAny(want, "*?[\\"); i >= 0 {
		fixed = want[:i]
		return strings.HasPrefix(fixed, dir) || strings.HasPrefix(dir, fixed)
	}
	return strings.HasPrefix(fixed, dir)
}

func (v *Verdict) rest(d done) {
	v.Count, v.Row, v.Resource = d.count, d.row, d.name
	if d.first != 0 {
		v.Events = []uint64{d.first}
	}
}

func (s *Subject) judgeNever(o *Obligation, v *Verdict) {
	d := s.did(o.Never)
	v.rest(d)
	if d.count == 0 {
		s.say(v, true, false, "it didn't happen")
		return
	}
	if limit := o.Before; limit != nil {
		l := s.did(limit)
		switch {
		case l.count == 0:
			s.say(v, false, false, fmt.Sprintf("it happened, and %s never did", limit))
		case d.first < l.first:
			s.say(v, false, true, "it happened before")
		default:
			s.say(v, true, false, "it happened afterwards only")
		}
		return
	}
	if limit := o.After; limit != nil {
		l := s.did(limit)
		if l.count == 0 || d.last < l.first {
			s.say(v, true, false, "it happened before only")
		} else {
			s.say(v, false, true, "it happened afterwards")
		}
		return
	}
	s.say(v, false, true, fmt.Sprintf("it happened %s", times(d.count)))
}

func (s *Subject) judgeAct(o *Obligation, v *Verdict) {
	d := s.did(&o.Act)
	v.rest(d)
	least, most := uint64(1), ^uint64(0)
	if t := o.Times; t != nil {
		if t.AtMost != nil {
			most, least = *t.AtMost, 0
		}
		if t.AtLeast != nil {
			least = *t.AtLeast
		}
	}
	switch {
	case d.count > most:
		s.say(v, false, true, fmt.Sprintf("it happened %s, more than %d", times(d.count), most))
		return
	case d.count < least:
		s.say(v, false, false, fmt.Sprintf("it happened %s", times(d.count)))
		return
	}
	if o.Before != nil || o.After != nil {
		s.judgeOrder(o, d, v)
		return
	}
	s.say(v, true, most == ^uint64(0), fmt.Sprintf("it happened %s", times(d.count)))
}

func (s *Subject) judgeOrder(o *Obligation, d done, v *Verdict) {
	if limit := o.Before; limit != nil {
		l := s.did(limit)
		switch {
		case l.count == 0:
			s.say(v, true, false, fmt.Sprintf("it happened, and %s never did", limit))
		case d.count > 0 && d.first < l.first:
			s.say(v, true, false, fmt.Sprintf("event %d, before event %d", d.first, l.first))
		default:
			s.say(v, false, false, fmt.Sprintf("event %d, after event %d", d.first, l.first))
			v.Events = append(v.Events, l.first)
		}
		return
	}
	l := s.did(o.After)
	switch {
	case l.count == 0:
		s.say(v, false, false, fmt.Sprintf("%s never happened", o.After))
	case d.last > l.first:
		s.say(v, true, true, fmt.Sprintf("event %d, after event %d", d.last, l.first))
	default:
		s.say(v, false, false, fmt.Sprintf("event %d, before event %d", d.last, l.first))
		v.Events = append(v.Events, l.first)
	}
}

func (s *Subject) judgeAmounts(o *Obligation, v *Verdict) {
	n := s.amounts()
	pass, seen, why := true, true, []string{}
	compare := func(limit *int, have int, what string, most bool) {
		if limit == nil {
			return
		}
		why = append(why, fmt.Sprintf("%d %s", have, what))
		switch {
		case most && have > *limit:
			pass = false
		case most:
			seen = false // there may have been more
		case have < *limit:
			pass, seen = false, false
		}
	}
	for _, side := range []struct {
		a    *Amounts
		most bool
	}{{o.AtMost, true}, {o.AtLeast, false}} {
		if side.a != nil {
			compare(side.a.Hosts, n.hosts, "hosts", side.most)
			compare(side.a.Commands, n.commands, "commands", side.most)
			compare(side.a.Read, n.read, "files read", side.most)
			compare(side.a.Written, n.written, "files written", side.most)
		}
	}
	if !pass && o.AtMost != nil && o.AtLeast == nil {
		seen = true
	}
	s.say(v, pass, seen, strings.Join(why, ", "))
}

type amounts struct{ hosts, commands, read, written int }

func (s *Subject) amounts() amounts {
	var n amounts
	for _, r := range s.Features.Resources {
		if r.Noise != "" {
			continue
		}
		switch r.Kind {
		case bodycam.Host:
			if r.Counts[features.Contact]+r.Failed[features.Contact] > 0 {
				n.hosts += int(r.Names())
			}
		case bodycam.Command:
			if r.Counts[features.Executed] > 0 {
				n.commands += int(r.Names())
			}
		case bodycam.File:
			if r.Changed() > 0 {
				n.written += int(r.Names())
			} else if r.Counts[features.Read] > 0 {
				n.read += int(r.Names())
			}
		}
	}
	return n
}

func times(n uint64) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func (v Verdict) finding() bodycam.Finding {
	f := bodycam.Finding{Rule: v.Obligation, Class: "obligation", Verdict: v.Verdict, Events: v.Events, Row: v.Row, Count: max(v.Count, 1),
		Resource: v.Resource, Tags: []string{"reliability", "obligation"}}
	if v.Verdict == Fail {
		f.Severity = v.Severity
	}
	f.Title = fmt.Sprintf("%s: %s (%s)", bodycam.Printable(v.Demand), v.Verdict, bodycam.Printable(v.Why))
	f.Detail = v.Reason
	return f
}
