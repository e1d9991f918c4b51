package query

import (
	"context"
	"errors"
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
