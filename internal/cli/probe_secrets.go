package cli

import (
	"crypto/rand"
	"encoding/hex"
	"net/url"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/session"
	"github.com/bodycam-dev/bodycam/internal/trust/deliver"
)

// insideSecrets are the credentials that an agent in the sandbox has: those that it only seems to have, and those that are
// handed to it.
type insideSecrets struct {
	env    map[string]string // NAME to the placeholder or the value
	swaps  []session.Secret
	values []string // all values, for leaving them out of what is kept
}

// redact removes values that were handed in.
func (s *insideSecrets) redact(text string) string {
	for _, v := range s.values {
		text = strings.ReplaceAll(text, v, "[secret]")
	}
	return text
}

// readSecrets reads --secret, and those of --env that say env: or file:. The others of --env stay.
func (f *serviceFlags) readSecrets() (*insideSecrets, error) {
	out := &insideSecrets{env: map[string]string{}}
	for _, text := range f.secrets {
		name, s, err := parseSecret(text)
		if err != nil {
			return nil, err
		}
		if out.env[name] != "" {
			return nil, usage("--secret %s: given twice", name)
		}
		out.env[name], out.swaps, out.values = s.Placeholder, append(out.swaps, s), append(out.values, s.Value)
	}
	var rest []string
	for _, e := range f.run.env {
		name, from, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(from, "env:") && !strings.HasPrefix(from, "file:") {
			rest = append(rest, e)
			continue
		}
		v, err := deliver.Secret(from).Value()
		if err != nil {
			return nil, usage("--env %s: %w", name, err)
		}
		if out.env[name] != "" {
			return nil, usage("--env %s: --secret has that name", name)
		}
		out.env[name], out.values = v, append(out.values, v)
	}
	f.run.env = rest
	for name, v := range out.env {
		f.run.env = append(f.run.env, name+"="+v)
	}
	return out, nil
}

// parseSecret reads NAME=env:VAR@HOST or NAME=file:PATH@HOST=URL.
func parseSecret(text string) (name string, s session.Secret, err error) {
	name, rest, ok := strings.Cut(text, "=")
	i := strings.LastIndex(rest, "@")
	if !ok || name == "" || i < 0 {
		return "", s, withHint(usage("--secret %s: want NAME=env:VARIABLE@HOST or NAME=file:PATH@HOST", strings.SplitN(text, "=", 2)[0]), "HOST is the only one that gets it: api.example.com, or api.example.com=http://127.0.0.1:9000")
	}
	host, target, _ := strings.Cut(rest[i+1:], "=")
	if target == "" {
		target = "https://" + host
	}
	u, err := url.Parse(target)
	if host == "" || strings.ContainsAny(host, ":/*") || err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", s, usage("--secret %s: want a host's name after @, and after = an http or https URL", name)
	}
	v, err := deliver.Secret(rest[:i]).Value()
	if err != nil {
		return "", s, usage("--secret %s: %w", name, err)
	}
	var b [12]byte
	_, _ = rand.Read(b[:]) // it never fails
	return name, session.Secret{Host: host, Ports: []uint16{80, 443}, Target: target, Value: v, Placeholder: "bodycam-" + hex.EncodeToString(b[:])}, nil
}
