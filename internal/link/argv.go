package link

import (
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// group is the rows that claim one command.
type group struct {
	text       string
	forms      []string // the text as it stands inside another script: bare, or quoted in one of the usual ways
	rows       []int
	candidates []*candidate // in the order of time, none below another
	nested     []*candidate // below a candidate of some group
	matches    []match
}

// candidate is a process that may be a row's.
type candidate struct {
	proc     *proc
	group    *group
	boot     uint64
	strength float64
	how      string
	above    *candidate // of the nearest ancestor that is one
	taken    bool
}

type match struct {
	row        int
	proc       *proc
	confidence float64
	why        string
}

// Confidence of a match by what of the argv fits.
const (
	exactScript  = 1.0  // the shell's script is the command
	exactArgv    = 0.95 // the argv is the command, without a shell
	evalScript   = 0.98 // the shell's script evaluates the command, quoted as one word
	heldLines    = 0.95 // the command stands on lines of its own in the shell's script
	heldScript   = 0.9  // the shell's script holds the command
	heldShort    = 0.7  // the same, for a command so short that it may be there by chance
	shortCommand = 6    // bytes

	factorRepeated = 0.97 // the text is claimed several times, and the times tell which is which
	factorOrder    = 0.85 // the text is claimed several times, and only the order tells
	factorSpare    = 0.9  // more processes than rows have the text
	factorLate     = 0.6  // the process started outside the row's window
	factorNested   = 0.6  // the process runs below that of another row

	// tooFar is the distance beyond which a timed row takes no process: a minute outside its window.
	tooFar = 600e9
)

// command is a row's command as it is compared: without the shell around it, without blanks around it.
func command(s string) string {
	s = strings.TrimSpace(s)
	for range 3 {
		inner := strings.TrimSpace(bodycam.Unwrap(s))
		if inner == s {
			break
		}
		s = inner
	}
	return s
}

func scriptKey(s string) string { return "s" + s }

func argvKey(argv []string) string { return "a" + strings.Join(argv, "\x00") }

func (j *Joiner) groupRows() {
	j.byKey = map[string]*group{}
	for i := range j.rows {
		r := &j.rows[i]
		if r.Kind != bodycam.RowTool || strings.TrimSpace(r.Command) == "" {
			continue
		}
		text := command(r.Command)
		g := j.byKey[scriptKey(text)]
		if g == nil {
			g = &group{text: text, forms: quotedForms(text)}
			j.groups = append(j.groups, g)
			j.byKey[scriptKey(text)] = g
			if words, ok := bodycam.SplitShell(text); ok && len(words) > 0 {
				if key := argvKey(words); j.byKey[key] == nil {
					j.byKey[key] = g
				}
			}
		}
		g.rows = append(g.rows, i)
		// A row may also be matched by the command as it was given, with its shell.
		if raw := scriptKey(strings.TrimSpace(r.Command)); j.byKey[raw] == nil {
			j.byKey[raw] = g
		}
	}
	// Longest first: of two commands that a script holds, the longer one is meant.
	slices.SortStableFunc(j.groups, func(a, b *group) int { return len(b.text) - len(a.text) })
}

// quotedForms are the ways in which a wrapper's script may hold a command.
func quotedForms(s string) []string {
	forms := []string{s}
	for _, f := range []string{
		strings.ReplaceAll(s, "'", `'\''`),
		strings.ReplaceAll(s, "'", `'"'"'`),
		strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(s),
	} {
		if !slices.Contains(forms, f) {
			forms = append(forms, f)
		}
	}
	return forms
}

// candidates walks down from the roots.
func (j *Joiner) candidates() {
	budget := heldBudget
	for _, p := range j.tree.preorder {
		if !p.inScope {
			continue
		}
		if p.up != nil && !p.root {
			if p.above = p.up.candidate; p.above == nil {
				p.above = p.up.above
			}
		}
		c := j.candidate(p, p.above == nil && !p.root, &budget)
		if c == nil {
			continue
		}
		p.candidate, c.above = c, p.above
		switch {
		case p.above == nil:
			c.group.candidates = append(c.group.candidates, c)
		case !c.sameAbove():
			c.group.nested = append(c.group.nested, c)
		}
	}
	for _, g := range j.groups {
		slices.SortStableFunc(g.candidates, func(a, b *candidate) int { return compare(a.boot, b.boot) })
		slices.SortStableFunc(g.nested, func(a, b *candidate) int { return compare(a.boot, b.boot) })
	}
}

// sameAbove tells whether a candidate further up has the same command: "make" that runs "make" is one call. It looks
// a bounded way up.
func (c *candidate) sameAbove() bool {
	for a, n := c.above, 0; a != nil && n < 64; a, n = a.above, n+1 {
		if a.group == c.group {
			return true
		}
	}
	return false
}

// candidate finds the group whose command a process ran. holds allows scripts that only hold the command.
func (j *Joiner) candidate(p *proc, holds bool, budget *int) *candidate {
	var best *candidate
	better := func(c candidate) {
		if best == nil || c.strength > best.strength {
			best = &c
		}
	}
	for i := range p.execs {
		x := &p.execs[i]
		if x.shell && x.cut {
			if c, ok := j.cutScript(p, x); ok {
				better(c)
			}
		} else if x.shell {
			s := strings.TrimSpace(x.script)
			for _, key := range []string{s, command(s)} {
				if g := j.byKey[scriptKey(key)]; g != nil {
					better(candidate{proc: p, group: g, boot: x.boot, strength: exactScript, how: "the shell's script is the command"})
				}
			}
		}
		if len(x.argv) > 0 {
			for _, name := range []string{x.argv[0], path.Base(x.argv[0])} {
				if g := j.byKey[argvKey(append([]string{name}, x.argv[1:]...))]; g != nil {
					better(candidate{proc: p, group: g, boot: x.boot, strength: exactArgv, how: "the argv is the command"})
				}
			}
		}
	}
	if best != nil || !holds {
		return best
	}
	for i := range p.execs {
		x := &p.execs[i]
		if !x.shell {
			continue
		}
		for _, inner := range evaluated(x.script) {
			if g := j.byKey[scriptKey(command(inner))]; g != nil {
				better(candidate{proc: p, group: g, boot: x.boot, strength: evalScript, how: "the shell's script evaluates the command"})
			}
		}
		if best != nil {
			continue
		}
		if g := j.held(x.script, budget); g != nil {
			c := candidate{proc: p, group: g, boot: x.boot, strength: heldScript, how: "the shell's script holds the command"}
			switch {
			case onLines(x.script, g.text):
				c.strength, c.how = heldLines, "the command stands on lines of its own in the shell's script"
			case len(g.text) < shortCommand:
				c.strength = heldShort
			}
			better(c)
		}
	}
	return best
}

// cutScript finds the group whose command begins with what was kept of a long argv. The digest of the whole argv
// tells whether it is that command and no other.
func (j *Joiner) cutScript(p *proc, x *execution) (candidate, bool) {
	last := len(x.argv) - 1
	if last < 0 || x.argv[last] != x.script || len(x.script) < 64 {
		return candidate{}, false
	}
	for _, g := range j.groups { // longest first
		if len(g.text) < len(x.script) {
			break
		}
		if !strings.HasPrefix(g.text, strings.TrimLeft(x.script, " \t\n")) {
			continue
		}
		c := candidate{proc: p, group: g, boot: x.boot, strength: heldScript, how: "the shell's script, of which the beginning was kept, is the beginning of the command"}
		whole := strings.Join(append(slices.Clone(x.argv[:last]), g.text), "\x00") + "\x00"
		if x.size == uint64(len(whole)) && sha256.Sum256([]byte(whole)) == x.hash {
			c.strength, c.how = exactScript, "the digest of the whole argv shows that the shell's script is the command"
		}
		return c, true
	}
	return candidate{}, false
}

// evaluated returns what a wrapper's script hands, as one word, to eval or to another shell.
func evaluated(script string) []string {
	if !strings.Contains(script, "eval") && !strings.Contains(script, "-c") && !strings.Contains(script, "-lc") {
		return nil
	}
	words, ok := bodycam.SplitShell(script)
	if !ok {
		return nil
	}
	var out []string
	for i := range words {
		if words[i] == "eval" && i+1 < len(words) {
			out = append(out, words[i+1])
		} else if bodycam.IsShell(words[i]) && len(out) < 100 {
			if inner, ok := bodycam.ShellScript(words[i:min(len(words), i+8)]); ok {
				out = append(out, inner)
			}
		}
	}
	return out
}

// onLines tells whether text is one or more whole lines of script.
func onLines(script, text string) bool {
	return strings.Contains("\n"+script+"\n", "\n"+text+"\n")
}

// heldBudget bounds how many bytes of scripts are searched for commands. A harness that starts shells by the hundred
// thousand, each to be searched for every row's command, has less of them recognised.
const heldBudget = 1 << 30

// held returns the group with the longest command that stands in a script.
func (j *Joiner) held(script string, budget *int) *group {
	for _, g := range j.groups { // longest first
		if *budget -= len(script); *budget < 0 {
			return nil
		}
		if len(g.text) > len(script) {
			continue
		}
		for _, f := range g.forms {
			if standsIn(script, f) {
				return g
			}
		}
	}
	return nil
}

// standsIn tells whether text is a part of script that doesn't begin or end within a word.
func standsIn(script, text string) bool {
	if text == "" {
		return false
	}
	for from := 0; ; {
		i := strings.Index(script[from:], text)
		if i < 0 {
			return false
		}
		i += from
		end := i + len(text)
		if (i == 0 || !inWord(script[i-1]) || !inWord(text[0])) && (end == len(script) || !inWord(script[end]) || !inWord(text[len(text)-1])) {
			return true
		}
		from = i + 1
	}
}

func inWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '/' || c == '.' || c >= 0x80
}

// prune drops scripts that only hold the command where enough processes are the command.
func (g *group) prune() {
	exact := 0
	for _, c := range g.candidates {
		if c.strength >= exactArgv {
			exact++
		}
	}
	if exact >= len(g.rows) {
		g.candidates = slices.DeleteFunc(g.candidates, func(c *candidate) bool { return c.strength < exactArgv })
	}
}

// match matches the group's rows with its candidates, in order.
func (g *group) match(windows []window) {
	g.prune()
	for _, pair := range align(g.rows, g.candidates, windows) {
		row, c := pair.row, pair.c
		c.taken = true
		confidence, why := c.strength, c.how
		w := windows[row]
		switch {
		case w.timed && !w.holds(c.boot):
			confidence *= factorLate
			why += "; the process started outside the row's time"
		case len(g.rows) > 1 && w.timed:
			confidence *= factorRepeated
			why += fmt.Sprintf("; claimed %d times, told apart by order and time", len(g.rows))
		case len(g.rows) > 1:
			confidence *= factorOrder
			why += fmt.Sprintf("; claimed %d times, told apart by order", len(g.rows))
		}
		if len(g.candidates) > len(g.rows) {
			confidence *= factorSpare
			why += fmt.Sprintf("; %d processes have it, %d rows claim it", len(g.candidates), len(g.rows))
		}
		g.matches = append(g.matches, match{row: row, proc: c.proc, confidence: confidence, why: why})
	}
}

// matchNested gives rows that are still without a process one that runs below another row's.
func (g *group) matchNested(windows []window) {
	if len(g.nested) == 0 || len(g.matches) == len(g.rows) {
		return
	}
	matched := g.matched()
	var left []int
	for _, r := range g.rows {
		if !matched[r] && windows[r].timed {
			left = append(left, r)
		}
	}
	var free []*candidate
	for _, c := range g.nested {
		if !c.taken {
			free = append(free, c)
		}
	}
	for _, pair := range align(left, free, windows) {
		if !windows[pair.row].holds(pair.c.boot) {
			continue
		}
		pair.c.taken = true
		g.matches = append(g.matches, match{row: pair.row, proc: pair.c.proc, confidence: pair.c.strength * factorNested,
			why: pair.c.how + "; it runs below the process of another row"})
	}
}

// matched is the set of rows that have a process.
func (g *group) matched() map[int]bool {
	out := make(map[int]bool, len(g.matches))
	for _, m := range g.matches {
		out[m.row] = true
	}
	return out
}

type pair struct {
	row int
	c   *candidate
}

// align matches rows and candidates, both in order, so that as many as possible are matched and the sum of the
// distances in time is least. Timed rows don't take a process that is too far away.
func align(rows []int, cs []*candidate, windows []window) []pair {
	n, m := len(rows), len(cs)
	if n == 0 || m == 0 {
		return nil
	}
	if n*m > 4_000_000 { // equal commands by the thousand: in order, each with the next process in its window
		return alignGreedy(rows, cs, windows)
	}
	// cost[i][k]: least cost of the first i rows with the first k candidates.
	cost := make([]float64, (n+1)*(m+1))
	at := func(i, k int) *float64 { return &cost[i*(m+1)+k] }
	for i := 1; i <= n; i++ {
		*at(i, 0) = float64(i) * tooFar
		for k := 1; k <= m; k++ {
			best := min(*at(i-1, k)+tooFar, *at(i, k-1))
			*at(i, k) = min(best, *at(i-1, k-1)+distance(windows[rows[i-1]], cs[k-1].boot))
		}
	}
	var out []pair
	for i, k := n, m; i > 0 && k > 0; {
		c := *at(i, k)
		switch {
		case c == *at(i-1, k-1)+distance(windows[rows[i-1]], cs[k-1].boot) && distance(windows[rows[i-1]], cs[k-1].boot) < tooFar:
			i, k = i-1, k-1
			out = append(out, pair{rows[i], cs[k]})
		case c == *at(i, k-1):
			k--
		default:
			i--
		}
	}
	slices.Reverse(out)
	return out
}

func alignGreedy(rows []int, cs []*candidate, windows []window) []pair {
	var out []pair
	k := 0
	for _, r := range rows {
		for k < len(cs) && windows[r].timed && cs[k].boot < windows[r].from {
			k++
		}
		if k == len(cs) {
			break
		}
		if w := windows[r]; w.timed && !w.holds(cs[k].boot) {
			continue
		}
		out = append(out, pair{r, cs[k]})
		k++
	}
	return out
}

// distance is how far a process's start lies from its row, in nanoseconds. Outside the window it counts ten times.
func distance(w window, boot uint64) float64 {
	if !w.timed {
		return 0
	}
	d := float64(boot) - float64(w.arrived)
	if d < 0 {
		d = -d
	}
	switch {
	case boot < w.from:
		return 10 * float64(w.from-boot)
	case boot > w.to:
		return 10 * float64(boot-w.to)
	case w.ended != ^uint64(0) && boot >= w.arrived && boot <= w.ended:
		return d * 1e-6 // between the two lines: as good as can be
	}
	return d * 1e-3
}
