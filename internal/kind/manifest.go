package kind

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"

	"github.com/bodycam-dev/bodycam"
)

// maxEntries bounds how many files a directory that is read may hold.
const maxEntries = 500_000

// Manifest lists what a directory holds, in the order of the paths' bytes.
type Manifest struct {
	Files []ManifestFile `json:"files"`
	// SHA256 is that of one line per file: kind, space, size, space, content's digest or "-", space, path, and for a
	// symbolic link " -> " and what it says, each line with a newline at its end; path and link as Go quotes them
	// (strconv.Quote of the raw bytes). Kind is the first letter of Mode (-, d, L, p, S, D, u and g for set-user and
	// set-group files as Go writes them), followed by x where the owner may execute a regular file. Other permission
	// bits, owners and times are left out: they differ between checkouts of the same files.
	SHA256 string `json:"sha256"`
}

// ManifestFile is one file, symbolic link, special file or empty directory.
type ManifestFile struct {
	Path   string `json:"path"` // relative, with slashes, as [bodycam.Escape] writes bytes
	Mode   string `json:"mode"` // as Go's fs.FileMode writes it: -rw-r--r--
	Size   int64  `json:"size"` // of a regular file, otherwise 0
	SHA256 string `json:"sha256,omitempty"`
	Link   string `json:"link,omitempty"` // what a symbolic link says, escaped
}

// ReadManifest lists a directory outside. Symbolic links are listed, never followed, so nothing outside dir is
// read; pipes, sockets and devices are listed, never opened. It may change while it is read: a file that does is
// an error.
func ReadManifest(dir string) (*Manifest, error) {
	m := &Manifest{Files: []ManifestFile{}}
	err := walkHost(dir, nil, func(e hostEntry) error {
		if e.mode.IsDir() && !e.empty {
			return nil
		}
		f, err := e.manifest()
		if err != nil {
			return err
		}
		m.Files = append(m.Files, f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir, err)
	}
	m.SHA256 = digestFiles(m.Files)
	return m, nil
}

func digestFiles(files []ManifestFile) string {
	sort.Slice(files, func(i, j int) bool { return bodycam.Unescape(files[i].Path) < bodycam.Unescape(files[j].Path) })
	h := sha256.New()
	for _, f := range files {
		sum := f.SHA256
		if sum == "" {
			sum = "-"
		}
		fmt.Fprintf(h, "%s %d %s %q", modeKind(f.Mode), f.Size, sum, bodycam.Unescape(f.Path))
		if f.Link != "" {
			fmt.Fprintf(h, " -> %q", bodycam.Unescape(f.Link))
		}
		io.WriteString(h, "\n")
	}
	return hex.EncodeToString(h.Sum(nil))
}

// modeKind is what of a mode is the same in every checkout.
func modeKind(mode string) string {
	if len(mode) < 10 {
		return mode
	}
	kind := mode[:len(mode)-9]
	if kind != "d" && kind != "L" && mode[len(mode)-7] == 'x' {
		kind += "x"
	}
	return kind
}

// hostEntry is something in a directory outside.
type hostEntry struct {
	root  *os.Root
	rel   string // to root
	mode  fs.FileMode
	size  int64
	empty bool // a directory without entries
}

func (e hostEntry) manifest() (ManifestFile, error) {
	f := ManifestFile{Path: bodycam.Escape(e.rel), Mode: e.mode.String()}
	switch {
	case e.mode.IsRegular():
		r, err := e.open()
		if err != nil {
			return f, err
		}
		defer r.Close()
		h := sha256.New()
		n, err := io.Copy(h, io.LimitReader(r, e.size+1))
		if err != nil {
			return f, fmt.Errorf("reading %s: %w", e.rel, cause(err))
		}
		if n != e.size {
			return f, fmt.Errorf("%s changed while it was read", e.rel)
		}
		f.Size, f.SHA256 = n, hex.EncodeToString(h.Sum(nil))
	case e.mode.Type() == fs.ModeSymlink:
		link, err := e.root.Readlink(e.rel)
		if err != nil {
			return f, fmt.Errorf("reading %s: %w", e.rel, cause(err))
		}
		f.Link = bodycam.Escape(link)
	}
	return f, nil
}

// open opens a regular file; it doesn't follow a link that took its place, nor wait for a pipe's writer.
func (e hostEntry) open() (*os.File, error) {
	f, err := e.root.OpenFile(e.rel, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", e.rel, cause(err))
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is no regular file any more", e.rel)
	}
	return f, nil
}

// walkHost visits what lies under dir, dir itself left out, parents first and in the order of names. skip tells
// what to leave out, by path relative to dir.
func walkHost(dir string, skip func(rel string, dir bool) (omit, prune bool), fn func(hostEntry) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return cause(err)
	}
	defer root.Close()
	count := 0
	var walk func(rel string) error
	walk = func(rel string) error {
		names, err := readNames(root, rel)
		if err != nil {
			return err
		}
		for _, name := range names {
			if count++; count > maxEntries {
				return fmt.Errorf("more than %d entries", maxEntries)
			}
			child := path.Join(rel, name)
			fi, err := root.Lstat(child)
			if err != nil {
				return fmt.Errorf("%s: %w", child, cause(err))
			}
			e := hostEntry{root: root, rel: child, mode: fi.Mode()}
			if fi.Mode().IsRegular() {
				e.size = fi.Size()
			}
			omit, prune := false, false
			if skip != nil {
				omit, prune = skip(child, fi.IsDir())
			}
			if prune {
				continue
			}
			if fi.IsDir() {
				below, err := readNames(root, child)
				if err != nil {
					return err
				}
				e.empty = len(below) == 0
			}
			if !omit {
				if err := fn(e); err != nil {
					return err
				}
			}
			if fi.IsDir() {
				if strings.Count(child, "/") >= 256 {
					return fmt.Errorf("%s: directories are nested deeper than 256", child)
				}
				if err := walk(child); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return walk(".")
}

func readNames(root *os.Root, rel string) ([]string, error) {
	d, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", rel, cause(err))
	}
	defer d.Close()
	names, err := d.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", rel, cause(err))
	}
	slices.Sort(names)
	return names, nil
}

// digestFile identifies one file outside.
func digestFile(name string) (FileDigest, error) {
	d, _, err := readDigest(name)
	return d, err
}

// readDigest reads one file outside and identifies it.
func readDigest(name string) (FileDigest, []byte, error) {
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return FileDigest{}, nil, fmt.Errorf("%s: %w", name, cause(err))
	}
	defer root.Close()
	fi, err := root.Stat(filepath.Base(name))
	if err != nil {
		return FileDigest{}, nil, fmt.Errorf("%s: %w", name, cause(err))
	}
	if !fi.Mode().IsRegular() {
		return FileDigest{}, nil, fmt.Errorf("%s: it isn't a regular file", name)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return FileDigest{}, nil, fmt.Errorf("%s: %w", name, cause(err))
	}
	sum := sha256.Sum256(data)
	return FileDigest{Path: name, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data))}, data, nil
}

func digestText(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		io.WriteString(h, p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
