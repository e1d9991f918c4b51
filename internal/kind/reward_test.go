package kind

import (
	"errors"
	"testing"
)

func TestReward(t *testing.T) {
	for _, c := range []struct {
		name     string
		text, js string // "-": no file
		value    float64
		single   bool
		passed   bool
		source   string
	}{
		{"text", "1\n", "-", 1, true, true, "reward.txt"},
		{"text beats json", " 0.5 ", `{"reward": 1}`, 0.5, true, false, "reward.txt"},
		{"json", "-", `{"accuracy": 1.0}`, 1, true, true, "reward.json"},
		{"json with reward", "-", `{"reward": 0, "time": 3}`, 0, true, false, "reward.json"},
		{"json with several", "-", `{"a": 1, "b": 2}`, 0, false, true, "reward.json"},
		{"json with several, one short", "-", `{"a": 1, "b": 0.9}`, 0, false, false, "reward.json"},
		{"negative", "-1", "-", -1, true, false, "reward.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := ParseReward(fileOf(c.text), fileOf(c.js))
			if err != nil {
				t.Fatal(err)
			}
			v, ok := r.Value()
			if v != c.value || ok != c.single || r.Passed() != c.passed || r.Source != c.source {
				t.Errorf("got %v %v %v %s, want %+v", v, ok, r.Passed(), r.Source, c)
			}
		})
	}
	if _, err := ParseReward(nil, nil); !errors.Is(err, ErrNoReward) {
		t.Errorf("both missing: %v", err)
	}
	// An empty or broken reward.txt is an error even where reward.json would do: it was meant to be the verdict.
	for _, text := range []string{"", "pass", "1 2", "NaN", "+Inf", "0x", "1,5"} {
		if r, err := ParseReward([]byte(text), []byte(`{"reward":1}`)); err == nil {
			t.Errorf("reward.txt %q: %+v", text, r)
		}
	}
	for _, js := range []string{"", "{}", "[]", "1", `{"a":"1"}`, `{"a":null}`, `{"a":{}}`, "null", `{"a":1`} {
		if r, err := ParseReward(nil, []byte(js)); err == nil {
			t.Errorf("reward.json %q: %+v", js, r)
		}
	}
}

func fileOf(s string) []byte {
	if s == "-" {
		return nil
	}
	return []byte(s)
}
