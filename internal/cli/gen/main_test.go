package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The program and the command of the same name have a page each, as committed.
func TestPagesApart(t *testing.T) {
	for page, wants := range map[string][]string{
		verifier:  {`.TH "BODYCAM-VERIFY"`, `\-manifest\-digest`, "EXIT STATUS", command[:7] + `\-verify\-command(1)`},
		command:   {"\n" + command + " - ", "bodycam verify RUN"},
		"bodycam": {command + "(1)"},
	} {
		b, err := os.ReadFile(filepath.Join("../../../docs/man", page+".1"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !bytes.Contains(b, []byte(want)) {
				t.Errorf("%s lacks %q", page, want)
			}
		}
	}
}
