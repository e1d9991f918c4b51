// Package features extracts, once per run, what analyses share: the resources that were touched, with exact
// counts, by whom and because of which row; how much of each skill was used; what files changed; and what explains
// a resource.
//
// Everything here is derived from the record and can be rebuilt from it. Nothing is judged: a resource is listed
// because an event names it, and left out never; of a flood of names most stand together ([Resource.Folded]). What is
// ordinary for the system or the harness is told apart by cause and by [Resource.Noise].
package features

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// Version is the version of the features' form and of the rules that make them. Features of another version are
// extracted again.
const Version = 12

// Action is what was done with a resource.
type Action string

// The actions.
const (
	Executed Action = "exec"
	Read     Action = "read"
	Written  Action = "write"
	Created  Action = "create"
	Deleted  Action = "delete"
	Renamed  Action = "rename" // as the old name; the new name is Created
	Linked   Action = "link"
	Changed  Action = "change" // mode, owner, attributes, times
	Listed   Action = "list"   // a directory was opened
	Refd     Action = "ref"    // O_PATH
	Contact  Action = "contact"
	Asked    Action = "ask" // a DNS query for the name
	Served   Action = "serve"
)

// Changes tells whether an action changes a file.
func (a Action) Changes() bool {
	switch a {
	case Written, Created, Deleted, Renamed, Changed:
		return true
	}
	return false
}

// Resource is one command, file or host of a run.
type Resource struct {
	bodycam.Resource
	// Key is the name as it compares between runs: without pids, temporary names, hashes and times ([NameRules]); a
	// skill's file is skill:NAME/PATH, whichever of its copies was touched.
	Key string `json:"key"`
	// Counts says how often each action was done; Failed how often it was tried in vain.
	Counts map[Action]uint64 `json:"counts"`
	Failed map[Action]uint64 `json:"failed,omitempty"`
	// Uses are the calls that worked, Vain those that failed, by cause. A call counts once, though it may be several
	// actions (an open that creates, writes and reads).
	Uses Uses `json:"uses"`
	Vain Uses `json:"vain,omitzero"`
	// At holds the first and the last event of each action that worked.
	At    map[Action][2]uint64 `json:"at"`
	First uint64               `json:"first"`           // the first event that names it
	Bytes uint64               `json:"bytes,omitempty"` // read and written, or sent and received
	// Refused counts connections that the recorder, or the host beyond it, did not let through: the kernel had called them
	// connected, since the recorder answers first.
	Refused uint64 `json:"refused,omitempty"`
	Late    Uses   `json:"late,omitzero"` // those of Uses that happened after the agent had ended
	// Edits are the calls, of those that changed it, that aren't the harness's own.
	Edits uint64 `json:"edits,omitempty"`
	// Named counts calls of processes whose own arguments, or whose row's command, name the resource.
	Named uint64 `json:"named,omitempty"`

	// Census counts calls that read a process's environment or memory and give nothing away: its own, or all processes' by
	// a program of the system that lists them.
	Census uint64 `json:"census,omitempty"`
	// Existed tells that the manifest from before the agent lists the file.
	Existed bool `json:"existed,omitempty"`

	Rows     []Cause  `json:"rows,omitempty"`   // rows that caused it, at most 16, in the transcript's order
	Argv     []string `json:"argv,omitempty"`   // command: the first full argv
	Script   string   `json:"script,omitempty"` // command: what the interpreter ran
	Forms    []Form   `json:"forms,omitempty"`  // command: as it was called
	Addrs    []string `json:"addrs,omitempty"`  // host: addresses with ports
	Source   string   `json:"source,omitempty"` // host: how its name is known
	Windows  []string `json:"windows,omitempty"`
	Marks    []string `json:"marks,omitempty"`
	Programs []string `json:"by,omitempty"` // that touched it, in the order of their first touch; at most eight
	// Class is what makes a file sensitive wherever it lies: credentials that were touched, or the class of a file that
	// was changed and runs or steers something later ([Classes]); "" where nothing does.
	Class string `json:"class,omitempty"`
	// Noise says why the resource is counted apart: "" where it is the agent's.
	Noise string `json:"noise,omitempty"`
	// Folded is how many different names the entry stands for, where a run touched more than can be kept: those of a
	// directory, or hosts that end alike. The name is DIRECTORY/… then. FoldedMore tells that there were more than that.
	Folded     uint64 `json:"folded,omitempty"`
	FoldedMore bool   `json:"folded_more,omitempty"`
	// FormsMore tells that the last of Forms stands for all that came after the others.
	FormsMore bool `json:"forms_more,omitempty"`

	last   uint64 // event that was counted last
	forms  map[string]int
	asked  map[uint64]int // forms by the hash of the arguments as they were given
	weight string         // class of the names of a fold
}

// Names is how many different names the entry stands for: 1, or more of a fold.
func (r *Resource) Names() uint64 { return max(r.Folded, 1) }

// Label is the name for people, raw bytes of the run included: of a fold how many names there are, and where.
func (r *Resource) Label() string {
	if r.Folded == 0 {
		return r.Name
	}
	n := strconv.FormatUint(r.Folded, 10)
	if r.FoldedMore {
		n = "at least " + n
	}
	where := strings.TrimSuffix(r.Name, "/…")
	switch {
	case r.Kind == bodycam.Host && r.Name == "…":
		return n + " more hosts"
	case r.Kind == bodycam.Host:
		return n + " more hosts below " + strings.TrimPrefix(r.Name, "….")
	case where == "":
		where = "/"
	}
	return n + " more " + string(r.Kind) + "s under " + where
}

// Uses counts calls by what caused them.
type Uses struct {
	Rows        uint64 `json:"rows,omitempty"`        // a row of the transcript explains them
	Harness     uint64 `json:"harness,omitempty"`     // the harness itself, or the shell that it wraps a row's command in
	Startup     uint64 `json:"startup,omitempty"`     // helpers that the harness started before its first tool call
	Unexplained uint64 `json:"unexplained,omitempty"` // no row explains them
}

// Minus takes away a part of the same calls.
func (u Uses) Minus(v Uses) Uses {
	return Uses{Rows: u.Rows - v.Rows, Harness: u.Harness - v.Harness, Startup: u.Startup - v.Startup, Unexplained: u.Unexplained - v.Unexplained}
}

// Total sums all.
func (u Uses) Total() uint64 { return u.Rows + u.Harness + u.Startup + u.Unexplained }

// Agent sums what isn't the harness's own.
func (u Uses) Agent() uint64 { return u.Rows + u.Unexplained }

func (u *Uses) add(o origin, n uint64) {
	switch o {
	case byRow:
		u.Rows += n
	case byHarness:
		u.Harness += n
	case byStartup:
		u.Startup += n
	default:
		u.Unexplained += n
	}
}

// Cause is a row that touched a resource.
type Cause struct {
	Row        int                `json:"row"`
	Method     bodycam.LinkMethod `json:"method"`
	Confidence float64            `json:"confidence"`
	Count      uint64             `json:"count"`
}

// Form is one way in which a program was called.
type Form struct {
	Sub  string `json:"sub"`  // name at LevelSubcommand
	Argv string `json:"argv"` // name at LevelArgv
	Uses Uses   `json:"uses"`
	Late Uses   `json:"late,omitzero"`
}

// By lists the programs that touched the resource, in the order of their first touch; at most eight.
func (r *Resource) By() []string { return r.Programs }

// Total sums the counts of what worked.
func (r *Resource) Total() uint64 { return sum(r.Counts) }

// Tried sums the counts of what failed.
func (r *Resource) Tried() uint64 { return sum(r.Failed) }

func sum(m map[Action]uint64) uint64 {
	var n uint64
	for _, c := range m {
		n += c
	}
	return n
}

// Most is the count of the action that was done most often: one open that creates and writes is one use.
func (r *Resource) Most() uint64 {
	var n uint64
	for _, c := range r.Counts {
		n = max(n, c)
	}
	return n
}

// Changed counts the actions that change a file.
func (r *Resource) Changed() uint64 {
	var n uint64
	for a, c := range r.Counts {
		if a.Changes() {
			n += c
		}
	}
	return n
}

// Features is what one run's record says, by resource.
type Features struct {
	Version   int               `json:"version"`
	Resources []*Resource       `json:"resources"`        // by kind, then by first event
	Denied    map[string]uint64 `json:"denied,omitempty"` // calls refused by the sandbox, by name
	Special   []Special         `json:"special,omitempty"`
	// SpecialMore counts those that came after the ones that are kept.
	SpecialMore uint64 `json:"special_more,omitempty"`
	// Folded counts the names that have no entry of their own ([Resource.Folded]).
	Folded uint64 `json:"folded,omitempty"`
	Torn   bool   `json:"torn,omitempty"` // the events file ends in the middle
	// OneManifest tells that the workspace was recorded before the agent or after it, not both: what changed is not known.
	OneManifest bool `json:"one_manifest,omitempty"`
	// Account tells that there is a transcript with tool calls, so that causes mean something.
	Account  bool         `json:"account"`
	Skills   []SkillUse   `json:"skills,omitempty"`
	Files    []FileChange `json:"files,omitempty"`    // what of the manifests changed, by path
	Contents []Content    `json:"contents,omitempty"` // files with the content of grading material or a skill's file

	index map[bodycam.Resource]*Resource
}

// Special is an event that is neither command, file nor host but worth showing: privilege, tracing, signals,
// mounts, io_uring.
type Special struct {
	Seq    uint64 `json:"seq"`
	Type   string `json:"type"`
	Call   string `json:"syscall"`
	Exe    string `json:"exe"`
	Detail string `json:"detail"`
	Errno  int32  `json:"errno,omitempty"`
	// Refused: by the sandbox; the kernel never saw it.
	Refused bool   `json:"refused,omitempty"`
	Count   uint64 `json:"count"`
}

// Get returns a resource, nil where the run didn't touch it.
func (f *Features) Get(kind bodycam.ResourceKind, name string) *Resource {
	if f.index == nil {
		f.index = make(map[bodycam.Resource]*Resource, len(f.Resources))
		for _, r := range f.Resources {
			if r.Folded == 0 {
				f.index[r.Resource] = r
			}
		}
	}
	return f.index[bodycam.Resource{Kind: kind, Name: name}]
}

// Of lists the resources of one kind.
func (f *Features) Of(kind bodycam.ResourceKind) []*Resource {
	var out []*Resource
	for _, r := range f.Resources {
		if r.Kind == kind {
			out = append(out, r)
		}
	}
	return out
}

func (f *Features) sort() {
	slices.SortStableFunc(f.Resources, func(a, b *Resource) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.First, b.First))
	})
}
