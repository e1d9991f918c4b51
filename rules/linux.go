package rules

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/bodycam-dev/bodycam"
)

//go:embed linux.tsv
var linuxTSV string

// call is a system call (or an event of ours that no call is behind), by the name that evt.type shows.
type call struct {
	name  string
	types typeSet // event types that come from it
	real  bool    // it has a number somewhere: a denied attempt can be recorded
}

// bitName is a flag or request with its name.
type bitName struct {
	bits uint64
	name string
}

// linuxFacts is linux.tsv, read.
type linuxFacts struct {
	calls    []call
	byName   map[string]int16
	numbers  [3][]int16 // by number on x86_64, i386, arm64; 0: none
	ofType   [64]int16  // what an event without a number is called
	errno    map[int32]string
	names    map[string][]bitName // open, clone, mode
	requests map[int32]string     // ptrace
	signals  map[int32]string
}

var linux = sync.OnceValue(readLinux)

func readLinux() *linuxFacts {
	f := &linuxFacts{byName: map[string]int16{}, errno: map[int32]string{}, names: map[string][]bitName{},
		requests: map[int32]string{}, signals: map[int32]string{}}
	f.calls = []call{{name: "unknown"}} // of a denied call without a number
	for line := range strings.Lines(linuxTSV) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		c := strings.Split(line, "\t")
		switch c[0] {
		case "call":
			f.addCall(c)
		case "errno":
			f.errno[int32(mustInt(c[1]))] = c[2]
		case "ptrace":
			f.requests[int32(mustInt(c[1]))] = c[2]
		case "signal":
			f.signals[int32(mustInt(c[1]))] = c[2]
		default:
			f.names[c[0]] = append(f.names[c[0]], bitName{uint64(mustInt(c[1])), c[2]})
		}
	}
	return f
}

func (f *linuxFacts) addCall(c []string) {
	id := int16(len(f.calls))
	k := call{name: c[1]}
	for _, t := range strings.Split(c[2], ",") {
		if t == "" {
			continue
		}
		name, isDefault := strings.CutPrefix(t, "*")
		typ, ok := bodycam.ParseType(name)
		if !ok {
			panic("rules: linux.tsv: unknown event type " + name)
		}
		k.types |= 1 << typ
		if isDefault {
			f.ofType[typ] = id
		}
	}
	for i := range f.numbers {
		if nr := mustInt(c[3+i]); nr >= 0 {
			for int64(len(f.numbers[i])) <= nr {
				f.numbers[i] = append(f.numbers[i], 0)
			}
			f.numbers[i][nr] = id
			k.real = true
		}
	}
	f.calls = append(f.calls, k)
	f.byName[k.name] = id
}

func mustInt(s string) int64 {
	v, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		panic(fmt.Sprintf("rules: built-in table: %v", err))
	}
	return v
}

// call names the call behind an event.
func (f *linuxFacts) call(e *bodycam.Event) int16 {
	nr, table := e.NR, -1
	switch e.ABI {
	case bodycam.ABIAMD64:
		table = 0
	case bodycam.ABIX32:
		table, nr = 0, nr&^0x40000000
	case bodycam.ABII386:
		table = 1
	case bodycam.ABIARM64:
		table = 2
	}
	if table >= 0 && nr >= 0 && int(nr) < len(f.numbers[table]) {
		if id := f.numbers[table][nr]; id != 0 && (e.Type == bodycam.TypeDenied || f.calls[id].types.has(e.Type)) {
			return id
		}
	}
	return f.ofType[e.Type&63]
}

// typeSet is a set of event types.
type typeSet uint64

const allTypes = ^typeSet(0)

func (s typeSet) has(t bodycam.Type) bool { return s>>(t&63)&1 != 0 }

func (s typeSet) String() string {
	var out []string
	for i, n := range bodycam.Types() {
		if s.has(bodycam.Type(i)) && i > 0 {
			out = append(out, n)
		}
	}
	if len(out) == len(bodycam.Types())-1 {
		return "all"
	}
	return strings.Join(out, ", ")
}
