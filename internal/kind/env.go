package kind

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// envPart is a piece of an environment value: text, or a variable.
type envPart struct {
	text string // of text, or the default
	name string // of the variable; empty: text
	def  bool   // there is a default
}

// envRefs takes a value apart. Only ${VAR} and ${VAR:-default} are special; a dollar sign elsewhere is itself, and
// $${ stands for ${.
func envRefs(s string) ([]envPart, error) {
	var parts []envPart
	add := func(t string) {
		if t != "" {
			parts = append(parts, envPart{text: t})
		}
	}
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			add(s)
			return parts, nil
		}
		if i > 0 && s[i-1] == '$' {
			add(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		add(s[:i])
		inner, rest, ok := strings.Cut(s[i+2:], "}")
		if !ok {
			return nil, fmt.Errorf("%s: ${ without }", quote(s))
		}
		name, def, hasDef := strings.Cut(inner, ":-")
		if !envName(name) {
			return nil, fmt.Errorf("${%s}: want ${VAR} or ${VAR:-default}; $${ stands for ${ itself", inner)
		}
		parts = append(parts, envPart{text: def, name: name, def: hasDef})
		s = rest
	}
}

// expandEnv turns a map from a file into variables sorted by name.
func expandEnv(m map[string]string, lookup func(string) (string, bool)) ([]EnvVar, error) {
	var out []EnvVar
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(m)) {
		v, err := expandValue(name, m[name], lookup)
		if err != nil {
			errs = append(errs, err)
		}
		out = append(out, v)
	}
	return out, errors.Join(errs...)
}

func expandValue(name, value string, lookup func(string) (string, bool)) (EnvVar, error) {
	parts, err := envRefs(value)
	if err != nil {
		return EnvVar{}, fmt.Errorf("environment variable %s: %w", name, err)
	}
	v := EnvVar{Name: name}
	var from []string
	for _, p := range parts {
		if p.name == "" {
			v.Value += p.text
			continue
		}
		got, ok := "", false
		if lookup != nil {
			got, ok = lookup(p.name)
		}
		switch {
		case ok && (got != "" || !p.def):
			v.Value += got
			from = append(from, p.name)
		case p.def:
			v.Value += p.text
		default:
			err = errors.Join(err, fmt.Errorf("environment variable %s: ${%s} is not set: export it, or write ${%s:-default}", name, p.name, p.name))
		}
	}
	v.From = strings.Join(from, ",")
	return v, err
}

// overlayEnv lays variables over others and keeps the order by name.
func overlayEnv(base []EnvVar, over ...EnvVar) []EnvVar {
	m := make(map[string]EnvVar, len(base)+len(over))
	for _, v := range base {
		m[v.Name] = v
	}
	for _, v := range over {
		m[v.Name] = v
	}
	out := make([]EnvVar, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[name])
	}
	return out
}

// homeOf is the home directory of a user in the box, where no variable says otherwise: the accounts that the box
// itself makes have these. An account that the base or a setup step makes elsewhere needs HOME in an env map.
func homeOf(user string) string {
	name, _, _ := strings.Cut(user, ":")
	switch {
	case name == "" || name == "root" || name == "0":
		return "/root"
	case strings.Trim(name, "0123456789") == "":
		return "/home/user" + name
	}
	return "/home/" + name
}

// withHome adds HOME where the variables don't have it.
func withHome(env []EnvVar, user string) []EnvVar {
	for _, v := range env {
		if v.Name == "HOME" {
			return env
		}
	}
	return overlayEnv(env, EnvVar{Name: "HOME", Value: homeOf(user)})
}

// cause strips the path from a file system error: the message already names it.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
