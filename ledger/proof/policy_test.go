package proof

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

func at(n int64) time.Time { return time.Unix(n, 0).UTC() }

func TestPolicy(t *testing.T) {
	times := map[string]time.Time{"a": at(1), "b": at(2), "c": at(3), "nil": {}}
	for _, c := range []struct {
		policy string
		ok     bool
		time   time.Time
	}{
		{"a", true, at(1)},
		{"x", false, time.Time{}},
		{"a and b", true, at(2)},
		{"a and x", false, time.Time{}},
		{"c or b", true, at(2)},
		{"x or b", true, at(2)},
		{"a and x or c", true, at(3)},
		{"c or x and a", true, at(3)},
		{"(c or x) and a", true, at(3)},
		{"2 of [a, b, c]", true, at(2)},
		{"3 of [a, b, x]", false, time.Time{}},
		{"c and (2 of [a, b, x] or x)", true, at(3)},
		{"nil or c", true, at(3)},
		{"nil and c", true, time.Time{}},
		{"2 of [a and b, c, x]", true, at(3)},
	} {
		e, err := ParsePolicy(c.policy)
		if err != nil {
			t.Errorf("%s: %v", c.policy, err)
			continue
		}
		got, ok := e.Met(func(name string) (time.Time, bool) { v, ok := times[name]; return v, ok })
		if ok != c.ok || !got.Equal(c.time) {
			t.Errorf("%s: %v at %v, want %v at %v", c.policy, ok, got, c.ok, c.time)
		}
	}
	for _, bad := range []string{"", "and", "a and", "a b", "(a", "a)", "0 of [a]", "2 of [a]", "02 of [a,b]", "1 of a", "1 of [a", "1 of []", "1 of [a b]",
		"a,b", "é", "-a", strings.Repeat("(", 100) + "a" + strings.Repeat(")", 100), strings.Repeat("a or ", 2000) + "a", "x of [a]", "1 of"} {
		if _, err := ParsePolicy(bad); err == nil {
			t.Errorf("%.40q was accepted", bad)
		}
	}
	for policy, want := range map[string]string{
		"":                       `column 1: a name or a parenthesis should stand where the end stands`,
		"a b":                    `column 3: "b" is one word too many`,
		"(a and b":               `column 9: a closing parenthesis is missing before the end`,
		"a and\t\tor b":          `column 8: a name or a parenthesis should stand where "or" stands`,
		"evm and 3 of [w1,w2]":   `column 9: 3 of 2 can never be`,
		"evm or (2 of [w1; w2])": `column 15: a name or a parenthesis should stand where "w1;" stands`,
		"1 of a":                 `column 6: a list in square brackets must follow "1 of"`,
		"x of [a]":               `column 1: "x" isn't a number of roots`,
		"ä":                      `column 1: a name`,
		"a or 2 of [w, w]":       `column 6: w stands twice in the list`,
		"1 of [a, (b or a)]":     `column 1: a stands twice`,
	} {
		if _, err := ParsePolicy(policy); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", policy, err, want)
		}
	}
	m := &Manifest{Roots: map[string]Root{"a": {}, "b": {}}}
	if err := m.SetPolicy("a and (b or w9)"); err == nil || !strings.Contains(err.Error(), "column 13: it names w9, which is no root; the roots are a, b") {
		t.Errorf("%v", err)
	}
	e, err := ParsePolicy("evm and w1 and (2 of [w1, w2] or tsa)")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(e.Names(), " "); got != "evm w1 w2 tsa" {
		t.Errorf("it names %s", got)
	}
}

func FuzzPolicy(f *testing.F) {
	for _, s := range []string{"a", "evm and (2 of [w1, w2, w3] or tsa)", "((a))", "1 of [", "a of b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParsePolicy(s)
		if err != nil {
			return
		}
		if _, ok := e.Met(func(string) (time.Time, bool) { return at(1), true }); !ok {
			t.Errorf("%q isn't met where every root vouches", s)
		}
		if _, ok := e.Met(func(string) (time.Time, bool) { return at(1), false }); ok {
			t.Errorf("%q is met where no root vouches", s)
		}
	})
}

// TestOneVoteEach: one witness doesn't meet a policy that wants two, whatever names it goes by.
func TestOneVoteEach(t *testing.T) {
	key := func(name string) string { return keyOf(name, signer(t, checkpoint.Cosignature, 2)).String() }
	roots := `"roots": {"a": {"kind": "witness", "key": "` + key("a.example") + `"}, "b": {"kind": "witness", "key": "` + key("b.example") + `"},
		"c": {"kind": "witness", "key": "` + keyOf("c.example", signer(t, checkpoint.Cosignature, 3)).String() + `"}}`
	manifest := func(policy string) []byte {
		return []byte(`{"manifest": "bodycam-manifest/v1", ` + roots + `, "policy": "` + policy + `"}`)
	}
	for policy, want := range map[string]string{
		"2 of [a, c]":         "",
		"1 of [a, b]":         "",
		"a or b and c":        "",
		"2 of [a, b]":         "one key under two names",
		"c or (2 of [a,b,c])": "one key under two names",
		"a and b":             "one key under two names",
		"2 of [c, c]":         "stands twice",
	} {
		_, err := ParseManifest(manifest(policy), nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", policy, err, want)
		}
	}
	log := func(witnesses ...string) *Root {
		return &Root{Kind: KindLog, Key: keyOf("log.example", signer(t, checkpoint.Ed25519, 1)).String(), Witnesses: witnesses}
	}
	if _, err := newLogRoot(log(key("a.example"), key("b.example"))); err == nil {
		t.Error("a log whose two witnesses are one was accepted")
	}
	if _, err := newLogRoot(log(key("a.example"))); err != nil {
		t.Error(err)
	}
	// Roots of one's own take the place of those that the operator's policy was written for.
	operator := []byte(strings.Replace(string(manifest("2 of [a, c]")), `"b": {`, `"z": {`, 1))
	own := []byte(`{"manifest": "bodycam-manifest/v1", "roots": {"c": {"kind": "witness", "key": "` + key("x.example") + `"}}}`)
	digest := sha256.Sum256(operator)
	if _, err := Gather(own, operator, hex.EncodeToString(digest[:]), ""); err == nil || !strings.Contains(err.Error(), "one key") {
		t.Errorf("%v", err)
	}
}

// TestRootsOnce: a file of roots says what it is, and each thing once; a flag that pins nothing isn't passed over.
func TestRootsOnce(t *testing.T) {
	for text, want := range map[string]string{
		`{"roots": {}}`: `its key "manifest" is missing`,
		`{"manifest": "bodycam-manifest/v1", "policy": "", "policy": ""}`:                                    `the key "policy" stands twice`,
		`{"manifest": "bodycam-manifest/v1", "roots": {"a": {"kind": "x"}, "a": {"kind": "x"}}}`:             `the key "a" stands twice`,
		`{"manifest": "bodycam-manifest/v1", "roots": {"a": {"kind": "x", "witnesses": [], "kind": "log"}}}`: `the key "kind" stands twice`,
	} {
		if _, err := ParseManifest([]byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := Gather(nil, nil, "0000", ""); err == nil {
		t.Error("a digest that pins nothing was passed over")
	}
	if _, err := Gather([]byte(`{"manifest": "bodycam-manifest/v1"}`), nil, strings.Repeat("0", 64), ""); err == nil {
		t.Error("a digest that pins nothing was passed over beside roots of one's own")
	}
}
