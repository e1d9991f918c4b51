package main

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEquivocation: the example of docs/FORMAT.md convicts its log's key, with nothing else at hand.
func TestEquivocation(t *testing.T) {
	doc, err := os.ReadFile("../../docs/FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "\n```equivocation\n")
	text, _, _ := strings.Cut(rest, "\n```")
	b, err := hex.DecodeString(strings.ReplaceAll(text, "\n", ""))
	if !ok || err != nil {
		t.Fatalf("no example: %v", err)
	}
	verify := func(b []byte, args ...string) (int, string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "x.equivocation")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		return run(append(args, path), &out, &out), out.String()
	}
	if code, out := verify(b); code != exitVerified || !strings.Contains(out, "EQUIVOCATION PROVED") || !strings.Contains(out, "example.org/") {
		t.Errorf("%d: %s", code, out)
	}
	if code, out := verify(b, "-json"); code != exitVerified || !strings.Contains(out, `"accused": [`) {
		t.Errorf("%d: %s", code, out)
	}
	b[len(b)-1] ^= 1
	if code, out := verify(b); code != exitTampered || !strings.Contains(out, "proves nothing") {
		t.Errorf("with its last byte changed: %d: %s", code, out)
	}
	b[len(b)-1] ^= 1
	b[0] ^= 1
	if code, out := verify(b); code != exitTampered || !strings.Contains(out, "proves nothing") {
		t.Errorf("with its first byte changed: %d: %s", code, out)
	}
	b[0] ^= 1
	// A false signature on one of the notes: nobody is convicted.
	i := bytes.Index(b, []byte("=\n\x03@\x04"))
	if i < 0 {
		t.Fatal("no signature found in the example")
	}
	b[i-4] ^= 1
	if code, out := verify(b); code != exitIncomplete && code != exitTampered || strings.Contains(out, "PROVED") {
		t.Errorf("with a false signature: %d: %s", code, out)
	}
}
