package kind

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/bodycam-dev/bodycam"
	"github.com/moby/patternmatcher"
)

// Copy puts a file, a directory's contents, or given bytes into the box. [Copy.Walk] lists what it comes to.
//
// Names and text that aren't UTF-8 are refused when the plan is made, since JSON can't hold them.
type Copy struct {
	From    string `json:"from,omitempty"` // absolute, outside: a file or a directory; empty: Content
	Root    string `json:"root,omitempty"` // the directory that From lies in and that no symbolic link may lead out of
	Content string `json:"content,omitempty"`
	To      string `json:"to"` // absolute, in the box. A directory's contents go into it
	// Name is set where it depends on the box what To means, as in Docker: if To is a directory there, the file
	// goes into it under this name; otherwise To is the file's own path.
	Name    string   `json:"name,omitempty"`
	Owner   string   `json:"owner,omitempty"`   // name, uid, or either:either, of the box's own passwd; empty: root
	Mode    string   `json:"mode,omitempty"`    // octal, of files and directories alike; empty: the source's
	Exclude []string `json:"exclude,omitempty"` // patterns as in .dockerignore, relative to Root
	Files   int      `json:"files"`             // how many entries there are, directories not counted
	Bytes   int64    `json:"bytes"`
	SHA256  string   `json:"sha256"` // over the entries with paths relative to To, as [Manifest.SHA256]

	entries []sealedEntry
}

// sealedEntry is a regular file of a copy, as it was when the plan was made.
type sealedEntry struct{ to, host, sha256 string }

// Entry is one thing that a copy puts into the box.
type Entry struct {
	To   string      // absolute, in the box
	Rel  string      // relative to [Copy.To]; "." for a file or the directory itself
	Mode fs.FileMode // type and permission bits: regular, directory or symbolic link
	Size int64
	Link string // what a symbolic link says; it means a path in the box

	content *string
	host    hostEntry
}

// Open opens a regular file's content. It is valid during the call that got the entry.
func (e Entry) Open() (io.ReadCloser, error) {
	if e.content != nil {
		return io.NopCloser(strings.NewReader(*e.content)), nil
	}
	if !e.Mode.IsRegular() {
		return nil, fmt.Errorf("opening %s: not a regular file", e.To)
	}
	return e.host.open()
}

// Walk calls fn for every entry of the copy, parents first, in the order of names. A directory's own entry comes
// before its contents. Symbolic links inside a directory are entries of their own; one that is itself the source is
// followed, but not out of Root. Pipes, sockets and devices are an error.
func (c *Copy) Walk(fn func(Entry) error) error {
	if c.From == "" {
		content := c.Content
		return fn(Entry{To: c.To, Rel: ".", Mode: c.perm(0o644), Size: int64(len(content)), content: &content})
	}
	if err := c.walkFrom(fn); err != nil {
		return fmt.Errorf("copying %s to %s: %w", c.From, c.To, err)
	}
	return nil
}

func (c *Copy) walkFrom(fn func(Entry) error) error {
	rel, err := filepath.Rel(c.Root, c.From)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return fmt.Errorf("it lies outside %s", c.Root)
	}
	root, err := os.OpenRoot(c.Root)
	if err != nil {
		return cause(err)
	}
	defer root.Close()
	fi, err := root.Stat(rel)
	if err != nil {
		return cause(err)
	}
	switch {
	case fi.Mode().IsRegular():
		// A link as source is followed by the kernel below root: Open must follow it too.
		real, err := followInRoot(root, rel)
		if err != nil {
			return err
		}
		e := Entry{To: c.To, Rel: ".", Mode: c.perm(fi.Mode()), Size: fi.Size(), host: hostEntry{root: root, rel: real, mode: fi.Mode(), size: fi.Size()}}
		return fn(e)
	case !fi.IsDir():
		return fmt.Errorf("it is neither a file nor a directory")
	}
	real, err := followInRoot(root, rel)
	if err != nil {
		return err
	}
	if err := fn(Entry{To: c.To, Rel: ".", Mode: c.perm(fi.Mode())}); err != nil {
		return err
	}
	skip, err := c.skipper(real)
	if err != nil {
		return err
	}
	return walkHost(filepath.Join(c.Root, real), skip, func(h hostEntry) error {
		e := Entry{To: path.Join(c.To, h.rel), Rel: h.rel, Mode: c.perm(h.mode), Size: h.size, host: h}
		switch {
		case h.mode.Type() == fs.ModeSymlink:
			if e.Link, err = h.root.Readlink(h.rel); err != nil {
				return fmt.Errorf("%s: %w", h.rel, cause(err))
			}
			e.Mode = h.mode
		case !h.mode.IsRegular() && !h.mode.IsDir():
			return fmt.Errorf("%s is neither file, directory nor symbolic link", h.rel)
		}
		return fn(e)
	})
}

// followInRoot resolves symbolic links of a path below root. It never leaves root: [os.Root] refuses that.
func followInRoot(root *os.Root, rel string) (string, error) {
	for range 40 {
		fi, err := root.Lstat(rel)
		if err != nil {
			return "", cause(err)
		}
		if fi.Mode().Type() != fs.ModeSymlink {
			return rel, nil
		}
		link, err := root.Readlink(rel)
		if err != nil {
			return "", cause(err)
		}
		if filepath.IsAbs(link) {
			return "", fmt.Errorf("%s is an absolute symbolic link", rel)
		}
		rel = filepath.Join(filepath.Dir(rel), link)
	}
	return "", fmt.Errorf("%s: too many symbolic links", rel)
}

// skipper turns Exclude into what walkHost asks; under is From relative to Root.
func (c *Copy) skipper(under string) (func(string, bool) (bool, bool), error) {
	if len(c.Exclude) == 0 {
		return nil, nil
	}
	pm, err := patternmatcher.New(c.Exclude)
	if err != nil {
		return nil, fmt.Errorf("pattern to leave out: %w", err)
	}
	infos := map[string]patternmatcher.MatchInfo{}
	return func(rel string, dir bool) (omit, prune bool) {
		full := path.Join(filepath.ToSlash(under), rel)
		parent, ok := infos[path.Dir(full)]
		if !ok {
			parent = matchParents(pm, path.Dir(full), infos)
		}
		m, info, err := pm.MatchesUsingParentResults(full, parent)
		if err != nil {
			return false, false // a pattern that can't be matched leaves nothing out; New has checked them all
		}
		if dir {
			infos[full] = info
		}
		return m, m && (!dir || !pm.Exclusions())
	}, nil
}

func matchParents(pm *patternmatcher.PatternMatcher, dir string, infos map[string]patternmatcher.MatchInfo) patternmatcher.MatchInfo {
	if dir == "." || dir == "/" || dir == "" {
		return patternmatcher.MatchInfo{}
	}
	if i, ok := infos[dir]; ok {
		return i
	}
	_, info, err := pm.MatchesUsingParentResults(dir, matchParents(pm, path.Dir(dir), infos))
	if err != nil {
		return patternmatcher.MatchInfo{}
	}
	infos[dir] = info
	return info
}

func (c *Copy) perm(mode fs.FileMode) fs.FileMode {
	if bits, err := parseMode(c.Mode); err == nil && c.Mode != "" {
		return mode.Type() | fs.FileMode(bits&0o777) | specialBits(bits)
	}
	return mode & (fs.ModeType | fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
}

func specialBits(bits uint32) (m fs.FileMode) {
	if bits&0o4000 != 0 {
		m |= fs.ModeSetuid
	}
	if bits&0o2000 != 0 {
		m |= fs.ModeSetgid
	}
	if bits&0o1000 != 0 {
		m |= fs.ModeSticky
	}
	return m
}

// seal counts and digests the copy, and calls fn for each entry.
func (c *Copy) seal(fn func(Entry, ManifestFile)) error {
	if !utf8.ValidString(c.From + c.To + c.Content) {
		return fmt.Errorf("copying to %s: names and text must be UTF-8", quote(c.To))
	}
	var files []ManifestFile
	err := c.Walk(func(e Entry) error {
		f := ManifestFile{Path: bodycam.Escape(e.Rel), Mode: e.Mode.String(), Size: e.Size, Link: bodycam.Escape(e.Link)}
		if e.Mode.IsRegular() {
			if e.content != nil {
				f.SHA256 = digestText(*e.content)
			} else {
				m, err := e.host.manifest()
				if err != nil {
					return err
				}
				f.SHA256 = m.SHA256
			}
			c.Bytes += e.Size
		}
		if !utf8.ValidString(e.To + e.Link) {
			return fmt.Errorf("%s: the name isn't UTF-8", quote(e.Rel))
		}
		if !e.Mode.IsDir() {
			c.Files++
		}
		if e.Mode.IsRegular() {
			c.entries = append(c.entries, sealedEntry{to: e.To, host: filepath.Join(c.From, e.Rel), sha256: f.SHA256})
		}
		files = append(files, f)
		if fn != nil {
			fn(e, f)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.SHA256 = digestFiles(files)
	return nil
}
