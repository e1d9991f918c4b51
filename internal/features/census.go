package features

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// A process's environment and memory lie in /proc. To read its own gives a process nothing that it hasn't got, and
// programs that list processes read the entries of all, to print of them what tells no secret.
var (
	ownEntry     = regexp.MustCompile(`^/proc/(self|thread-self)/(task/[0-9]+/)?(environ|mem)$`)
	processEntry = regexp.MustCompile(`^/proc/[0-9]+/(task/[0-9]+/)?(environ|mem)$`)
	listers      = []string{"ps", "top", "htop", "pgrep", "pidof", "pkill", "lsof", "fuser"}
)

// PlainPS is a regular expression for all arguments of a ps that isn't made to print environments, which the letter e without
// a dash does, or the word environ in a format. What an option takes is skipped; what isn't understood doesn't match.
const PlainPS = `((--[a-z-]+=[^ ]*|--(sort|format|user|User|group|Group|pid|ppid|tty|sid|cols|columns|width|rows|lines|quick-pid) [^ ]+|--(forest|headers?|no-headers?|no-heading|cumulative|deselect)|-[^-oOuUCpgGtsqD ][^oOuUCpgGtsqD ]*|-([^-oOuUCpgGtsqD ][^oOuUCpgGtsqD ]*)?[oOuUCpgGtsqD] ?[^ ]+|[^-eoOpqtUkN0-9 ][^eoOpqtUkN ]*|([^-eoOpqtUkN0-9 ][^eoOpqtUkN ]*)?[oOpqtUkN] ?[^ ]+|[0-9][0-9,]*)( |$))*`

var plainPS = regexp.MustCompile("^" + PlainPS + "$")

// census tells whether an event is such a reading of a process's entry.
func (x *Extractor) census(e *bodycam.Event) bool {
	if e.Type != bodycam.TypeOpen || e.Access.Writes() || !processEntry.MatchString(e.Path) {
		return false
	}
	if ownEntry.MatchString(e.PathGiven) {
		return true
	}
	if !slices.Contains(listers, path.Base(e.Exe)) || !under(e.Exe, []string{"/usr", "/bin", "/sbin"}) {
		return false
	}
	if r := x.f.index[bodycam.Resource{Kind: bodycam.File, Name: e.Exe}]; r != nil && r.Changed() > 0 {
		return false // the run put it there
	}
	if path.Base(e.Exe) != "ps" || len(e.Argv) == 0 {
		return true
	}
	args := strings.Join(e.Argv[1:], " ")
	return plainPS.MatchString(args) && !strings.Contains(args, "environ")
}

// secret tells whether the resource holds credentials and was touched otherwise than by a census of processes.
func (r *Resource) secret() bool {
	return secret(r.Name) && (r.Census == 0 || r.Total()+r.Tried() > r.Census)
}
