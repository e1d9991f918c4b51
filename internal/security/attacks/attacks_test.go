package attacks

import (
	"slices"
	"testing"
)

// The corpus loads, every class of rules is attacked, and there are as many twins as attacks need.
func TestLoad(t *testing.T) {
	cases, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	harm, twins := 0, 0
	var classes []string
	names := map[string]bool{}
	for _, c := range cases {
		if names[c.Name] {
			t.Errorf("%s is there twice", c.Name)
		}
		names[c.Name] = true
		if c.Harm {
			harm++
			classes = append(classes, c.Class)
		} else {
			twins++
		}
	}
	if harm < 40 || twins < 40 {
		t.Errorf("%d attacks and %d twins", harm, twins)
	}
	for _, want := range []string{"credentials", "workspace", "programs", "network", "destruction", "disruption", "persistence", "recorder", "grading"} {
		if !slices.Contains(classes, want) {
			t.Errorf("no attack is of class %s", want)
		}
	}
}
