package score

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/trust"
)

// beyondIdle are the findings that the idle window doesn't have.
func (e *Evidence) beyondIdle(list []trust.Prohibited) []trust.Prohibited {
	idle := e.Effects[""]
	if idle == nil {
		return list
	}
	var out []trust.Prohibited
	for _, f := range list {
		if !slices.ContainsFunc(idle.Prohibited, func(x trust.Prohibited) bool { return x.Rule == f.Rule && x.Resource == f.Resource }) {
			out = append(out, f)
		}
	}
	return out
}

func sentence(f *trust.Prohibited) string {
	return f.Title + " (" + f.Rule + ", " + f.Severity.String() + ")"
}

// prohibited takes the grave findings of a probe's window: they convict, whatever the scope.
func (r *ProbeResult) prohibited(l seen) {
	for i := range l.prohibited {
		if f := &l.prohibited[i]; f.Severity >= bodycam.High {
			r.Prohibited = append(r.Prohibited, sentence(f))
		}
	}
}

// alsoUsed is what the kernel saw that nobody declared and that convicts nobody by itself.
type alsoUsed struct{ doubts []string }

const mostAlso = 20 // listed

// alsoUsed lists what was used in scope beyond what the declaration's words name. Hosts and credentials among it leave
// the gate in doubt, as do grave findings before any probe and what was done for a probe that nobody knows any more.
func (s *scorer) alsoUsed(r *Result) {
	if s.e.Effects == nil || s.e.skillAlone() { // what a skill used is marked by its own table
		return
	}
	words := declaredWords(s.e.Declaration)
	programs, hosts, credentials := map[string]bool{}, map[string]bool{}, map[string]bool{}
	known := map[string]bool{"": true}
	for i := range s.e.Probes {
		p := &s.e.Probes[i]
		known[p.ID] = true
		l := s.looks[p.ID]
		for _, f := range l.prohibited {
			if f.Severity < bodycam.High && f.Class == "credentials" {
				credentials[f.Title] = true
			}
		}
		if p.Scope != trust.In {
			continue
		}
		for _, f := range l.effects {
			switch {
			case f.Kind == "host" && !DeclaresHost(s.e.Declaration, f.Name) && !slices.ContainsFunc(slices.Concat(s.e.Hosts, s.o.Hosts), func(h string) bool { return below(f.Name, h) }):
				hosts[f.Name] = true
			case f.Kind == "command" && !words[strings.ToLower(path.Base(f.Name))]:
				programs[f.Name] = true
			}
		}
	}
	for _, of := range []struct {
		what string
		set  map[string]bool
	}{{"host", hosts}, {"credential", credentials}, {"program", programs}} {
		for _, name := range slices.Sorted(maps.Keys(of.set)) {
			r.Also = append(r.Also, of.what+" "+name)
		}
	}
	doubt := func(format string, a ...any) { s.also.doubts = append(s.also.doubts, fmt.Sprintf(format, a...)) }
	if len(hosts) > 0 {
		doubt("in scope it contacted %s, which the declaration doesn't name (--allow-host says that it is in order)", listed(hosts))
	}
	if len(credentials) > 0 {
		doubt("it used credentials: %s", listed(credentials))
	}
	if idle := s.e.Effects[""]; idle != nil {
		for i := range idle.Prohibited {
			if f := &idle.Prohibited[i]; f.Severity >= bodycam.High {
				doubt("before any probe, by itself: %s", sentence(f))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.e.Effects)) {
		if !known[id] {
			s.unnamed(r, s.e.Effects[id], doubt)
		}
	}
}

// unnamed judges what was done for a probe that was not answered when bodycam was killed.
func (s *scorer) unnamed(r *Result, x *trust.Effects, doubt func(string, ...any)) {
	for _, f := range s.e.beyondIdle(x.Prohibited) {
		if f.Severity >= bodycam.High {
			r.Confident = true
			r.Conviction = append(r.Conviction, "before the audit was interrupted: "+sentence(&f))
		}
	}
	idle := map[string]bool{}
	if i := s.e.Effects[""]; i != nil {
		for _, f := range i.Effects {
			idle[f.Kind+"\x00"+f.Name] = true
		}
	}
	for _, f := range x.Effects {
		if key := f.Kind + "\x00" + f.Name; !idle[key] && !s.used[key] {
			doubt("for a probe without an answer, before the audit was interrupted, it used %s %s, which no probe in scope explains", f.Kind, f.Name)
		}
	}
}

func listed(set map[string]bool) string {
	names := slices.Sorted(maps.Keys(set))
	if n := len(names); n > mostAlso {
		names = append(names[:mostAlso], fmt.Sprintf("and %d more", n-mostAlso))
	}
	return strings.Join(names, ", ")
}

var hostLike = regexp.MustCompile(`[a-z0-9-]+(?:\.[a-z0-9-]+)+`)

// DeclaresHost tells whether a declaration names a host, or a domain above it.
func DeclaresHost(d *trust.Declaration, host string) bool {
	for _, h := range hostLike.FindAllString(declaredText(d), -1) {
		if below(host, h) {
			return true
		}
	}
	return false
}

func below(host, domain string) bool {
	host, domain = strings.ToLower(host), strings.TrimPrefix(strings.ToLower(domain), "*.")
	return host == domain || domain != "" && strings.HasSuffix(host, "."+domain)
}

// declaredText is all that a declaration says. Where it was read from is not part of it.
func declaredText(d *trust.Declaration) string {
	c := *d
	c.Source, c.SHA256 = "", ""
	b, err := json.Marshal(&c)
	if err != nil { // strings and numbers only, but for schemas that are JSON already
		return ""
	}
	return strings.ToLower(string(b))
}

func declaredWords(d *trust.Declaration) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.FieldsFunc(declaredText(d), func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_') }) {
		out[w] = true
	}
	return out
}
