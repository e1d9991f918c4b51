package features

import (
	"hash/maphash"
	"path"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// A run chooses how many different names it touches, so what is kept of them is bounded: about 150 MiB in all. Names
// beyond the bounds are folded, never dropped: they count in one entry for their directory (of a host: for what its name
// ends in), which says how many names it stands for. What says something by itself (credentials, files that run or steer
// something later, grading material) has places of its own, and is folded apart from the rest, so that a flood of other
// names before or after doesn't hide it.
const (
	mostFiles    = 50_000
	mostCommands = 5_000
	mostHosts    = 5_000
	mostNames    = 16 << 20 // bytes of all names
	mostInDir    = 4_096    // names directly in one directory, or ending alike
	mostReserve  = 12_000   // further places, for names that say something by themselves and the first of other directories
	mostWeighty  = 200      // of them for one class of names in one region
	mostLoose    = 300      // for other names of one region
	mostInRest   = 8        // and of one directory
	mostFolds    = 2_000    // at any depth
	mostShallow  = 3_000    // with those of at most two names
	mostCounted  = 1 << 20  // folded names that are told apart to be counted
	mostArgvKept = 8 << 20  // bytes of arguments that are kept whole
	mostAllForms = 20_000   // ways of calling programs, of all programs
	mostQueries  = 1 << 15  // DNS questions that are told apart at one time
	mostHelpers  = 1 << 16  // processes of the harness's start-up helpers
)

// folder decides which names have an entry of their own.
type folder struct {
	own     map[bodycam.ResourceKind]int // entries
	names   int                          // bytes of names
	reserve int                          // places taken
	inDir   map[string]int               // entries directly in a directory
	regions map[string]int               // places of the reserve that a region's class of names has taken
	rest    map[string]int               // and a directory's other names
	folds   int
	counted map[uint64]struct{}
	seed    maphash.Seed
}

func newFolder() *folder {
	return &folder{own: map[bodycam.ResourceKind]int{}, inDir: map[string]int{}, regions: map[string]int{}, rest: map[string]int{}, counted: map[uint64]struct{}{}, seed: maphash.MakeSeed()}
}

func (f *folder) full(kind bodycam.ResourceKind) bool {
	if f.names >= mostNames {
		return true
	}
	switch kind {
	case bodycam.File:
		return f.own[kind] >= mostFiles
	case bodycam.Host:
		return f.own[kind] >= mostHosts
	}
	return f.own[kind] >= mostCommands
}

// admits tells whether a name that has no entry yet gets one. The answer for a name never turns from no to yes, so that
// an entry's counts are those of all its calls.
func (f *folder) admits(id bodycam.Resource, pinned bool, weight string) bool {
	dir := above(id)
	key := string(id.Kind) + dir
	switch {
	case pinned:
		return true
	case !f.full(id.Kind) && f.inDir[key] < mostInDir:
		f.own[id.Kind]++
		f.names += len(id.Name)
		f.inDir[key]++
	case len(id.Name) > 8<<10 || f.reserve >= mostReserve:
		return false
	case weight != "":
		return f.take(weight+"\x00"+region(id), mostWeighty)
	case f.rest[key] >= mostInRest || !f.take(region(id), mostLoose):
		return false
	default:
		f.rest[key]++
	}
	return true
}

func (f *folder) take(region string, most int) bool {
	if f.regions[region] >= most {
		return false
	}
	f.regions[region]++
	f.reserve++
	return true
}

// topDirs are those that file systems have. A flood in one, or in directories of its own, leaves the others' places alone.
var topDirs = []string{"bin", "boot", "dev", "etc", "home", "lib", "lib64", "logs", "media", "mnt", "opt", "proc", "root", "run", "sbin", "srv", "sys", "tests", "tmp", "usr", "var"}

func region(id bodycam.Resource) string {
	if id.Kind == bodycam.Host {
		return "host " + id.Name[strings.LastIndexByte(id.Name, '.')+1:]
	}
	top, _, _ := strings.Cut(strings.TrimPrefix(id.Name, "/"), "/")
	if !slices.Contains(topDirs, top) {
		top = ""
	}
	return string(id.Kind) + " " + top
}

// above is the directory of a path, and what a host's name ends in after its first part.
func above(id bodycam.Resource) string {
	if id.Kind == bodycam.Host {
		_, rest, _ := strings.Cut(id.Name, ".")
		return rest
	}
	return path.Dir(id.Name)
}

// fold returns the entry that stands for a name without an entry of its own, by the deepest directory that has one or
// may still get one.
func (x *Extractor) fold(id bodycam.Resource, weight string, seq uint64) *Resource {
	f := x.folder
	for dir := above(id); ; {
		parent := above(bodycam.Resource{Kind: id.Kind, Name: dir})
		top := parent == dir || dir == ""
		at := bodycam.Resource{Kind: id.Kind, Name: "\x00" + weight + "\x00" + dir} // no name holds NUL
		r := x.f.index[at]
		if r == nil && (top || f.folds < mostFolds || f.folds < mostShallow && parts(id.Kind, dir) <= 2) && len(dir) <= 1024 {
			name := foldName(id.Kind, dir)
			r = x.entry(at, bodycam.Resource{Kind: id.Kind, Name: name}, seq)
			r.weight = weight
			f.folds++
		}
		if r != nil {
			x.countFolded(r, id)
			return r
		}
		dir = parent
	}
}

// countFolded counts the different names of a fold, as long as they can be told apart.
func (x *Extractor) countFolded(r *Resource, id bodycam.Resource) {
	f := x.folder
	h := maphash.String(f.seed, string(id.Kind)+id.Name)
	if _, seen := f.counted[h]; seen {
		return
	}
	if len(f.counted) >= mostCounted {
		r.FoldedMore = true
		return
	}
	f.counted[h] = struct{}{}
	r.Folded++
	x.f.Folded++
}

func parts(kind bodycam.ResourceKind, dir string) int {
	if kind == bodycam.Host {
		return strings.Count(dir, ".") + 1
	}
	return strings.Count(strings.Trim(dir, "/"), "/") + 1
}

// foldName names what a fold stands for, so that it lies where its names do.
func foldName(kind bodycam.ResourceKind, dir string) string {
	if kind == bodycam.Host {
		if dir == "" {
			return "…"
		}
		return "…." + dir
	}
	return strings.TrimSuffix(dir, "/") + "/…"
}

// weight is the class of what a name says by itself, "" where it says nothing. Names of different classes are folded
// apart.
func (x *Extractor) weight(id bodycam.Resource) string {
	if id.Kind != bodycam.File {
		return ""
	}
	switch {
	case secret(id.Name):
		return "credentials"
	case under(id.Name, x.places.grading):
		return "grading"
	case under(id.Name, x.places.skills):
		return "skill"
	}
	for i := range Classes {
		if classGlobs[i][0].match(id.Name) && !classGlobs[i][1].match(id.Name) && (!Classes[i].Fresh || x.existed[id.Name]) {
			return Classes[i].Name
		}
	}
	return ""
}

// places are paths of the plan that are asked for with every new name.
type places struct {
	grading, skills []string
	pinned          map[string]bool // files that the plan lists
}

func newPlaces(p *Plan) places {
	out := places{grading: p.GradingPlaces(), skills: p.SkillRoots(), pinned: map[string]bool{}}
	for _, g := range p.Grading {
		for _, place := range append([]string{g.Box}, g.Exposed...) {
			if place == "" {
				continue
			}
			out.pinned[place] = true
			for _, f := range g.Files {
				out.pinned[path.Join(place, f.Path)] = true
			}
		}
	}
	for _, s := range p.Skills {
		for _, root := range s.Roots {
			for _, f := range s.Files {
				out.pinned[path.Join(root, f.Path)] = true
			}
		}
	}
	return out
}

// classOfFold is sensitive for the names that a fold stands for.
func classOfFold(r *Resource) string {
	switch r.weight {
	case "credentials":
		if r.Census > 0 && r.Census == r.Total()+r.Tried() {
			return ""
		}
		if r.Counts[Read]+r.Counts[Linked]+r.Counts[Renamed]+r.Failed[Read]+r.Changed() > 0 {
			return r.weight
		}
	case "grading", "":
	default:
		if r.Changed() > 0 {
			return r.weight
		}
	}
	return ""
}
