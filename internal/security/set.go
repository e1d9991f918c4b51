package security

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"

	"github.com/bodycam-dev/bodycam/rules"
)

// Version is that of the built-in rule set. It grows with every change of what the rules find.
const Version = "1.6.0"

//go:embed rules/*.yaml
var ruleFiles embed.FS

// Sources are the built-in rule files, in order.
var Sources = sync.OnceValue(func() []rules.Source {
	names, err := fs.Glob(ruleFiles, "rules/*.yaml")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	var out []rules.Source
	for _, n := range names {
		data, err := ruleFiles.ReadFile(n)
		if err != nil {
			panic(err) // embedded
		}
		out = append(out, rules.Source{Name: "builtin/" + path.Base(n), Data: data})
	}
	return out
})

// Digest identifies the built-in rule files: SHA-256 over their names and contents, in hexadecimal.
func Digest() string {
	h := sha256.New()
	for _, s := range Sources() {
		fmt.Fprintf(h, "%s %d\n", s.Name, len(s.Data))
		h.Write(s.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// LoadOnly compiles files without the built-in rules; they can use the lists of a policy (workspace_paths …).
func LoadOnly(p Policy, opts rules.Options, files ...rules.Source) (*rules.Set, error) {
	set, err := rules.LoadSources(opts, append([]rules.Source{{Name: "policy", Lists: p.lists()}}, files...)...)
	if err != nil {
		return nil, fmt.Errorf("loading the rules: %w", err)
	}
	return set, nil
}

// builtin keeps the built-in rules as they were compiled last: a run is judged while it goes on and once it has ended, by
// the same rules and lists. None of them has mode deny, which is all that rules.Options are about.
var builtin struct {
	sync.Mutex
	lists map[string][]string
	set   *rules.Set
}

// Load compiles the built-in rules for a policy, and further files that may add to them and change them.
func Load(p Policy, opts rules.Options, further ...rules.Source) (*rules.Set, error) {
	lists := p.lists()
	if len(further) > 0 {
		return load(lists, opts, further)
	}
	builtin.Lock()
	defer builtin.Unlock()
	if builtin.set != nil && maps.EqualFunc(lists, builtin.lists, slices.Equal) {
		return builtin.set, nil
	}
	set, err := load(lists, opts, nil)
	if err == nil {
		builtin.lists, builtin.set = lists, set
	}
	return set, err
}

func load(lists map[string][]string, opts rules.Options, further []rules.Source) (*rules.Set, error) {
	srcs := append([]rules.Source{}, Sources()...)
	srcs = append(srcs, rules.Source{Name: "policy", Lists: lists})
	srcs = append(srcs, further...)
	set, err := rules.LoadSources(opts, srcs...)
	if err != nil {
		return nil, fmt.Errorf("loading the security rules: %w", err)
	}
	return set, nil
}
