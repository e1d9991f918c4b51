package harness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// HarnessDirEnv names an npm prefix where harnesses are looked for first.
const HarnessDirEnv = "BODYCAM_HARNESS_DIR"

// prefixes lists where an npm package may be installed, the most specific first: $BODYCAM_HARNESS_DIR, .harness in
// the working directory, and beside the bodycam binary and one level above it.
func prefixes() []string {
	var out []string
	add := func(dir string) {
		if dir == "" {
			return
		}
		if abs, err := filepath.Abs(dir); err == nil {
			out = append(out, abs)
		}
	}
	add(os.Getenv(HarnessDirEnv))
	add(".harness")
	if exe, err := os.Executable(); err == nil {
		add(filepath.Join(filepath.Dir(exe), ".harness"))
		add(filepath.Join(filepath.Dir(exe), "..", ".harness"))
	}
	return out
}

// findPackage returns the directory of an npm package: in a prefix, or behind the program that PATH has.
func findPackage(name, program string) (dir string, err error) {
	var tried []string
	for _, p := range prefixes() {
		for _, root := range []string{filepath.Join(p, "node_modules"), filepath.Join(p, "lib", "node_modules")} {
			dir := filepath.Join(root, filepath.FromSlash(name))
			if isFile(filepath.Join(dir, "package.json")) {
				return filepath.EvalSymlinks(dir)
			}
		}
		tried = append(tried, p)
	}
	if found, err := exec.LookPath(program); err == nil {
		if found, err = filepath.EvalSymlinks(found); err == nil {
			for dir := filepath.Dir(found); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
				if packageName(dir) == name {
					return dir, nil
				}
			}
		}
	}
	return "", fmt.Errorf("npm package %s was not found in %s nor behind %q in PATH", name, strings.Join(tried, ", "), program)
}

type npmPackage struct {
	Name    string          `json:"name"`
	Version string          `json:"version"`
	Bin     json.RawMessage `json:"bin"`
}

func readPackage(dir string) (npmPackage, error) {
	var p npmPackage
	data, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("read %s/package.json: %w", dir, err)
	}
	return p, nil
}

func packageName(dir string) string {
	p, err := readPackage(dir)
	if err != nil {
		return ""
	}
	return p.Name
}

// platformPackage finds the package with the native program of this machine, which npm puts beside the main package
// or below it.
func platformPackage(dir, name string) (string, bool) {
	scope := filepath.Dir(dir) // …/node_modules/@scope
	for _, root := range []string{filepath.Dir(scope), filepath.Join(dir, "node_modules")} {
		p := filepath.Join(root, filepath.FromSlash(name))
		if isFile(filepath.Join(p, "package.json")) {
			return p, true
		}
	}
	return "", false
}

// npmArch is the machine's architecture as npm names it.
func npmArch() string {
	if runtime.GOARCH == "amd64" {
		return "x64"
	}
	return runtime.GOARCH
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// digests remembers the digests of large programs, which are asked for at every run.
var digests sync.Map // fileID to string

type fileID struct {
	path string
	size int64
	time time.Time
}

// digest returns a file's SHA-256 in hex.
func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("digest of a harness: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("digest of a harness: %w", err)
	}
	id := fileID{path, st.Size(), st.ModTime()}
	if sum, ok := digests.Load(id); ok {
		return sum.(string), nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("digest of %s: %w", path, err)
	}
	sum := hex.EncodeToString(h.Sum(nil))
	digests.Store(id, sum)
	return sum, nil
}

// versionOf runs a program with --version, in an empty environment.
func versionOf(ctx context.Context, program string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	home, err := os.MkdirTemp("", "bodycam-version-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(home)
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Env, cmd.Dir = []string{"PATH=" + DefaultPath, "HOME=" + home}, home
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", program, err)
	}
	fields := strings.Fields(string(out))
	for _, f := range fields {
		if f != "" && f[0] >= '0' && f[0] <= '9' {
			return f, nil
		}
	}
	return "", errors.New(program + " --version names no version")
}

// isELF tells a native program from a script.
func isELF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && string(magic[:]) == "\x7fELF"
}
