package conduct

import (
	"cmp"
	"math"
	"slices"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
)

// Options say how runs are compared. The zero value is the default.
type Options struct {
	// Level is how much of a command line names a command; LevelSubcommand where empty.
	Level features.Level
	// ByAction makes a file's node its path and action, instead of its path.
	ByAction bool
	// Failed counts calls that failed too. A contact that was attempted always counts.
	Failed bool
}

// types are the three types of resources, in the order of all results.
var types = [3]bodycam.ResourceKind{bodycam.Command, bodycam.File, bodycam.Host}

// weight is the share of one resource among all of its type: p(r) = count(r) / Σ count.
type weight struct {
	id uint32
	n  uint32 // at most its type's greatest value
	p  float64
}

// profile is what of a run is compared: for each type the resources with their shares, by id.
type profile [3][]weight

// names gives every resource of a comparison a number, in the order in which they come: runs are added one by one,
// so that numbers, and with them the order of sums, are the same every time.
type names struct {
	ids  map[string]uint32
	list []string
}

func newNames() *names { return &names{ids: map[string]uint32{}} }

func (n *names) of(s string) uint32 {
	id, ok := n.ids[s]
	if !ok {
		id = uint32(len(n.list))
		n.ids[s] = id
		n.list = append(n.list, s)
	}
	return id
}

// name is the resource's name; the type is known from where it stands.
func (n *names) name(id uint32) string { return n.list[id] }

// profileOf counts a run's resources. raw is the published count: everything that was seen. Otherwise noise and what
// the harness does for itself are left out.
func profileOf(f *features.Features, o Options, raw bool, n *names) profile {
	var counts [3]map[uint32]uint64
	for i := range counts {
		counts[i] = map[uint32]uint64{}
	}
	for _, r := range f.Resources {
		if !raw && r.Noise != "" {
			continue
		}
		uses := func(u, late, vain features.Uses) uint64 {
			if !raw {
				u = u.Minus(late) // how often what was left behind does something depends on how long the tests take
			}
			if raw || !f.Account {
				c := u.Total()
				if o.Failed {
					c += vain.Total()
				}
				return c
			}
			c := u.Agent()
			if o.Failed {
				c += vain.Agent()
			}
			return c
		}
		switch r.Kind {
		case bodycam.Command:
			commandCounts(r, o, uses, counts[0], n)
		case bodycam.File:
			fileCounts(r, o, uses, counts[1], n)
		case bodycam.Host:
			if c := contacts(r); c > 0 {
				counts[2][n.of(r.Key)] += c
			}
		}
	}
	var p profile
	for i := range counts {
		p[i] = shares(counts[i])
	}
	return p
}

func commandCounts(r *features.Resource, o Options, uses func(u, late, vain features.Uses) uint64, into map[uint32]uint64, n *names) {
	if o.Level == features.LevelExecutable {
		if c := uses(r.Uses, r.Late, r.Vain); c > 0 {
			into[n.of(r.Key)] += c
		}
		return
	}
	for i := range r.Forms {
		form := &r.Forms[i]
		name := form.Sub
		if o.Level == features.LevelArgv {
			name = form.Argv
		}
		if c := uses(form.Uses, form.Late, features.Uses{}); c > 0 {
			into[n.of(name)] += c
		}
	}
	if c := uses(features.Uses{}, features.Uses{}, r.Vain); c > 0 { // failed executions have no form: there was no program
		into[n.of(r.Key)] += c
	}
}

// fileCounts counts by path, or by path and action. The calls of a resource are told apart by cause, its actions
// aren't: an action has the share of the calls that isn't noise.
func fileCounts(r *features.Resource, o Options, uses func(u, late, vain features.Uses) uint64, into map[uint32]uint64, n *names) {
	c := uses(r.Uses, r.Late, r.Vain)
	if c == 0 {
		return
	}
	if !o.ByAction {
		into[n.of(r.Key)] += c
		return
	}
	all := r.Uses.Total()
	if o.Failed {
		all += r.Vain.Total()
	}
	for a, k := range r.Counts {
		if o.Failed {
			k += r.Failed[a]
		}
		if k = (k*c + all - 1) / all; k > 0 {
			into[n.of(r.Key+" "+string(a))] += k
		}
	}
	if o.Failed {
		for a, k := range r.Failed {
			if r.Counts[a] == 0 && k > 0 {
				into[n.of(r.Key+" "+string(a))] += (k*c + all - 1) / all
			}
		}
	}
}

// contacts counts how often a host was contacted, in vain or not; where it was only asked for, the questions.
func contacts(r *features.Resource) uint64 {
	c := r.Counts[features.Contact] + r.Failed[features.Contact] + r.Counts[features.Served]
	if c == 0 {
		c = r.Counts[features.Asked] + r.Failed[features.Asked]
	}
	return c
}

func shares(counts map[uint32]uint64) []weight {
	var sum uint64
	out := make([]weight, 0, len(counts))
	for id, n := range counts {
		out = append(out, weight{id: id, n: uint32(min(n, math.MaxUint32)), p: float64(n)})
		sum += n
	}
	for i := range out {
		out[i].p /= float64(sum)
	}
	slices.SortFunc(out, func(a, b weight) int { return cmp.Compare(a.id, b.id) })
	return out
}
