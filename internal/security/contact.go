package security

import (
	"fmt"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// The kernel leads connections to the recorder's proxy, which answers before it knows whether the host may be contacted:
// to the kernel such a connection succeeded. What became of it the proxy says at its end.

// maxContacts bounds the connections that are followed at one time.
const maxContacts = 1 << 14

// contacts are the connections of findings.
type contacts struct {
	open  map[uint64][]*bodycam.Finding // by the socket's cookie
	tally map[*bodycam.Finding]*outcome
}

type outcome struct{ made, refused int }

func newContacts() contacts {
	return contacts{open: map[uint64][]*bodycam.Finding{}, tally: map[*bodycam.Finding]*outcome{}}
}

// made takes in that a finding rests on a connection.
func (c *contacts) made(e *bodycam.Event, f *bodycam.Finding) {
	if e.Cookie == 0 || !isContact(e) {
		return
	}
	of, known := c.open[e.Cookie]
	for _, g := range of {
		if g == f {
			return // the same connection's next event
		}
	}
	if !known && len(c.open) >= maxContacts {
		return
	}
	c.open[e.Cookie] = append(of, f)
	t := c.tally[f]
	if t == nil {
		t = &outcome{}
		c.tally[f] = t
	}
	t.made++
}

// refused takes in what the proxy says of a connection's end.
func (c *contacts) refused(e *bodycam.Event) {
	if e.Type != bodycam.TypeFlow || e.Sensor != "names" || e.Cookie == 0 {
		return
	}
	if e.Errno != 0 && strings.Contains(e.Detail, "outcome=refused") {
		for _, f := range c.open[e.Cookie] {
			c.tally[f].refused++
		}
	}
	delete(c.open, e.Cookie)
}

// say puts into words what became of a finding's connections.
func (c *contacts) say(f, out *bodycam.Finding) {
	t := c.tally[f]
	switch {
	case t == nil || t.refused == 0:
	case t.refused == t.made:
		out.Title += ", which the recorder refused"
		out.Detail += " The recorder refused the connection."
		if t.made > 1 {
			out.Detail = strings.Replace(out.Detail, "refused the connection.", fmt.Sprintf("refused all %d connections.", t.made), 1)
		}
	default:
		out.Detail += fmt.Sprintf(" The recorder refused %d of %d connections.", t.refused, t.made)
	}
}

func isContact(e *bodycam.Event) bool {
	switch e.Type {
	case bodycam.TypeConnect, bodycam.TypeSend, bodycam.TypeTLS, bodycam.TypeHTTP:
		return true
	}
	return false
}

// contactTitle leaves out that a connection succeeded, where that only means that it was led to the recorder.
func contactTitle(e *bodycam.Event, title string) string {
	if isContact(e) && e.UnixAddr == "" {
		return strings.TrimSuffix(title, ": SUCCESS")
	}
	return title
}
