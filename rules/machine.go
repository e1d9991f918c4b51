package rules

import (
	"net/netip"
	"strconv"
	"strings"
	"unsafe"

	"github.com/bodycam-dev/bodycam"
)

// machine is what the compiled conditions work on: one event, and what was worked out about it so far. Its buffers
// are used again for the next event, so that judging an event allocates nothing.
type machine struct {
	ev   *bodycam.Event
	ctx  Context
	call int16
	gen  uint32 // of the event: memo entries of another generation are old

	proc     *Process
	lastID   bodycam.Proc
	lastProc *Process
	none     Process // stands for a process that isn't known

	arena []byte
	path  names // Path and PathGiven
	path2 names
	conn  string // both ends, once made
	file  *File
	row   *bodycam.Row
	why   Explanation
	have  have
	memo  []uint32
	parts []string // of a text that is being joined

	table    *Table    // of the context, where it is made of one
	standing *standing // of proc; nil: nothing can be kept of it

	up    *Process // ancestor number upAt of proc: lists of ancestors are asked for in order
	upAt  int
	steps []step // of the sequence that is being printed
}

type have uint8

const (
	haveConn have = 1 << iota
	haveFile
	haveRow
	haveWhy
)

// names is every name of a file: canonical first.
type names struct {
	ok   bool
	list []string
}

func (m *machine) reset(e *bodycam.Event) {
	m.ev = e
	m.call = linux().call(e)
	m.gen++
	if m.gen == 1<<31 { // the memo keeps an answer in the lowest bit
		clear(m.memo)
		m.gen = 1
	}
	m.arena = m.arena[:0]
	m.path.ok, m.path2.ok = false, false
	m.have = 0
	m.up = nil
	if e.Proc != m.lastID || m.lastProc == nil {
		m.lastID, m.lastProc = e.Proc, m.ctx.Process(e.Proc)
	}
	m.proc = m.lastProc
	if m.proc == nil {
		m.none = Process{}
		m.proc = &m.none
	}
	m.standing = nil
	if t := m.table; t != nil && m.proc == t.last {
		if m.standing = &m.proc.standing; m.standing.at != t.changes || m.standing.of != m {
			*m.standing = standing{of: m, at: t.changes}
		}
	}
}

// keep turns what was appended to the arena since start into a string. It is valid until the next event.
func (m *machine) keep(start int) string {
	b := m.arena[start:]
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(&b[0], len(b))
}

// absolute is a path as given, made absolute and clean.
func (m *machine) absolute(given string) string {
	if given == "" || given[0] == '/' && isClean(given) {
		return given
	}
	start := len(m.arena)
	if given[0] != '/' {
		cwd := m.ev.CWD
		if cwd == "" {
			cwd = m.proc.CWD
		}
		if cwd == "" || cwd[0] != '/' {
			return given
		}
		m.arena = append(m.arena, cwd...)
		m.arena = append(m.arena, '/')
	}
	m.arena = append(m.arena, given...)
	m.arena = m.arena[:start+clean(m.arena[start:])]
	return m.keep(start)
}

// isClean tells whether clean leaves an absolute path as it is.
func isClean(p string) bool {
	for i := 0; ; {
		part := p[i+1:]
		next := strings.IndexByte(part, '/')
		if next >= 0 {
			part = part[:next]
		}
		if part == "" || part == "." || part == ".." {
			return len(p) == 1
		}
		if next < 0 {
			return true
		}
		i += 1 + next
	}
}

// clean removes ".", ".." and doubled slashes from an absolute path in place and returns the new length.
func clean(b []byte) int {
	w := 0
	for r := 0; r < len(b); {
		for r < len(b) && b[r] == '/' {
			r++
		}
		end := r
		for end < len(b) && b[end] != '/' {
			end++
		}
		part := b[r:end]
		switch {
		case len(part) == 0 || string(part) == ".":
		case string(part) == "..":
			for w > 0 && b[w-1] != '/' {
				w--
			}
			if w > 0 {
				w--
			}
		default:
			b[w] = '/'
			w++
			w += copy(b[w:], part)
		}
		r = end
	}
	if w == 0 {
		b[0] = '/'
		w = 1
	}
	return w
}

// object gives every name of the event's file: the canonical path (or, where the kernel's object was not seen, the
// path as given), the path as given, other links to the same file, and names behind bind mounts.
func (m *machine) object() []string {
	if m.path.ok {
		return m.path.list
	}
	m.path.ok = true
	e := m.ev
	l := m.path.list[:0]
	given := m.absolute(e.PathGiven)
	if e.Path != "" {
		l = append(l, e.Path)
		if given != "" && given != e.Path {
			l = append(l, given)
		}
	} else if given != "" {
		l = append(l, given)
	}
	if len(l) > 0 {
		if f := m.fileInfo(); f != nil {
			for _, n := range f.Names {
				if !contains(l, n) {
					l = append(l, n)
				}
			}
		}
		l = m.ctx.Aliases(l, l[0])
	}
	m.path.list = l
	return l
}

func (m *machine) object2() []string {
	if m.path2.ok {
		return m.path2.list
	}
	m.path2.ok = true
	e := m.ev
	l := m.path2.list[:0]
	given := m.absolute(e.Path2Given)
	if e.Path2 != "" {
		l = append(l, e.Path2)
		if given != "" && given != e.Path2 {
			l = append(l, given)
		}
	} else if given != "" {
		l = append(l, given)
	}
	if len(l) > 0 {
		l = m.ctx.Aliases(l, l[0])
	}
	m.path2.list = l
	return l
}

func (m *machine) fileInfo() *File {
	if m.have&haveFile == 0 {
		m.have |= haveFile
		m.file = nil
		if m.ev.Ino != 0 {
			m.file = m.ctx.File(m.ev.Dev, m.ev.Ino)
		}
	}
	return m.file
}

func (m *machine) transcriptRow() *bodycam.Row {
	if m.have&haveRow == 0 {
		m.have |= haveRow
		m.row = m.ctx.Row(m.ev)
	}
	return m.row
}

func (m *machine) explanation() Explanation {
	if m.have&haveWhy == 0 {
		m.have |= haveWhy
		m.why = m.ctx.Explain(m.ev)
	}
	return m.why
}

// client and server put a connection's ends in order. The side that a flow was opened from isn't recorded: the
// remote is taken for the server.
func (m *machine) client() netip.AddrPort {
	if m.isServer() {
		return m.ev.Remote
	}
	return m.ev.Local
}

func (m *machine) server() netip.AddrPort {
	if m.isServer() {
		return m.ev.Local
	}
	return m.ev.Remote
}

func (m *machine) isServer() bool {
	switch m.ev.Type {
	case bodycam.TypeAccept, bodycam.TypeBind, bodycam.TypeListen:
		return true
	}
	return false
}

// ends is "client->server", or what there is of it.
func (m *machine) ends() string {
	if m.have&haveConn != 0 {
		return m.conn
	}
	m.have |= haveConn
	if m.ev.UnixAddr != "" {
		m.conn = m.ev.UnixAddr
		return m.conn
	}
	start := len(m.arena)
	c, s := m.client(), m.server()
	if c.IsValid() {
		m.arena = c.AppendTo(m.arena)
	}
	if s.IsValid() {
		if c.IsValid() {
			m.arena = append(m.arena, "->"...)
		}
		m.arena = s.AppendTo(m.arena)
	}
	m.conn = m.keep(start)
	return m.conn
}

// hostName is the remote's name in lower case without a final dot, or its address.
func (m *machine) hostName() string {
	h := strings.TrimSuffix(m.ev.Host, ".")
	if h == "" {
		if !m.ev.Remote.IsValid() {
			return ""
		}
		start := len(m.arena)
		m.arena = m.ev.Remote.Addr().Unmap().AppendTo(m.arena)
		return m.keep(start)
	}
	return m.lower(h)
}

func (m *machine) lower(s string) string {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'Z' {
			start := len(m.arena)
			for j := range len(s) {
				m.arena = append(m.arena, lowerByte(s[j]))
			}
			return m.keep(start)
		}
	}
	return s
}

func lowerByte(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func upperByte(c byte) byte {
	if c >= 'a' && c <= 'z' {
		return c - 'a' + 'A'
	}
	return c
}

// flagNames joins the names of the bits that are set.
func (m *machine) flagNames(table string, bits uint64, zero string) string {
	start := len(m.arena)
	for _, b := range linux().names[table] {
		if bits&b.bits != b.bits || b.bits == 0 {
			continue
		}
		if table == "open" && b.bits == 1 && bits&3 != 1 {
			continue
		}
		if len(m.arena) > start {
			m.arena = append(m.arena, '|')
		}
		m.arena = append(m.arena, b.name...)
	}
	if zero != "" && bits&3 == 0 {
		if len(m.arena) > start {
			m.arena = append(m.arena, '|')
		}
		m.arena = append(m.arena, zero...)
	}
	return m.keep(start)
}

func (m *machine) itoa(n int64) string {
	start := len(m.arena)
	m.arena = strconv.AppendInt(m.arena, n, 10)
	return m.keep(start)
}

// maxAncestors bounds how far up "any ancestor" looks, so that a chain of forks can't make every event slow.
const maxAncestors = 1024

// ancestor is m.proc.Ancestor(n), quick when n grows by one from call to call.
func (m *machine) ancestor(n int) *Process {
	if n > maxAncestors {
		return nil
	}
	if m.up == nil || n < m.upAt {
		m.up, m.upAt = m.proc, 0
	}
	for m.upAt < n {
		if m.up.Parent == nil {
			return nil
		}
		m.up = m.up.Parent
		m.upAt++
	}
	return m.up
}
