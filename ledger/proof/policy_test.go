package proof

import (
	"strings"
	"testing"
	"time"
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
	} {
		if _, err := ParsePolicy(policy); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", policy, err, want)
		}
	}
	m := &Manifest{Roots: map[string]Root{"a": {}, "b": {}}}
	if err := m.SetPolicy("a and (b or w9)"); err == nil || !strings.Contains(err.Error(), "column 13: it names w9, which is no root; the roots are a, b") {
		t.Errorf("%v", err)
	}
	e, err := ParsePolicy("evm and (2 of [w1, w2, w1] or tsa)")
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
