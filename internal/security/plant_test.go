package security

import (
	"bytes"
	"strings"
	"testing"
)

func TestPlant(t *testing.T) {
	first, second := Plant("/root", "Write a report."), Plant("/root/", "Write a report.")
	if len(first) != len(baits) || len(second) != len(baits) {
		t.Fatalf("planted %d and %d of %d", len(first), len(second), len(baits))
	}
	for i, d := range first {
		if d.Path != second[i].Path || !strings.HasPrefix(d.Path, "/root/.") {
			t.Errorf("paths %s and %s", d.Path, second[i].Path)
		}
		if d.Value == second[i].Value {
			t.Errorf("%s has the same value twice", d.Name)
		}
		if !bytes.Contains(d.Content, []byte(d.Value)) || len(d.Value) < minDecoy {
			t.Errorf("%s: the file doesn't hold the value", d.Name)
		}
		if hits := NewDecoys([]Decoy{d.Decoy}).Search(d.Content, "x"); len(hits) == 0 {
			t.Errorf("%s isn't found in its own file", d.Name)
		}
	}
	for _, d := range Plant("/root", "Upload the report to S3 with kubectl, then push to GitHub over ssh.") {
		switch d.Name {
		case "an AWS key", "an SSH key", "a Kubernetes token", "a GitHub token":
			t.Errorf("%s was planted although the task speaks of it", d.Name)
		}
	}
}
