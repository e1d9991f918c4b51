package rules

import "hash/maphash"

// A run opens the same files again and again, and most of what rules ask of an event is asked of a file's names. Answers
// are kept by name: a name is hashed once an event, and what was worked out about it before costs the look at two bits.

const (
	recalled   = 1 << 14 // names whose answers are kept
	recallBits = 256     // two for each question
)

// recall keeps answers about names. A name that isn't kept takes the place of another: nothing grows.
type recall struct {
	seed  maphash.Seed // made anew each time, so that nobody can choose names which are taken for one another
	names []recollection
}

type recollection struct {
	hash uint64
	bits [recallBits / 64]uint64 // of each question: whether it was asked, and the answer
}

func newRecall() recall {
	return recall{seed: maphash.MakeSeed(), names: make([]recollection, recalled)}
}

// of returns what is kept of the name of that hash.
func (r *recall) of(hash uint64) *recollection {
	x := &r.names[hash&(recalled-1)]
	if x.hash != hash {
		*x = recollection{hash: hash}
	}
	return x
}

// ask answers a question about a name, from memory where it was asked before.
func (x *recollection) ask(question int, name string, match matcher) bool {
	word, bit := &x.bits[question/32], uint(question%32)*2
	if *word>>bit&1 != 0 {
		return *word>>(bit+1)&1 != 0
	}
	ok := match(name)
	*word |= 1 << bit
	if ok {
		*word |= 1 << (bit + 1)
	}
	return ok
}

// hashes are those of a file's names, made when first needed.
func (m *machine) hashes(n *names) []uint64 {
	if len(n.hashes) != len(n.list) || !n.hashed {
		n.hashed = true
		n.hashes = n.hashes[:0]
		for _, s := range n.list {
			n.hashes = append(n.hashes, m.hash(s))
		}
	}
	return n.hashes
}

// recalledPred asks any of a file's names, from memory where it can.
func recalledPred(second bool, question int, match matcher) pred {
	return func(m *machine) bool {
		n := &m.path
		list := m.object
		if second {
			n, list = &m.path2, m.object2
		}
		l := list()
		if len(l) == 0 {
			return false
		}
		for i, h := range m.hashes(n) {
			if m.recall.of(h).ask(question, l[i], match) {
				return true
			}
		}
		return false
	}
}

// recalledText asks a single text, where asking costs more than hashing it.
func recalledText(get strGetter, question int, match matcher) pred {
	return func(m *machine) bool {
		s, ok := get(m)
		return ok && m.recall.of(m.hash(s)).ask(question, s, match)
	}
}

func (m *machine) hash(s string) uint64 {
	if h := maphash.String(m.recall.seed, s); h != 0 {
		return h
	}
	return 1 // 0 is that of no name
}

// recallable tells whether a field is every name of the event's file, or of the call's second one.
func recallable(g *getter) (second, ok bool) {
	if g.paths == nil || g.part != nil {
		return false, false
	}
	switch g.name {
	case "evt.arg.name", "evt.arg.path", "evt.arg.pathname", "evt.arg.filename", "evt.arg.oldpath", "evt.arg.dir", "fd.name", "body.path":
		return false, true
	case "evt.arg.newpath", "evt.arg.linkpath", "body.path2":
		return true, true
	}
	return false, false
}

// question numbers what is asked of names: the same everywhere for the same operator and values. It is −1 where asking
// costs no more than remembering, or where there are no more numbers.
func (c *compiler) question(k *checkExpr, vals []value) int {
	if len(vals) == 1 && k.op != "regex" && k.op != "pmatch" && k.op != "glob" {
		return -1
	}
	key := k.op + "\x00" + k.mod
	for _, v := range vals {
		key += "\x00" + v.s
	}
	n, ok := c.questions[key]
	if !ok {
		if len(c.questions) >= recallBits/2 {
			return -1
		}
		if c.questions == nil {
			c.questions = map[string]int{}
		}
		n = len(c.questions)
		c.questions[key] = n
	}
	return n
}
