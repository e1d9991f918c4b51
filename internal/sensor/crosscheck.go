package sensor

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// Disagreement is a use of a resource that one of two sensors recorded and the other did not.
type Disagreement struct {
	Resource bodycam.Resource
	Verb     string       // exec, read, write, append, create, truncate, contact, dns, or the event type's name
	Proc     bodycam.Proc // who used it, as the sensor that saw it says
	Seen     string       // name of the sensor that saw it
	Missed   string       // name of the one that did not, "" where that recorded nothing at all
	Count    uint64       // how many such uses it saw
	Boot     uint64       // when the first was, in nanoseconds since boot
}

// soft are the marks of events that don't claim to name their object exactly. They are not held against the other
// sensor, and each answers for one thing that it saw of the same kind in the same process.
const soft = bodycam.MarkUnverified | bodycam.MarkTruncated | bodycam.MarkDetached | bodycam.MarkRaced | bodycam.MarkNoResult |
	bodycam.MarkSynthesised | bodycam.MarkNoProcess

// use is one thing that a process did with a resource. Pids are the host's, so they compare between sensors; start
// times don't, since sensors know them to different resolutions.
type use struct {
	pid  int32
	verb string
	kind bodycam.ResourceKind
	name string // what is compared
}

type seen struct {
	name  string // what is shown
	proc  bodycam.Proc
	count uint64
	boot  uint64
}

// view is what one sensor saw.
type view struct {
	sensor string
	uses   map[use]*seen
	vague  map[use]uint64 // how many uses without a name there are
}

// CrossCheck compares two sensors' records of the same processes, and returns what only one of them saw: commands
// executed, files read, written, created or cut by opening them, renamed and so on, hosts and sockets contacted, names asked for. How often, in
// which order and in how many events does not matter, nor do failed calls on files. Both slices must cover the same
// processes for the same time; a sensor that recorded nothing disagrees with everything.
func CrossCheck(a, b []bodycam.Event) []Disagreement {
	va, vb := look(a), look(b)
	out := append(va.without(vb), vb.without(va)...)
	slices.SortFunc(out, func(x, y Disagreement) int {
		return cmp.Or(cmp.Compare(x.Boot, y.Boot), cmp.Compare(x.Resource.Kind, y.Resource.Kind), cmp.Compare(x.Resource.Name, y.Resource.Name),
			cmp.Compare(x.Verb, y.Verb), cmp.Compare(x.Proc.PID, y.Proc.PID), cmp.Compare(x.Seen, y.Seen))
	})
	return out
}

// without lists what v saw and w did not. Each of w's nameless events can be only one of the things that v names.
func (v *view) without(w *view) (out []Disagreement) {
	excuses := maps.Clone(w.vague)
	for _, u := range slices.SortedFunc(maps.Keys(v.uses), func(x, y use) int {
		return cmp.Or(cmp.Compare(x.pid, y.pid), cmp.Compare(x.verb, y.verb), cmp.Compare(x.name, y.name))
	}) {
		s := v.uses[u]
		if w.uses[u] != nil {
			continue
		}
		mine, anyone := use{pid: u.pid, verb: u.verb}, use{verb: u.verb}
		if excuses[mine] >= s.count {
			excuses[mine] -= s.count
			continue
		}
		if excuses[anyone] >= s.count {
			excuses[anyone] -= s.count
			continue
		}
		out = append(out, Disagreement{Resource: bodycam.Resource{Kind: u.kind, Name: s.name}, Verb: u.verb, Proc: s.proc,
			Seen: v.sensor, Missed: w.sensor, Count: s.count, Boot: s.boot})
	}
	return out
}

func look(events []bodycam.Event) *view {
	v := &view{uses: make(map[use]*seen), vague: make(map[use]uint64)}
	for i := range events {
		e := &events[i]
		if v.sensor == "" {
			v.sensor = e.Sensor
		}
		v.add(e)
	}
	return v
}

func (v *view) add(e *bodycam.Event) {
	note := func(verb string, kind bodycam.ResourceKind, key, name string) {
		if key == "" || e.Marks&soft != 0 {
			v.vague[use{pid: e.Proc.PID, verb: verb}] += e.N()
			return
		}
		u := use{e.Proc.PID, verb, kind, key}
		s := v.uses[u]
		if s == nil {
			s = &seen{name: name, proc: e.Proc, boot: e.Boot}
			v.uses[u] = s
		}
		s.count += e.N()
		s.boot = min(s.boot, e.Boot)
	}
	switch e.Type {
	case bodycam.TypeExec:
		if e.Errno == 0 {
			args := strings.Join(e.Argv, "\x00")
			if e.Marks&bodycam.MarkArgvCut != 0 { // how much is kept differs; what it was does not
				args = string(e.ArgvHash[:])
			}
			note("exec", bodycam.Command, e.Exe+"\x00"+args, e.Exe)
		}
	case bodycam.TypeOpen:
		if e.Errno != 0 || e.Marks&bodycam.MarkAnonymous != 0 {
			return
		}
		for _, how := range []bodycam.Access{bodycam.Read, bodycam.Write, bodycam.Append, bodycam.Create, bodycam.Trunc} {
			if e.Access&how != 0 {
				note(how.String(), bodycam.File, e.Path, e.Path)
			}
		}
	case bodycam.TypeRename, bodycam.TypeLink, bodycam.TypeSymlink:
		if e.Errno == 0 {
			note(e.Type.String(), bodycam.File, e.Path+"\x00"+e.Path2, e.Path+" → "+e.Path2)
		}
	case bodycam.TypeUnlink, bodycam.TypeMkdir, bodycam.TypeRmdir, bodycam.TypeTruncate, bodycam.TypeChmod, bodycam.TypeChown:
		if e.Errno == 0 {
			note(e.Type.String(), bodycam.File, e.Path, e.Path)
		}
	case bodycam.TypeConnect, bodycam.TypeSend:
		// An attempt counts as contact. A fast open is a connect to one sensor and a send to another.
		switch {
		case e.Remote.IsValid():
			to := netip.AddrPortFrom(e.Remote.Addr().Unmap().WithZone(""), e.Remote.Port()).String()
			note("contact", bodycam.Host, e.Proto.String()+" "+to, to)
		case strings.HasPrefix(e.UnixAddr, "@"):
			note("contact", bodycam.Host, "unix "+e.UnixAddr, e.UnixAddr)
		case e.Path != "" || e.UnixAddr != "":
			p := cmp.Or(e.Path, e.UnixAddr)
			note("contact", bodycam.Host, "unix "+p, p)
		}
	case bodycam.TypeDNS:
		note("dns", bodycam.Host, strings.ToLower(strings.TrimSuffix(e.Host, ".")), e.Host)
	}
}
