package kind

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"strconv"
	"strings"
)

// check applies a field's check tag to a value that has the right type.
func (d *decoder) check(n *node, f field) {
	var err error
	switch f.check {
	case "":
		return
	case "name":
		err = checkName(n.text)
	case "abs":
		err = checkBoxPath(n.text)
	case "glob":
		err = checkGlob(n.text)
	case "hostname":
		err = checkHostname(n.text)
	case "host":
		err = checkHost(n.text)
	case "hostport":
		err = checkHostPort(n.text)
	case "port":
		if p, _ := n.integer(); p < 1 || p > 65535 {
			err = fmt.Errorf("port %s is out of range: want 1 to 65535", n.text)
		}
	case "count":
		if i, _ := n.integer(); i < 0 {
			err = fmt.Errorf("%s is negative: want a whole number, or 0 for the default", n.text)
		}
	case "cpus":
		if x, _ := n.float(); x != 0 && (x < minCPUs || x > maxCPUs) {
			err = fmt.Errorf("%s processors are out of range: want %v to %d, or 0 for no limit", n.text, minCPUs, maxCPUs)
		}
	case "user":
		err = checkUser(n.text)
	case "mode":
		_, err = parseMode(n.text)
	case "env":
		_, err = envRefs(n.text)
	case "exists", "file":
		err = checkExists(n, f.check == "file")
	default:
		panic("kind: unknown check " + f.check) // a fault in this package, found by its tests
	}
	if err != nil {
		d.fail(n, "%s: %v", strings.Join(d.path, "."), err)
	}
}

// The share of processors that a limit may name: what the sandbox can set at least, and more than machines have.
const (
	minCPUs = 0.01
	maxCPUs = 1 << 16
)

func checkName(s string) error {
	ok := s != "" && len(s) <= 64 && s[0] != '.' && s[0] != '-'
	for _, r := range s {
		ok = ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	}
	if !ok {
		return fmt.Errorf("%s is not a name: want at most 64 letters, digits, dots, dashes and underscores", quote(s))
	}
	return nil
}

// checkBoxPath wants an absolute path that doesn't climb. "/." at its end is fine.
func checkBoxPath(s string) error {
	if strings.ContainsAny(s, "\x00") || !strings.HasPrefix(s, "/") {
		return fmt.Errorf("%s is not an absolute path in the box", quote(s))
	}
	for _, part := range strings.Split(s, "/") {
		if part == ".." {
			return fmt.Errorf("%s climbs with ..: write the path that is meant", quote(s))
		}
	}
	return nil
}

// checkGlob wants a pattern for absolute paths; it may begin with ${workdir} or ${home}.
func checkGlob(s string) error {
	t := s
	for _, v := range []string{"${workdir}", "${home}"} {
		if rest, ok := strings.CutPrefix(t, v); ok {
			t = "/x" + rest
		}
	}
	if strings.Contains(t, "${") {
		return fmt.Errorf("%s: only ${workdir} and ${home}, at the beginning, are known here", quote(s))
	}
	if err := checkBoxPath(t); err != nil {
		return err
	}
	if _, err := path.Match(t, ""); err != nil {
		return fmt.Errorf("%s is not a valid glob: a [ without ], or a backslash at the end", quote(s))
	}
	return nil
}

func (v *BasePath) readNode(d *decoder, n *node) {
	if n.kind == textNode && n.text == baseHost {
		*v = baseHost
		return
	}
	var p HostPath
	before := len(d.probs)
	if p.readNode(d, n); len(d.probs) > before {
		return
	}
	*v = BasePath(p)
	if err := checkBase(string(p), n); err != nil {
		d.fail(n, "%s: %v", strings.Join(d.path, "."), err)
	}
}

func checkBase(p string, n *node) error {
	fi, err := os.Stat(p)
	if err != nil {
		return fmt.Errorf("base %s: %w; want host, a directory or a tar file", quote(n.text), cause(err))
	}
	if !fi.IsDir() && !fi.Mode().IsRegular() {
		return fmt.Errorf("base %s is neither a directory nor a tar file", quote(n.text))
	}
	return nil
}

func checkHostname(s string) error {
	ok := s != "" && len(s) <= 253
	for _, label := range strings.Split(s, ".") {
		ok = ok && label != "" && len(label) <= 63 && label[0] != '-' && label[len(label)-1] != '-'
		for _, r := range label {
			ok = ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
		}
	}
	if !ok {
		return fmt.Errorf("%s is not a host name", quote(s))
	}
	return nil
}

// checkHost wants a host name, *.domain, *, an address or a prefix, with :port where only one is meant.
func checkHost(s string) error {
	if s == "*" {
		return nil
	}
	if _, err := netip.ParseAddr(s); err == nil {
		return nil
	}
	if _, err := netip.ParsePrefix(s); err == nil {
		return nil
	}
	if strings.Contains(s, "/") {
		return fmt.Errorf("%s: want the host alone, as example.org, not a URL", quote(s))
	}
	host := s
	if h, p, err := net.SplitHostPort(s); err == nil {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("%s: %s is not a port", quote(s), quote(p))
		}
		host = h
		if _, err := netip.ParseAddr(h); err == nil {
			return nil
		}
	}
	if checkHostname(strings.TrimPrefix(host, "*.")) != nil {
		return fmt.Errorf("%s is not a host: want example.org, *.example.org, an address or a prefix, each with :port if need be", quote(s))
	}
	return nil
}

func checkHostPort(s string) error {
	h, p, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%s: want host:port", quote(s))
	}
	if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%s: %s is not a port", quote(s), quote(p))
	}
	if _, err := netip.ParseAddr(h); err == nil {
		return nil
	}
	return checkHostname(h)
}

// checkUser wants name, uid, or either:either.
func checkUser(s string) error {
	u, g, both := strings.Cut(s, ":")
	parts := []string{u}
	if both {
		parts = append(parts, g)
	}
	for _, p := range parts {
		ok := p != "" && len(p) <= 32 && p[0] != '-'
		digits := ok
		for _, r := range p {
			ok = ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.$", r))
			digits = digits && r >= '0' && r <= '9'
		}
		if digits {
			n, err := strconv.ParseUint(p, 10, 32)
			ok = err == nil && n < 1<<32-1
		}
		if !ok {
			return fmt.Errorf("%s is not a user: want a name, a uid, or uid:gid", quote(s))
		}
	}
	return nil
}

func parseMode(s string) (uint32, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0o"), 8, 32)
	if err != nil || n > 0o7777 {
		return 0, fmt.Errorf("%s are not permission bits: want octal, as \"0644\"", quote(s))
	}
	return uint32(n), nil
}

func checkExists(n *node, file bool) error {
	p, ok := n.src.abs(n.text)
	if !ok {
		return nil // already told
	}
	stat := os.Stat
	if n.src.confined {
		root, err := os.OpenRoot(n.src.dir)
		if err != nil {
			return cause(err)
		}
		defer root.Close()
		stat, p = root.Stat, relTo(n.src.dir, p)
	}
	fi, err := stat(p)
	if err != nil {
		return fmt.Errorf("%s: %w", quote(n.text), cause(err))
	}
	if file && !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", quote(n.text))
	}
	return nil
}

func envName(s string) bool {
	for i, r := range s {
		if !(r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || i > 0 && r >= '0' && r <= '9') {
			return false
		}
	}
	return s != ""
}

// checkNode wants a step to do one thing.
func (s *Step) checkNode(d *decoder, n *node) {
	s.at = fmt.Sprintf("%s:%d", n.src.name, n.line)
	run, cp := n.get("run") != nil, n.get("copy") != nil || n.get("+copy") != nil
	switch {
	case run && cp:
		d.fail(n, "step %s has both run and copy: make two steps of it", quote(s.Name))
	case !run && !cp:
		d.fail(n, "step %s has neither run nor copy", quote(s.Name))
	case cp:
		for _, key := range []string{"workdir", "env", "exit"} {
			if v := n.get(key); v != nil {
				d.fail(v, "step %s copies: %s means nothing to it", quote(s.Name), key)
			}
		}
	}
}
