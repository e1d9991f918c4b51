package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

const corpus = "../../ledger/testdata/corpus"

// untar unpacks a log of the corpus.
func untar(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(corpus, name))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// key is the verifier key of the corpus, which its index names.
func key(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(corpus, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct{ Keys []string }
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	return vectors[0].Keys[0]
}

func TestRun(t *testing.T) {
	valid, edit := untar(t, "valid.tar"), untar(t, "edit.tar")
	bundle, broken := filepath.Join(corpus, "bundle-valid.bundle"), filepath.Join(corpus, "bundle-cut.bundle")
	id := filepath.Join(corpus, "identity.txt")
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := key(t)
	for _, c := range []struct {
		name string
		args []string
		exit int
		want string
	}{
		{"verified", []string{"-key", k, valid}, 0, "verified\n"},
		{"ledger directory", []string{"-key", k, filepath.Join(valid, "ledger")}, 0, "verified\n"},
		{"content", []string{"-key", k, "-identity", id, "-require", "content", "-json", valid}, 0, `"verdict": "verified"`},
		{"content without keys", []string{"-key", k, "-require", "content", valid}, 4, "content     unverifiable"},
		{"self", []string{"-self", valid}, 0, "who rewrote all of it"},
		{"no root", []string{valid}, 4, "no independent root"},
		{"tampered", []string{"-key", k, edit}, 1, "first bad: record 5, epoch 1"},
		{"tampered, JSON", []string{"-key", k, "-json", edit}, 1, `"seq": 5`},
		{"other log", []string{"-log", strings.Repeat("0", 64), valid}, 1, "another log"},
		{"bundle", []string{"-key", k, bundle}, 0, "verified\n"},
		{"broken bundle", []string{"-key", k, broken}, 1, "tampered\n"},
		{"help", []string{"-h"}, 0, "EXIT STATUS"},
		{"no path", nil, 2, "want one path"},
		{"two logs", []string{"-key", k, valid, edit}, 1, "all together: tampered"},
		{"two logs, one head", []string{"-log", strings.Repeat("0", 64), valid, edit}, 2, "about one log"},
		{"unknown flag", []string{"-x", valid}, 2, "not defined"},
		{"bad key", []string{"-key", "ed25519:AA==", valid}, 2, "1 bytes where"},
		{"bad claim", []string{"-require", "truth", valid}, 2, `no claim "truth"`},
		{"bad quorum", []string{"-quorum", "2", valid}, 2, "of 0 witnesses"},
		{"a digest of no manifest", []string{"-self", "-manifest-digest", strings.Repeat("0", 64), valid}, 2, "no manifest"},
		{"nothing there", []string{filepath.Join(valid, "nowhere")}, 3, "no such file"},
		{"no log", []string{t.TempDir()}, 3, "no log here"},
		{"no bundle", []string{other}, 3, "no bundle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs strings.Builder
			if got := run(c.args, &out, &errs); got != c.exit {
				t.Errorf("exit status %d, want %d", got, c.exit)
			}
			if all := out.String() + errs.String(); !strings.Contains(all, c.want) {
				t.Errorf("printed %s\nwant %q in it", all, c.want)
			}
		})
	}
}

// TestBuilds builds for every system that a stranger may have.
func TestBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("builds five binaries")
	}
	for _, target := range []string{"linux/amd64", "linux/arm64", "darwin/arm64", "windows/amd64", "js/wasm"} {
		t.Run(target, func(t *testing.T) {
			system, arch, _ := strings.Cut(target, "/")
			cmd := exec.Command("go", "build", "-o", filepath.Join(t.TempDir(), "bodycam-verify"), ".")
			cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// TestDependencies: no network, and nothing that isn't needed to verify. crypto/x509 brings package net along for its
// types of addresses; nothing else here may import it, and nothing that speaks a protocol is there.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{"filippo.io/age", "filippo.io/hpke", "filippo.io/mldsa", "golang.org/x/crypto/", "golang.org/x/sys/cpu", "github.com/bodycam-dev/bodycam/"}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		dep := f[0]
		if strings.HasPrefix(dep, "net/") && dep != "net/netip" && dep != "net/url" || dep == "crypto/tls" || dep == "os/exec" {
			t.Errorf("it depends on %s", dep)
		}
		if slices.Contains(f[1:], "net") && dep != "crypto/x509" {
			t.Errorf("%s imports net", dep)
		}
		if first, _, _ := strings.Cut(dep, "/"); !strings.Contains(first, ".") {
			continue
		}
		if !slices.ContainsFunc(allowed, func(a string) bool { return strings.HasPrefix(dep, a) }) {
			t.Errorf("it depends on %s", dep)
		}
	}
}

// TestAnchors: a run whose checkpoint a witness cosigned, judged by a policy.
func TestAnchors(t *testing.T) {
	dir := untar(t, "valid.tar")
	b, err := os.ReadFile(filepath.Join(dir, "ledger", "checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	note, err := checkpoint.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	w, err := checkpoint.NewSigner(checkpoint.Cosignature, bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := checkpoint.Sign(note.Checkpoint, "w.example", 1_900_000_000, w)
	if err != nil {
		t.Fatal(err)
	}
	k := checkpoint.Key{Name: "w.example"}
	k.Alg, k.Public = w.Public()
	note.Signatures = append(note.Signatures, signed.Signatures...)
	keep := func(dir string, n *checkpoint.Note) {
		t.Helper()
		e := &proof.Evidence{Kind: proof.KindWitness, Note: n}
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, proof.Dir), 0o700), os.WriteFile(filepath.Join(dir, proof.Dir, "w-1"+proof.Suffix), e.Append(nil), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	keep(dir, note)
	roots := filepath.Join(t.TempDir(), "roots.json")
	text := `{"manifest":"bodycam-manifest/v1","policy":"w","roots":{"w":{"kind":"witness","key":"` + k.String() + `"}}}`
	if err := os.WriteFile(roots, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	bare := untar(t, "valid.tar")
	// A head that the witness cosigned and the log doesn't have: the log was rewritten.
	forked := untar(t, "valid.tar")
	other := note.Checkpoint
	other.Root[0]++
	if signed, err = checkpoint.Sign(other, "w.example", 1_900_000_000, w); err != nil {
		t.Fatal(err)
	}
	keep(forked, &checkpoint.Note{Checkpoint: other, Signatures: signed.Signatures})
	for _, c := range []struct {
		name string
		args []string
		exit int
		want string
	}{
		{"met", []string{"-roots", roots, dir}, 0, "anchors     verified"},
		{"dated", []string{"-roots", roots, "-require", "existed_by", dir}, 0, "existed by 2030"},
		{"no anchor", []string{"-roots", roots, bare}, 4, "isn't met"},
		{"no root", []string{"-key", key(t), dir}, 0, "anchors     unverifiable"},
		{"another head", []string{"-roots", roots, forked}, 1, "tampered"},
		{"unknown name", []string{"-roots", roots, "-policy", "x", dir}, 2, "which is no root"},
		{"not pinned", []string{"-manifest", roots, dir}, 2, "pinned"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs strings.Builder
			if got := run(c.args, &out, &errs); got != c.exit || !strings.Contains(out.String()+errs.String(), c.want) {
				t.Errorf("exit status %d, want %d with %q in\n%s%s", got, c.exit, c.want, out.String(), errs.String())
			}
		})
	}
}

// TestPipes: a pipe in a file's place doesn't keep the verifier waiting.
func TestPipes(t *testing.T) {
	if _, err := exec.LookPath("mkfifo"); err != nil {
		t.Skip("there is no mkfifo")
	}
	for _, name := range []string{"ledger/genesis", "ledger/00000000.log", "ledger/epochs", "x.bundle"} {
		dir := untar(t, "valid.tar")
		path := filepath.Join(dir, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if out, err := exec.Command("mkfifo", path).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if strings.HasSuffix(name, ".bundle") {
			dir = path
		}
		done := make(chan string)
		go func() {
			var out bytes.Buffer
			code := run([]string{"-self", dir}, &out, &out)
			done <- out.String() + map[int]string{exitUnreadable: "unreadable"}[code]
		}()
		select {
		case out := <-done:
			if !strings.Contains(out, "not a regular file but a pipe") || !strings.HasSuffix(out, "unreadable") {
				t.Errorf("%s: %s", name, out)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: it waits for a writer", name)
		}
	}
}

// TestKeyFile: a file of keys will do as well as a key, and flags may stand after the path.
func TestKeyFile(t *testing.T) {
	dir := untar(t, "valid.tar")
	file, none := filepath.Join(t.TempDir(), "recorder.pub"), filepath.Join(t.TempDir(), "none.pub")
	if err := errors.Join(os.WriteFile(file, []byte("# the recorder's\n\n"+key(t)+"\n"), 0o600), os.WriteFile(none, []byte("# empty\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-key", file, dir}, exitVerified, "identity    verified"},
		{[]string{dir, "-key", file}, exitVerified, "identity    verified"},
		{[]string{dir, "-key", key(t), "-json"}, exitVerified, `"verdict": "verified"`},
		{[]string{"-key", file, "--", dir}, exitVerified, "identity    verified"},
		{[]string{"-key", file}, exitUsage, "want one path"},
		{[]string{"-key", none, dir}, exitUsage, "holds no public key"},
		{[]string{"-key", file + "x", dir}, exitUsage, "nor is there a file of that name"},
		{[]string{dir, "--", "-key"}, exitUnreadable, "-key"},
	} {
		var out bytes.Buffer
		if code := run(c.args, &out, &out); code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("%q: %d: %s", c.args, code, out.String())
		}
	}
}
