package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A signing key is found under each name that other commands have for it, and no line ends in a blank.
func TestKeyNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	t.Setenv("BODYCAM_KEYS", dir)
	pub := filepath.Join(t.TempDir(), "k.pub")
	var out bytes.Buffer
	for _, args := range [][]string{{"keys", "init"}, {"keys", "export", "-o", pub}, {"keys", "list"}} {
		out.Reset()
		if status := Main(append([]string{"bodycam"}, args...), strings.NewReader(""), &out, &out); status != ExitOK {
			t.Fatalf("%v: status %d: %s", args, status, &out)
		}
	}
	exported, err := os.ReadFile(pub)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(exported)) {
		name, rest, _ := strings.Cut(line, "+")
		id, _, _ := strings.Cut(rest, "+")
		if !strings.Contains(out.String(), name+"+"+id+" where it is exported") {
			t.Errorf("%s+%s isn't in\n%s", name, id, &out)
		}
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasSuffix(line, " \n") {
			t.Errorf("%q ends in a blank", line)
		}
	}
}
