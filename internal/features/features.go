// Package features extracts, once per run, what analyses share: the resources that were touched, with exact
// counts, by whom and because of which row.
//
// Everything here is derived from the record and can be rebuilt from it. Nothing is judged: a resource is listed
// because an event names it, and left out never.
package features

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
)

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

// Resource is one command, file or host of a run.
type Resource struct {
	bodycam.Resource
	// Counts says how often each action was done; Failed how often it was tried in vain.
	Counts map[Action]uint64 `json:"counts"`
	Failed map[Action]uint64 `json:"failed,omitempty"`
	First  uint64            `json:"first"` // the first event that names it
	Procs  int               `json:"processes"`
	Bytes  uint64            `json:"bytes,omitempty"` // read and written, or sent and received

	Argv    []string `json:"argv,omitempty"`   // command: the first full argv
	Script  string   `json:"script,omitempty"` // command: what the interpreter ran
	Addrs   []string `json:"addrs,omitempty"`  // host: addresses with ports
	Source  string   `json:"source,omitempty"` // host: how its name is known
	Windows []string `json:"windows,omitempty"`
	Marks   []string `json:"marks,omitempty"`

	procs map[bodycam.Proc]struct{}
	by    []string
}

// By lists the programs that touched the resource, in the order of their first touch; at most eight.
func (r *Resource) By() []string { return r.by }

// Total sums the counts of what worked.
func (r *Resource) Total() uint64 {
	var n uint64
	for _, c := range r.Counts {
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

// Tried sums the counts of what failed.
func (r *Resource) Tried() uint64 {
	var n uint64
	for _, c := range r.Failed {
		n += c
	}
	return n
}

// Features is what one run's record says, by resource.
type Features struct {
	Resources []*Resource       `json:"resources"` // by kind, then by first event
	Processes int               `json:"processes"`
	Denied    map[string]uint64 `json:"denied,omitempty"` // calls refused by the sandbox, by name
	Special   []Special         `json:"special,omitempty"`
	Torn      bool              `json:"torn,omitempty"` // the events file ends in the middle
	index     map[bodycam.Resource]*Resource
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
	Count  uint64 `json:"count"`
}

// Extract reads a run's events.
func Extract(r *store.Run) (*Features, error) {
	f := New()
	err := r.Events(func(e *bodycam.Event) error { f.Add(e); return nil })
	if errors.Is(err, store.ErrTorn) {
		f.Torn, err = true, nil
	}
	if err != nil {
		return nil, err
	}
	f.Finish()
	return f, nil
}

// New returns empty features.
func New() *Features {
	return &Features{Denied: map[string]uint64{}, index: map[bodycam.Resource]*Resource{}}
}

// Add counts one event, whose process must be filled in.
func (f *Features) Add(e *bodycam.Event) {
	switch e.Type {
	case bodycam.TypeExec:
		f.exec(e)
	case bodycam.TypeOpen:
		f.open(e)
	case bodycam.TypeClose:
		f.transfer(e)
	case bodycam.TypeCreate, bodycam.TypeMkdir:
		f.file(e, e.Path, Created)
	case bodycam.TypeSymlink:
		f.file(e, e.Path2, Created)
	case bodycam.TypeTruncate:
		f.file(e, e.Path, Written)
	case bodycam.TypeRename:
		f.file(e, e.Path, Renamed)
		f.file(e, e.Path2, Created)
	case bodycam.TypeLink:
		f.file(e, e.Path, Linked)
		f.file(e, e.Path2, Created)
	case bodycam.TypeUnlink, bodycam.TypeRmdir:
		f.file(e, e.Path, Deleted)
	case bodycam.TypeChmod, bodycam.TypeChown, bodycam.TypeXattr, bodycam.TypeUtime:
		f.file(e, e.Path, Changed)
	case bodycam.TypeConnect, bodycam.TypeSend, bodycam.TypeAccept, bodycam.TypeDNS, bodycam.TypeTLS, bodycam.TypeHTTP, bodycam.TypeFlow:
		f.network(e)
	case bodycam.TypeFork, bodycam.TypeExit, bodycam.TypeChdir, bodycam.TypeMmap, bodycam.TypeMark, bodycam.TypeUnknown:
	default:
		f.special(e)
	}
	if e.Failed() && (e.Errno == 1 || e.Type == bodycam.TypeDenied) {
		f.Denied[e.Syscall()] += e.N()
	}
}

func (f *Features) exec(e *bodycam.Event) {
	if e.Path == "" && e.Exe == "" || e.Marks&bodycam.MarkSynthesised != 0 { // it ran before the record began
		return
	}
	name := e.Exe
	if e.Failed() {
		name = cmp.Or(e.Path, e.PathGiven, e.Exe)
	}
	r := f.touch(e, bodycam.Resource{Kind: bodycam.Command, Name: name}, Executed)
	if r.Argv == nil && len(e.Argv) > 0 {
		r.Argv, r.Script = e.Argv, e.Script
	}
	if e.Script != "" && !e.Failed() {
		f.file(e, e.Script, Executed)
	}
}

func (f *Features) open(e *bodycam.Event) {
	path := cmp.Or(e.Path, e.PathGiven)
	switch a := e.Access; {
	case a&bodycam.PathRef != 0:
		f.file(e, path, Refd)
	case a&bodycam.Dir != 0:
		f.file(e, path, Listed)
	default:
		if a&bodycam.Create != 0 && !e.Failed() {
			f.file(e, path, Created)
		}
		if a&bodycam.Write != 0 {
			f.file(e, path, Written)
		}
		if a&bodycam.Read != 0 || a&bodycam.Write == 0 {
			f.file(e, path, Read)
		}
	}
}

// transfer adds the bytes that moved through an open file, which its close tells.
func (f *Features) transfer(e *bodycam.Event) {
	if r := f.index[bodycam.Resource{Kind: bodycam.File, Name: e.Path}]; r != nil {
		r.Bytes += e.BytesRead + e.BytesWritten
	}
}

func (f *Features) file(e *bodycam.Event, path string, a Action) {
	if path == "" {
		return
	}
	f.touch(e, bodycam.Resource{Kind: bodycam.File, Name: path}, a)
}

func (f *Features) network(e *bodycam.Event) {
	if e.Proto == bodycam.ProtoUnix || e.UnixAddr != "" {
		if e.UnixAddr != "" && e.Type != bodycam.TypeFlow {
			f.touch(e, bodycam.Resource{Kind: bodycam.File, Name: "unix:" + e.UnixAddr}, Contact)
		}
		return
	}
	name := e.Host
	if name == "" && e.Remote.Addr().IsValid() {
		name = e.Remote.Addr().String()
	}
	if name == "" || e.Remote.Addr().IsLoopback() && e.Host == "" {
		return
	}
	action := Contact
	switch e.Type {
	case bodycam.TypeDNS:
		// The egress proxy's account of a query has the answer, the kernel's the packet: one query, counted once.
		if e.Sensor == "names" && f.Get(bodycam.Host, name) != nil && f.Get(bodycam.Host, name).Counts[Asked] > 0 {
			return
		}
		action = Asked
	case bodycam.TypeAccept:
		action = Served
	case bodycam.TypeFlow:
		if r := f.index[bodycam.Resource{Kind: bodycam.Host, Name: name}]; r != nil {
			r.Bytes += e.BytesRead + e.BytesWritten
		}
		return
	case bodycam.TypeTLS, bodycam.TypeHTTP:
		// The connection itself is counted where it was made; these tell its name.
		if f.index[bodycam.Resource{Kind: bodycam.Host, Name: name}] != nil {
			return
		}
	}
	r := f.touch(e, bodycam.Resource{Kind: bodycam.Host, Name: name}, action)
	if e.Remote.IsValid() && action == Contact {
		if a := e.Remote.String(); !slices.Contains(r.Addrs, a) && len(r.Addrs) < 16 {
			r.Addrs = append(r.Addrs, a)
		}
	}
	if s := e.HostSource.String(); s != "" && (r.Source == "" || action == Contact) {
		r.Source = s
	}
}

func (f *Features) special(e *bodycam.Event) {
	d := e.Detail
	if e.Path != "" {
		d = strings.TrimSpace(d + " " + e.Path)
	}
	last := len(f.Special) - 1
	if last >= 0 {
		if s := &f.Special[last]; s.Type == e.Type.String() && s.Call == e.Syscall() && s.Exe == e.Exe && s.Detail == d && s.Errno == e.Errno {
			s.Count += e.N()
			return
		}
	}
	const most = 10_000
	if len(f.Special) < most {
		f.Special = append(f.Special, Special{Seq: e.Seq, Type: e.Type.String(), Call: e.Syscall(), Exe: e.Exe, Detail: d, Errno: e.Errno, Count: e.N()})
	}
}

func (f *Features) touch(e *bodycam.Event, id bodycam.Resource, a Action) *Resource {
	r := f.index[id]
	if r == nil {
		r = &Resource{Resource: id, Counts: map[Action]uint64{}, First: e.Seq, procs: map[bodycam.Proc]struct{}{}}
		f.index[id] = r
		f.Resources = append(f.Resources, r)
	}
	if e.Failed() && e.Errno != 115 { // EINPROGRESS is a beginning, not a failure
		if r.Failed == nil {
			r.Failed = map[Action]uint64{}
		}
		r.Failed[a] += e.N()
	} else {
		r.Counts[a] += e.N()
	}
	r.procs[e.Proc] = struct{}{}
	if e.Exe != "" && len(r.by) < 8 && !slices.Contains(r.by, e.Exe) {
		r.by = append(r.by, e.Exe)
	}
	if w := e.Window.String(); w != "" && !slices.Contains(r.Windows, w) {
		r.Windows = append(r.Windows, w)
	}
	for _, m := range e.Marks.Names() {
		if !slices.Contains(r.Marks, m) {
			r.Marks = append(r.Marks, m)
		}
	}
	return r
}

// Finish orders the resources. Call it once, after the last event.
func (f *Features) Finish() {
	procs := map[bodycam.Proc]struct{}{}
	for _, r := range f.Resources {
		r.Procs = len(r.procs)
		for p := range r.procs {
			procs[p] = struct{}{}
		}
	}
	f.Processes = len(procs)
	slices.SortStableFunc(f.Resources, func(a, b *Resource) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.First, b.First))
	})
}

// Get returns a resource, nil where the run didn't touch it.
func (f *Features) Get(kind bodycam.ResourceKind, name string) *Resource {
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
