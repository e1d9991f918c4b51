package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/keyring"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
)

// wholeRun records a run with every sort of file that a run directory has.
func wholeRun(t *testing.T, dir, who string) {
	t.Helper()
	ring, _, err := keyring.OpenOrCreate(os.Getenv("BODYCAM_KEYS"), nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := store.Create(dir, bodycam.Run{ID: who, Started: time.Now()}, &store.Sealing{Signers: ring.Signers, Recipients: ring.Recipients, Recorder: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		e := bodycam.Event{NR: 257, Type: bodycam.TypeOpen, Sensor: "bpf", Proc: bodycam.Proc{PID: 5, Start: 9}, Path: fmt.Sprintf("/%s/%d", who, i), Boot: uint64(i + 1)}
		if err := w.Event(&e); err != nil {
			t.Fatal(err)
		}
	}
	err = w.Rows([]bodycam.Row{{Kind: bodycam.RowTool, Tool: "shell", Command: "cat " + who}, {Index: 1, Kind: bodycam.RowMessage, Text: "done"}, {Index: 2, Kind: bodycam.RowMessage, Text: "done"}})
	for _, name := range []string{"network", "workspace/after", "features"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	err = errors.Join(err,
		w.Action(&bodycam.Action{Intent: bodycam.Intent{Tool: "shell"}, Effects: bodycam.Effects{Events: [][2]uint64{{1, 6}}}}),
		w.JSON(store.LinksFile, []bodycam.Link{{Row: 0, Method: bodycam.LinkArgv, Confidence: 1}}),
		w.JSON("manifest-before.json", map[string]string{who: "a"}), w.JSON("manifest-after.json", map[string]string{who: "b"}),
		w.JSON(store.DecoysFile, []string{who}), w.File(store.ExchangesFile, []byte(`{"who":"`+who+"\"}\n")),
		w.File("agent/stdout", []byte("said by "+who+"\nand more\n")), w.File("agent/stderr", nil), w.File("verifier/reward.txt", []byte("1\n")),
		w.File("artifacts/out", []byte(who+"\n")), w.File("workspace/after/file", []byte(who+"\n")), w.File("features/analyses.json", []byte("{}\n")),
		w.Findings([]bodycam.Finding{{Rule: "r1", Title: who, Severity: bodycam.High, Events: []uint64{2}, Count: 1}}),
		w.Coverage(bodycam.Health{Sensor: "bpf", Total: bodycam.Counters{Seen: 6, Emitted: 6}}),
		w.Update(func(r *bodycam.Run) { r.Ended = time.Now().UTC(); r.Complete = bodycam.Completeness{Complete: true} }), w.Close())
	if err != nil {
		t.Fatal(err)
	}
}

// tampering is one change of a run directory, and how it is taken back.
type tampering struct {
	what string
	do   func(path string, old []byte) error
}

func write(b []byte) func(string, []byte) error {
	return func(path string, _ []byte) error { return os.WriteFile(path, b, 0o600) }
}

// tamperings are all that is done to one file: every byte, every line, the whole.
func tamperings(old, others []byte, stride int) []tampering {
	list := []tampering{{"removed", func(path string, _ []byte) error { return os.Remove(path) }}}
	if len(old) > 0 {
		list = append(list, tampering{"cut to nothing", write(nil)}, tampering{"cut by a byte", write(old[:len(old)-1])})
	}
	list = append(list, tampering{"a byte longer", write(append(bytes.Clone(old), '\n'))})
	if !bytes.Equal(old, others) {
		list = append(list, tampering{"another run's", write(others)})
	}
	lines := bytes.SplitAfter(old, []byte("\n"))
	for i, l := range lines {
		if len(lines) > 1 && len(l) > 0 {
			rest := bytes.Join(append(append([][]byte{}, lines[:i]...), lines[i+1:]...), nil)
			list = append(list, tampering{fmt.Sprintf("without line %d", i+1), write(rest)})
		}
	}
	for i := 0; i < len(old); i += stride {
		bad := bytes.Clone(old)
		bad[i] ^= 1 << (i % 8)
		list = append(list, tampering{fmt.Sprintf("byte %d changed", i), write(bad)})
	}
	return list
}

// TestEveryChangeOfARun changes every file of a run's directory in every way of the list, and each time `bodycam verify`
// must not say that the run is verified. What isn't covered is named here, and nothing else may be.
func TestEveryChangeOfARun(t *testing.T) {
	t.Setenv("BODYCAM_KEYS", filepath.Join(t.TempDir(), "keys"))
	t.Setenv("BODYCAM_HOME", t.TempDir())
	root := t.TempDir()
	dir, other := filepath.Join(root, "a"), filepath.Join(root, "b")
	wholeRun(t, dir, "alice")
	wholeRun(t, other, "bruce")
	verdict := func() ledger.Verdict {
		t.Helper()
		v, err := (&verifyFlags{}).verify(context.Background(), dir)
		if err != nil {
			return "error"
		}
		return v.Verdict
	}
	if got := verdict(); got != ledger.Verified {
		t.Fatalf("untouched it is %s", got)
	}
	uncovered := map[string]bool{
		"ledger/lock": true, // the writer's own: a reader ignores it
		// Behind the last whole wrap may lie the rest of one that a crash cut. Nothing rests on it.
		"ledger/00000000.keys a byte longer": true,
	}
	most := 80 // bytes of a file that are changed one by one, evenly spread; all of them were, once
	if testing.Short() {
		most = 10
	}
	files, changes := 0, 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, dir+string(filepath.Separator)))
		old, err := os.ReadFile(path)
		if err != nil || uncovered[name] {
			return err
		}
		others, err := os.ReadFile(filepath.Join(other, name))
		if err != nil {
			return err
		}
		files++
		for _, c := range tamperings(old, others, 1+len(old)/most) {
			if uncovered[name+" "+c.what] {
				continue
			}
			if err := c.do(path, old); err != nil {
				return err
			}
			changes++
			if got := verdict(); got == ledger.Verified {
				t.Errorf("%s %s: %s", name, c.what, got)
			}
			if err := os.WriteFile(path, old, 0o600); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d files, %d changes", files, changes)
	for _, name := range []string{"agent/more", "network/00001.request", "workspace/before", "stopped.json", "features/new", "elsewhere/x"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
		if got := verdict(); got == ledger.Verified {
			t.Errorf("%s was added: %s", name, got)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if got := verdict(); got != ledger.Verified {
		t.Fatalf("put back it is %s", got)
	}
	// Whoever has no key to open the ledger can't compare the copies, and must not be told that all is well.
	t.Setenv("BODYCAM_KEYS", filepath.Join(t.TempDir(), "none"))
	if got := verdict(); got == ledger.Verified {
		t.Errorf("without a key it is %s", got)
	}
}
