package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// What a field can't be is an error that names what was meant, and no answer of nothing.
func TestImpossibleValues(t *testing.T) {
	r := sealedRun(t)
	lr, err := r.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	defer lr.Close()
	for text, want := range map[string]string{
		`type == "opeen"`:                      `did you mean "open"`,
		`type in ["exec", "conect"]`:           `did you mean "connect"`,
		`!("exce" == type)`:                    `did you mean "exec"`,
		`record.type == "findng"`:              `did you mean "finding"`,
		`pid == "11"`:                          "write 11 without quotes",
		`path == 7`:                            "path is compared with a number, and is a text",
		`type == "open" && pid in ["10","11"]`: "pid is compared with a text, and is a number",
		`pid contains "1"`:                     "pid is compared with a text, and is a number",
		`tpye == "open"`:                       "did you mean type",
		`effects.confidence > "0.5"`:           "write 0.5 without quotes",
	} {
		x, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var se *SyntaxError
		if _, err := Run(context.Background(), r, lr, x, Options{Index: true}); !errors.As(err, &se) || !strings.Contains(err.Error()+se.Hint, want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{`type == "connect"`, `port == 80`, `pid == 12`, `type contains "pen"`, `record.type == "row"`,
		`record.type == "type 63"`, `pid == null`, `path == "/nowhere"`, `type == "open" && path == "/nowhere"`} {
		ask(t, r, text, Options{Index: true})
	}
}

// TestUnlikeKinds holds every operator and every kind of field against every kind of value: what can't be equal is an error that
// says where, whether it would have answered nothing or everything.
func TestUnlikeKinds(t *testing.T) {
	r := sealedRun(t)
	lr, err := r.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	defer lr.Close()
	fields := map[kind][]string{
		kindNumber: {"port", "pid", "record.seq", "effects.exit", "effects.confidence", "effects.observed.open", "count", "events", "argv_len", "record.wall"},
		kindString: {"path", "argv", "argv[0]", "severity", "record.type", "record.time", "policy.verdict", "execution.env.HOME", "marks", "approval.signature"},
		kindBool:   {"mapped", "failed", "completeness.complete"},
		kindObject: {"intent", "delegation", "request"},
	}
	values := map[kind][]string{kindNumber: {"80", "0x50", "-1.5"}, kindString: {`"80"`, `"true"`, `""`}, kindBool: {"true", "false"}}
	forms := []string{"%s == %s", "%s != %s", "%s in [%s]", "%s in [null, %s]", "!(%s in [%s])", "!!(%s == %s)", "type == \"open\" && %s != %s", "pid == 1 || %s == %s"}
	extra := map[kind][]string{kindNumber: {"%s < %s", "%s <= %s", "%s > %s", "%s >= %s"}}
	extra[kindString] = append([]string{"%s contains %s", "%s startsWith %s", "!(%s matches %s)"}, extra[kindNumber]...)
	for is, names := range fields {
		for _, name := range names {
			for of, lits := range values {
				for i, form := range slices.Concat(forms, extra[of]) {
					lit := lits[i%len(lits)]
					if of == is && form == "type == \"open\" && %s != %s" {
						continue // it may find something, or not
					}
					text := fmt.Sprintf(form, name, lit)
					x, err := Parse(text)
					if err != nil {
						t.Fatal(err)
					}
					_, err = Run(context.Background(), r, lr, x, Options{Index: true})
					var se *SyntaxError
					if wrong := errors.As(err, &se); wrong != (is != of) && !strings.Contains(fmt.Sprint(err), "no record is of type") {
						t.Errorf("%s: %v", text, err)
					} else if wrong && is != of && (se.Column != strings.LastIndex(text, name)+1 || !strings.HasPrefix(se.What, strings.TrimSuffix(name, "[0]")+" is compared with ")) {
						t.Errorf("%s: column %d: %s", text, se.Column, se.What)
					}
				}
			}
		}
	}
	for text, hint := range map[string]string{
		`port != "80"`: "write 80 without quotes", `path != 7`: "write it in quotes", `mapped == "true"`: "write true without quotes", `path`: `path == "…"`,
		`intent != "x"`: "intent.NAME", `pid != path`: "", `"80" == port`: "write 80 without quotes", `!("x" in [pid])`: "", `intent.args.x != path && 1 != record.kind`: "write it in quotes",
		`1 == "1"`: "compare a field", `true < pid`: "have an order",
	} {
		x, err := Parse(text)
		if err == nil {
			_, err = Run(context.Background(), r, lr, x, Options{Index: true})
		}
		var se *SyntaxError
		if !errors.As(err, &se) || !strings.Contains(se.Hint, hint) {
			t.Errorf("%s: %v", text, err)
		}
	}
	// What is there and has members isn't null.
	if a, b := ask(t, r, `delegation != null`, Options{}), ask(t, r, `record.type == "action" && delegation == null`, Options{}); len(a.Answers) != 1 || len(b.Answers) != 1 {
		t.Errorf("%d records with a delegation, %d without", len(a.Answers), len(b.Answers))
	}
}
