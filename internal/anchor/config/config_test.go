package config

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "anchors.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestDocumented: the example of docs/ANCHORS.md is one of every kind, and every field in it is known.
func TestDocumented(t *testing.T) {
	b, err := os.ReadFile("../../../docs/ANCHORS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(b), "```yaml\n")
	text, _, ok2 := strings.Cut(text, "```")
	if !ok || !ok2 {
		t.Fatal("there is no example in it")
	}
	list, err := Read(write(t, text))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range list {
		seen[c.Kind] = true
	}
	for _, k := range proof.Kinds() {
		if !seen[k] {
			t.Errorf("no anchor of kind %s is documented", k)
		}
	}
	if list[0].Name != "w" || list[1].Name != proof.KindLog {
		t.Errorf("names: %q, %q", list[0].Name, list[1].Name)
	}
	if d, err := Promised(list); err != nil || d != time.Hour {
		t.Errorf("it promises %v, %v", d, err)
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"anchors: {a: b}":                                        "must hold a list named anchors",
		"other: []":                                              `unknown field "other"`,
		"anchors: [{kind: digest, too: x}]":                      `anchor 1: unknown field "too"`,
		"anchors: [{kind: pigeon}]":                              "there are digest, witness, tlog, tsa, evm",
		"anchors: [{kind: tsa, to: x}, {kind: tsa, to: y}]":      "two anchors are called tsa",
		"anchors: [{kind: tsa, to: x, every: often}]":            "no time such as 10m",
		"anchors: [{kind: tsa, to: x, promise: -1h}]":            "no time such as 1h",
		"anchors:\n  - kind: tsa\n to: x":                        "[3:2]",
		"anchors: [{kind: digest, to: x}]":                       "it needs a key",
		"anchors: [{kind: digest, to: x, key: nosuch}]":          "no such file",
		"anchors: [{kind: tsa}]":                                 "it needs the authority's URL",
		"anchors: [{kind: tlog, to: x}]":                         "its keys (root)",
		"anchors: [{kind: witness}]":                             "it needs witnesses",
		"anchors: [{kind: witness, witnesses: [{key: x}]}]":      "no verifier key",
		"anchors: [{kind: witness, quorum: 2, witnesses: [{}]}]": "2 of 1",
		"anchors: [{kind: evm, contract: \"0x12\"}]":             "it needs nodes",
		"anchors: [{kind: evm, nodes: [x], key: nosuch}]":        "account's key",
	} {
		list, err := Read(write(t, text))
		for i := 0; err == nil && i < len(list); i++ {
			_, err = list[i].Open(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", text, err, want)
		}
	}
}

// TestPaths: what a file names lies beside the file.
func TestPaths(t *testing.T) {
	name := write(t, "anchors: [{kind: digest, to: out, key: k}]")
	if _, err := CreateKey(filepath.Join(filepath.Dir(name), "k"), "audit", checkpoint.Ed25519, make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
	list, err := Read(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := list[0].Open(t.Context()); err != nil {
		t.Error(err)
	}
}
