package declare

import (
	"net/netip"
	"regexp"
	"strings"
)

// SkillScope is what a SKILL.md names: what an agent that uses the skill may be expected to touch. The whole file counts, as
// agents and people read it whole; the skill's scripts don't: they are what is held to it.
type SkillScope struct {
	text  string
	hosts map[string]bool
	paths []string
}

var (
	hostNames = regexp.MustCompile(`(?i)\b(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,24}\b|\b\d{1,3}(?:\.\d{1,3}){3}\b`)
	pathNames = regexp.MustCompile(`(?:^|[\s"'` + "`" + `(=])((?:~|\$HOME|\$\{HOME\})?/[\w.@+-]+(?:/[\w.@+-]+)*)`)
)

// ScopeOf reads what a SKILL.md names. home is the agent's home directory.
func ScopeOf(raw []byte, home string) *SkillScope {
	s := &SkillScope{text: string(raw), hosts: map[string]bool{}}
	for _, h := range hostNames.FindAllString(s.text, -1) {
		s.hosts[strings.ToLower(h)] = true
	}
	for _, m := range pathNames.FindAllStringSubmatch(s.text, -1) {
		p := m[1]
		for _, h := range []string{"~", "$HOME", "${HOME}"} {
			if rest, ok := strings.CutPrefix(p, h); ok {
				p = home + rest
			}
		}
		if strings.Count(p, "/") > 1 { // "/" and "/etc" alone would allow everything below
			s.paths = append(s.paths, p)
		}
	}
	return s
}

// Host tells whether a host is named, or is below one that is.
func (s *SkillScope) Host(name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if a, err := netip.ParseAddr(name); err == nil {
		return s.hosts[a.String()]
	}
	for {
		if s.hosts[name] {
			return true
		}
		_, rest, ok := strings.Cut(name, ".")
		if !ok || !strings.Contains(rest, ".") {
			return false
		}
		name = rest
	}
}

// Path tells whether a path is named, or lies below one that is.
func (s *SkillScope) Path(p string) bool {
	for _, q := range s.paths {
		if p == q || strings.HasPrefix(p, strings.TrimSuffix(q, "/")+"/") {
			return true
		}
	}
	return false
}
