package features

import (
	"cmp"
	"errors"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// RowOf finds the row that caused an event: row −1 is the harness itself. ok is false where no row explains it.
type RowOf func(e *bodycam.Event) (row int, method bodycam.LinkMethod, confidence float64, ok bool)

// Join makes the RowOf of a run. Package link has it; features are told, so that the two stay apart.
type Join func(r *store.Run) (RowOf, error)

// Extract reads a run's record. join may be nil: then no event has a row.
func Extract(r *store.Run, join Join) (*Features, error) {
	plan, err := ParsePlan(r.Info.Plan)
	if err != nil {
		return nil, err
	}
	rows, err := r.Rows()
	if err != nil {
		return nil, err
	}
	x := NewExtractor(plan, rows)
	for _, u := range r.Info.Unlinked {
		if u.Startup {
			x.startup[u.Proc] = true
		}
	}
	links, err := r.Links()
	if err != nil {
		return nil, err
	}
	x.links(links)
	if join != nil && len(rows) > 0 {
		if x.rowOf, err = join(r); err != nil {
			return nil, err
		}
	}
	x.programs, x.state = r.Info.Agent.Programs, r.Info.Agent.State
	if a := r.Info.Environment.Resolver; a != "" {
		x.endpoints = append(x.endpoints, a)
	}
	if err := x.contents(r); err != nil {
		return nil, err
	}
	for _, c := range x.f.Contents[:min(len(x.f.Contents), mostReserve)] {
		name, _, _ := strings.Cut(c.Path, "!")
		x.places.pinned[name] = true
	}
	err = r.Events(func(e *bodycam.Event) error { x.Add(e); return nil })
	if errors.Is(err, store.ErrTorn) {
		x.f.Torn, err = true, nil
	}
	if err != nil {
		return nil, err
	}
	return x.Finish(), nil
}

// recorderHosts are names that the recorder itself provides.
var recorderHosts = []string{"model.bodycam.internal"}

type origin uint8

const (
	byNobody origin = iota
	byRow
	byHarness
	byStartup
)

// Extractor builds features from events.
type Extractor struct {
	f         *Features
	plan      *Plan
	rows      []bodycam.Row
	rowOf     RowOf
	startup   map[bodycam.Proc]bool // roots of the harness's start-up helpers
	roots     map[bodycam.Proc]bool // processes that a row's command began as
	inStartup map[bodycam.Proc]bool
	endpoints []string
	programs  []string             // of the harness
	state     []string             // where it keeps its own
	asked     [2]map[question]bool // the newest, and those before
	skills    *skillWatch
	args      map[string]string // normalised arguments, by what they were
	existed   map[string]bool   // files that were there before the agent began
	places    places
	folder    *folder
	argvKept  int // bytes of Resource.Argv
	allForms  int

	// of the event at hand
	origin origin
	cause  Cause
}

type question struct {
	cookie uint64
	host   string
}

// NewExtractor begins. The rows are the whole transcript.
func NewExtractor(plan *Plan, rows []bodycam.Row) *Extractor {
	if plan == nil {
		plan = &Plan{}
	}
	x := &Extractor{
		f:    &Features{Version: Version, Resources: []*Resource{}, Denied: map[string]uint64{}, index: map[bodycam.Resource]*Resource{}},
		plan: plan, rows: rows, startup: map[bodycam.Proc]bool{}, roots: map[bodycam.Proc]bool{},
		inStartup: map[bodycam.Proc]bool{}, endpoints: slices.Clone(recorderHosts), asked: [2]map[question]bool{{}, {}},
		skills: newSkillWatch(plan), args: map[string]string{}, places: newPlaces(plan), folder: newFolder(),
	}
	for i := range rows {
		if rows[i].Kind == bodycam.RowTool {
			x.f.Account = true
		}
	}
	return x
}

func (x *Extractor) links(links []bodycam.Link) {
	for _, l := range links {
		if l.Row >= 0 && l.Root.PID != 0 {
			x.roots[l.Root] = true
		}
	}
}

// Add counts one event, whose process must be filled in ([bodycam.Processes]).
func (x *Extractor) Add(e *bodycam.Event) {
	x.attribute(e)
	x.skills.observe(e, x)
	switch e.Type {
	case bodycam.TypeExec:
		x.exec(e)
	case bodycam.TypeOpen:
		x.open(e)
	case bodycam.TypeClose:
		x.transfer(e)
	case bodycam.TypeCreate, bodycam.TypeMkdir:
		x.file(e, e.Path, Created)
	case bodycam.TypeSymlink:
		x.file(e, e.Path2, Created)
	case bodycam.TypeTruncate:
		x.file(e, e.Path, Written)
	case bodycam.TypeRename:
		x.file(e, e.Path, Renamed)
		x.file(e, e.Path2, Created)
	case bodycam.TypeLink:
		x.file(e, e.Path, Linked)
		x.file(e, e.Path2, Created)
	case bodycam.TypeUnlink, bodycam.TypeRmdir:
		x.file(e, e.Path, Deleted)
	case bodycam.TypeChmod, bodycam.TypeChown, bodycam.TypeXattr, bodycam.TypeUtime:
		x.file(e, e.Path, Changed)
	case bodycam.TypeConnect, bodycam.TypeSend, bodycam.TypeAccept, bodycam.TypeDNS, bodycam.TypeTLS, bodycam.TypeHTTP, bodycam.TypeFlow:
		x.network(e)
	case bodycam.TypeFork, bodycam.TypeExit, bodycam.TypeChdir, bodycam.TypeMmap, bodycam.TypeIPC, bodycam.TypeMark, bodycam.TypeUnknown:
	default:
		x.special(e)
	}
	if e.Marks&bodycam.MarkRefused != 0 {
		x.f.Denied[e.Syscall()] += e.N()
	}
}

// attribute finds what caused an event.
func (x *Extractor) attribute(e *bodycam.Event) {
	x.origin, x.cause = byNobody, Cause{Row: -1}
	if x.rowOf != nil {
		row, method, conf, ok := x.rowOf(e)
		switch {
		case ok && row >= 0:
			x.origin, x.cause = byRow, Cause{Row: row, Method: method, Confidence: conf}
		case ok:
			x.origin = byHarness
		}
	}
	if x.started(e) && x.origin == byNobody {
		x.origin = byStartup
	}
	// The shell that a harness puts around a row's command is the harness's choice, not the agent's.
	if x.origin == byRow && e.Type == bodycam.TypeExec && x.roots[e.Proc] && !e.Failed() {
		if _, shell := bodycam.ShellScript(e.Argv); shell {
			x.origin = byHarness
		}
	}
}

// started tells whether the process of an event is one of the harness's start-up helpers or descends from one. Past the
// bound it is not: then no row explains what it does.
func (x *Extractor) started(e *bodycam.Event) bool {
	if len(x.startup) == 0 {
		return false
	}
	in := x.startup[e.Proc] || x.inStartup[e.Proc]
	if !in && (x.startup[e.Parent] || x.inStartup[e.Parent]) && len(x.inStartup) < mostHelpers {
		in, x.inStartup[e.Proc] = true, true
	}
	if in && e.Type == bodycam.TypeFork && e.Child.PID != 0 && len(x.inStartup) < mostHelpers {
		x.inStartup[e.Child] = true
	}
	return in
}

func (x *Extractor) exec(e *bodycam.Event) {
	if e.Path == "" && e.Exe == "" {
		return
	}
	name := e.Exe
	if e.Failed() {
		name = cmp.Or(e.Path, e.PathGiven, e.Exe)
	}
	r := x.touch(e, bodycam.Resource{Kind: bodycam.Command, Name: name}, Executed)
	if r.Argv == nil && len(e.Argv) > 0 {
		r.Argv, r.Script = x.keepArgv(e.Argv), e.Script
	}
	if !e.Failed() {
		x.form(r, e)
	}
	if e.Script != "" && !e.Failed() {
		x.file(e, e.Script, Executed)
	}
}

// keepArgv returns the arguments to keep with a command: all of them, as long as there is room.
func (x *Extractor) keepArgv(argv []string) []string {
	n := 0
	for _, a := range argv {
		n += len(a) + 16
	}
	if x.argvKept+n <= mostArgvKept {
		x.argvKept += n
		return argv
	}
	out := make([]string, 0, 8)
	for _, a := range argv[:min(len(argv), 8)] {
		out = append(out, strings.Clone(clipArg(a)))
	}
	return out
}

// mostForms bounds how many ways of calling a program are kept; what comes after is counted in one more.
const mostForms = 500

func (x *Extractor) form(r *Resource, e *bodycam.Event) {
	if r.forms == nil {
		r.forms, r.asked = map[string]int{}, map[uint64]int{}
	}
	given := x.given(e)
	i, ok := r.asked[given]
	if !ok {
		i = x.newForm(r, e)
		if len(r.asked) < 4*mostForms {
			r.asked[given] = i
		}
	}
	r.Forms[i].Uses.add(x.origin, e.N())
	if late(e) {
		r.Forms[i].Late.add(x.origin, e.N())
	}
}

// given is the hash of what names a form. Once a program has all its forms, only calls that are known by it have one.
func (x *Extractor) given(e *bodycam.Event) uint64 {
	var h maphash.Hash
	h.SetSeed(x.folder.seed)
	for _, s := range [...]string{e.Exe, e.CWD, e.Script} {
		h.WriteString(s)
		h.WriteByte(0)
	}
	for _, a := range e.Argv {
		h.WriteString(a)
		h.WriteByte(0)
	}
	return h.Sum64()
}

func (x *Extractor) newForm(r *Resource, e *bodycam.Event) int {
	full := len(r.Forms) >= mostForms || x.allForms >= mostAllForms
	if full && r.FormsMore {
		return r.forms["…"]
	}
	f, key := Form{Sub: r.Key + " …", Argv: r.Key + " …"}, "…"
	if full {
		r.FormsMore = true
	} else {
		f = Form{Sub: x.commandName(e, LevelSubcommand), Argv: x.commandName(e, LevelArgv)}
		key = f.Argv
		if i, ok := r.forms[key]; ok {
			return i
		}
		x.allForms++
	}
	i := len(r.Forms)
	r.forms[key] = i
	r.Forms = append(r.Forms, f)
	return i
}

func (x *Extractor) open(e *bodycam.Event) {
	path := cmp.Or(e.Path, e.PathGiven)
	switch a := e.Access; {
	case a&bodycam.PathRef != 0:
		x.file(e, path, Refd)
	case a&bodycam.Dir != 0:
		x.file(e, path, Listed)
	default:
		if a&bodycam.Create != 0 && !e.Failed() {
			x.file(e, path, Created)
		}
		if a.Writes() {
			x.file(e, path, Written)
		}
		if a&bodycam.Read != 0 || !a.Writes() {
			x.file(e, path, Read)
		}
	}
}

// transfer adds the bytes that moved through an open file, which its close tells.
func (x *Extractor) transfer(e *bodycam.Event) {
	if r := x.f.index[bodycam.Resource{Kind: bodycam.File, Name: e.Path}]; r != nil {
		r.Bytes += e.BytesRead + e.BytesWritten
	}
}

func (x *Extractor) file(e *bodycam.Event, path string, a Action) {
	if path == "" {
		return
	}
	x.touch(e, bodycam.Resource{Kind: bodycam.File, Name: path}, a)
}

func (x *Extractor) network(e *bodycam.Event) {
	if e.Proto == bodycam.ProtoUnix || e.UnixAddr != "" {
		if e.UnixAddr != "" && e.Type != bodycam.TypeFlow {
			x.touch(e, bodycam.Resource{Kind: bodycam.File, Name: "unix:" + e.UnixAddr}, Contact)
		}
		return
	}
	name := hostName(e)
	if name == "" || e.Remote.Addr().IsLoopback() && e.Host == "" {
		return
	}
	id := bodycam.Resource{Kind: bodycam.Host, Name: name}
	action := Contact
	switch e.Type {
	case bodycam.TypeDNS:
		// The egress proxy and the kernel each tell of a query, and a name is asked for by two types of record: one
		// socket's questions for one name count once.
		q := question{e.Cookie, name}
		if e.Cookie == 0 && e.Sensor == "names" {
			q.cookie = uint64(e.Proc.PID)<<32 | e.Proc.Start&0xffffffff
		}
		if q.cookie != 0 && (x.asked[0][q] || x.asked[1][q]) {
			return
		}
		if len(x.asked[0]) >= mostQueries {
			x.asked[0], x.asked[1] = map[question]bool{}, x.asked[0]
		}
		x.asked[0][q] = true
		action = Asked
	case bodycam.TypeAccept:
		action = Served
	case bodycam.TypeFlow:
		if r := x.f.index[id]; r != nil {
			r.Bytes += e.BytesRead + e.BytesWritten
			if e.Sensor == "names" && e.Failed() {
				r.Refused += e.N()
			}
		}
		return
	case bodycam.TypeTLS, bodycam.TypeHTTP:
		// The connection itself is counted where it was made; these tell its name.
		if x.f.index[id] != nil {
			return
		}
	}
	r := x.touch(e, id, action)
	if e.Remote.IsValid() && action == Contact {
		if a := e.Remote.String(); !slices.Contains(r.Addrs, a) && len(r.Addrs) < 16 {
			r.Addrs = append(r.Addrs, a)
		}
	}
	if s := e.HostSource.String(); s != "" && (r.Source == "" || action == Contact) {
		r.Source = s
	}
}

// hostName names the other end: a name in lower case without its final dot, or an address.
func hostName(e *bodycam.Event) string {
	if e.Host != "" {
		return strings.ToLower(strings.TrimSuffix(e.Host, "."))
	}
	if e.Remote.Addr().IsValid() {
		return e.Remote.Addr().Unmap().String()
	}
	return ""
}

func (x *Extractor) special(e *bodycam.Event) {
	d := e.Detail
	if e.Path != "" {
		d = strings.TrimSpace(d + " " + e.Path)
	}
	if from := cmp.Or(e.Path2, e.Path2Given); e.Type == bodycam.TypeMount && from != "" && e.Syscall() == "mount" {
		d = strings.TrimSpace(e.Detail + " " + from + " on " + e.Path)
	}
	if d == "" && e.Signal != 0 {
		d = "signal " + strconv.Itoa(int(e.Signal))
	}
	f, refused := x.f, e.Marks&bodycam.MarkRefused != 0
	last := len(f.Special) - 1
	if last >= 0 {
		if s := &f.Special[last]; s.Type == e.Type.String() && s.Call == e.Syscall() && s.Exe == e.Exe && s.Detail == d && s.Errno == e.Errno && s.Refused == refused {
			s.Count += e.N()
			return
		}
	}
	const most = 10_000
	if len(f.Special) < most {
		f.Special = append(f.Special, Special{Seq: e.Seq, Type: e.Type.String(), Call: e.Syscall(), Exe: e.Exe, Detail: d, Errno: e.Errno, Refused: refused, Count: e.N()})
		return
	}
	f.SpecialMore += e.N()
}

// late tells of what happened after the agent had ended.
func late(e *bodycam.Event) bool {
	return e.Window == bodycam.WindowPostAgent || e.Window == bodycam.WindowVerify
}

// inProgress is EINPROGRESS: a beginning, not a failure.
const inProgress = 115

func (x *Extractor) touch(e *bodycam.Event, id bodycam.Resource, a Action) *Resource {
	r := x.find(e, id)
	n, again := e.N(), r.last == e.Seq && e.Seq != 0
	r.last = e.Seq
	if e.Failed() && e.Errno != inProgress {
		if r.Failed == nil {
			r.Failed = map[Action]uint64{}
		}
		r.Failed[a] += n
		if !again {
			r.Vain.add(x.origin, n)
		}
	} else {
		r.Counts[a] += n
		at, ok := r.At[a]
		if !ok {
			at[0] = e.Seq
		}
		at[1] = e.Seq
		r.At[a] = at
		if a.Changes() && (x.origin == byRow || x.origin == byNobody) {
			r.Edits += n
		}
		if !again {
			r.Uses.add(x.origin, n)
			if late(e) {
				r.Late.add(x.origin, n)
			}
		}
	}
	if !again {
		x.note(r, e, n)
	}
	return r
}

// find returns the entry of a name: its own, or the fold that stands for it.
func (x *Extractor) find(e *bodycam.Event, id bodycam.Resource) *Resource {
	if r := x.f.index[id]; r != nil {
		return r
	}
	weight := x.weight(id)
	if !x.folder.admits(id, x.places.pinned[id.Name], weight) {
		return x.fold(id, weight, e.Seq)
	}
	id.Name = strings.Clone(id.Name)
	return x.entry(id, id, e.Seq)
}

// entry makes the entry of a resource.
func (x *Extractor) entry(at, id bodycam.Resource, seq uint64) *Resource {
	r := &Resource{Resource: id, Key: x.key(id), Counts: map[Action]uint64{}, At: map[Action][2]uint64{}, First: seq}
	x.f.index[at] = r
	x.f.Resources = append(x.f.Resources, r)
	return r
}

// note keeps who touched a resource, because of what and when.
func (x *Extractor) note(r *Resource, e *bodycam.Event, n uint64) {
	if x.origin == byRow {
		x.because(r, n)
	}
	if r.Kind != bodycam.Command && x.told(e, r) {
		r.Named += n
	}
	if r.Kind == bodycam.File && x.census(e) {
		r.Census += n
	}
	if e.Exe != "" && len(r.Programs) < 8 && !slices.Contains(r.Programs, e.Exe) {
		r.Programs = append(r.Programs, e.Exe)
	}
	if w := e.Window.String(); w != "" && !slices.Contains(r.Windows, w) {
		r.Windows = append(r.Windows, w)
	}
	for _, m := range e.Marks.Names() {
		if !slices.Contains(r.Marks, m) {
			r.Marks = append(r.Marks, m)
		}
	}
}

const mostCauses = 16

func (x *Extractor) because(r *Resource, n uint64) {
	for i := range r.Rows {
		if r.Rows[i].Row == x.cause.Row {
			r.Rows[i].Count += n
			r.Rows[i].Confidence = max(r.Rows[i].Confidence, x.cause.Confidence)
			return
		}
	}
	if len(r.Rows) >= mostCauses {
		return
	}
	c := x.cause
	c.Count = n
	r.Rows = append(r.Rows, c)
	if r.Kind != bodycam.Command && len(r.Name) > 3 && c.Row < len(x.rows) && strings.Contains(x.rows[c.Row].Command, r.Name) {
		r.Named += n
	}
}

// told tells whether the process that made the call was told to: one of its arguments is the resource.
func (x *Extractor) told(e *bodycam.Event, r *Resource) bool {
	if e.Type == bodycam.TypeExec {
		return false
	}
	for i, a := range e.Argv {
		if i == 0 || len(a) < 3 || len(a) > 4096 {
			continue
		}
		if a == r.Name || e.PathGiven != "" && a == e.PathGiven || r.Kind == bodycam.Host && strings.Contains(a, r.Name) {
			return true
		}
	}
	return false
}

func (x *Extractor) key(id bodycam.Resource) string {
	if id.Kind == bodycam.Host {
		return id.Name
	}
	return x.plan.CommonPath(id.Name)
}

// CommonPath is CommonName of a path, and knows the copies of skills.
func (p *Plan) CommonPath(name string) string {
	for i := range p.Skills {
		for _, root := range p.Skills[i].Roots {
			if rest, ok := strings.CutPrefix(name, root); ok && (rest == "" || rest[0] == '/') {
				return "skill:" + p.Skills[i].Name + CommonName(rest, false)
			}
		}
	}
	return CommonName(name, false)
}

// Finish orders the resources, tells noise apart and returns the features. Call it once, after the last event.
func (x *Extractor) Finish() *Features {
	f := x.f
	noise := newNoise(x)
	for _, r := range f.Resources {
		slices.SortFunc(r.Rows, func(a, b Cause) int { return a.Row - b.Row })
		r.Noise = noise.of(r, f.Account)
		r.Existed = r.Kind == bodycam.File && x.existed[r.Name]
		r.Class = sensitive(r, x.plan)
		if r.Folded > 0 {
			r.Class = classOfFold(r)
		}
		r.forms, r.asked = nil, nil
	}
	f.index = nil
	f.sort()
	f.Skills = x.skills.finish(x)
	return f
}
