package kind

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// readIgnore reads the Dockerfile's own ignore file, or the context's.
func readIgnore(root string, spec BuildSpec) (patterns []string, name string, err error) {
	for _, name := range []string{spec.File + ".dockerignore", filepath.Join(spec.Context, ".dockerignore")} {
		data, err := readIn(root, relTo(root, name), maxFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, "", fmt.Errorf("reading %s: %w", name, cause(err))
		}
		patterns, err := ignorefile.ReadAll(strings.NewReader(string(data)))
		if err != nil {
			return nil, "", fmt.Errorf("reading %s: %w", name, err)
		}
		if len(patterns) > maxIgnore {
			return nil, "", fmt.Errorf("%s: %d patterns: at most %d are read", name, len(patterns), maxIgnore)
		}
		if _, err := patternmatcher.New(patterns); err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
		return patterns, name, nil
	}
	return nil, "", nil
}

// copyArgs is what COPY and ADD share.
type copyArgs struct {
	instructions.SourcesAndDest
	verb, code   string
	line         int
	owner, mode  string
	parents      bool
	unpack       bool // archives would be unpacked
	sourceChecks func(src string) (why string)
}

func (b *builder) copyCommand(c *instructions.CopyCommand, code string, line int) {
	if c.From != "" {
		b.refuse(code, line, bodycam.High, "COPY --from="+c.From+": other stages and images aren't built, so these files are missing")
		return
	}
	b.excludes(c.ExcludePatterns, code, line)
	b.copyFiles(copyArgs{SourcesAndDest: c.SourcesAndDest, verb: "COPY", code: code, line: line, owner: c.Chown, mode: c.Chmod, parents: c.Parents})
}

func (b *builder) addCommand(c *instructions.AddCommand, code string, line int) {
	b.excludes(c.ExcludePatterns, code, line)
	unpack := c.Unpack == nil || *c.Unpack
	remote := func(src string) string {
		switch {
		case strings.HasPrefix(src, "http://"), strings.HasPrefix(src, "https://"):
			return "ADD of a URL: nothing is fetched, so the file is missing"
		case strings.HasPrefix(src, "git@"), strings.HasPrefix(src, "git://"), strings.HasPrefix(src, "ssh://"):
			return "ADD of a git repository: nothing is fetched, so the files are missing"
		}
		return ""
	}
	b.copyFiles(copyArgs{SourcesAndDest: c.SourcesAndDest, verb: "ADD", code: code, line: line, owner: c.Chown, mode: c.Chmod, unpack: unpack, sourceChecks: remote})
}

func (b *builder) excludes(patterns []string, code string, line int) {
	if len(patterns) > 0 {
		b.refuse(code, line, bodycam.Medium, "--exclude isn't supported: everything is copied")
	}
}

func (b *builder) copyFiles(a copyArgs) {
	if a.owner != "" {
		if err := checkUser(a.owner); err != nil {
			b.fail(a.line, "%s --chown: %v", a.verb, err)
			return
		}
	}
	if a.mode != "" {
		if _, err := parseMode(a.mode); err != nil {
			b.refuse(a.code, a.line, bodycam.Medium, "--chmod="+a.mode+": only octal modes are supported; the source's mode is kept")
			a.mode = ""
		}
	}
	if a.parents {
		b.refuse(a.code, a.line, bodycam.High, a.verb+" --parents isn't supported: the files are missing")
		return
	}
	if strings.Contains(a.DestPath, "\x00") || a.DestPath == "" {
		b.fail(a.line, "%s: the destination is empty", a.verb)
		return
	}
	to := a.DestPath
	if !path.IsAbs(to) {
		to = path.Join("/", b.workdir) + "/" + to
	}
	sources := b.sources(a)
	many := len(sources)+len(a.SourceContents) > 1
	isDir := strings.HasSuffix(to, "/") || path.Base(to) == "." || path.Base(to) == ".." || many
	to = path.Clean(to)
	if many && !strings.HasSuffix(a.DestPath, "/") && !b.known[to] && path.Base(a.DestPath) != "." {
		// Docker insists on the slash only where several sources are written out; a glob decides at build time.
		if len(a.SourcePaths)+len(a.SourceContents) > 1 {
			b.fail(a.line, "%s: with several sources the destination %s must end with /", a.verb, quote(a.DestPath))
			return
		}
	}
	var copies []Copy
	for _, src := range sources {
		if c, ok := b.oneSource(a, src, to, isDir || b.known[to]); ok {
			copies = append(copies, c)
		}
	}
	for _, content := range a.SourceContents {
		copies = append(copies, b.content(a, content, to, isDir || b.known[to])...)
	}
	if len(copies) > 0 {
		b.addStep(a.code, a.line, PlanStep{Copies: copies, User: "root"})
	}
}

func (b *builder) content(a copyArgs, content instructions.SourceContent, to string, isDir bool) []Copy {
	data := content.Data
	if content.Expand {
		b.lex.SkipProcessQuotes = true
		var err error
		data, err = b.expand(data)
		b.lex.SkipProcessQuotes = false
		if err != nil {
			b.fail(a.line, "%s: here-document: %v", a.verb, err)
			return nil
		}
	}
	c := Copy{Content: data, To: to, Owner: a.owner, Mode: a.mode}
	if isDir {
		c.To = path.Join(to, path.Base(content.Path))
		b.known[to] = true
	} else {
		c.Name = path.Base(content.Path)
	}
	if err := c.seal(nil); err != nil {
		b.fail(a.line, "%s: here-document: %v", a.verb, err)
		return nil
	}
	return []Copy{c}
}

// sources expands a COPY's sources to paths relative to the context.
func (b *builder) sources(a copyArgs) []string {
	var out []string
	for _, src := range a.SourcePaths {
		if a.sourceChecks != nil {
			if why := a.sourceChecks(src); why != "" {
				b.refuse(a.code, a.line, bodycam.High, why)
				continue
			}
		}
		if climbs(src) {
			b.fail(a.line, "%s: %s leaves the build context", a.verb, quote(src))
			continue
		}
		rel := strings.TrimPrefix(path.Clean("/"+filepath.ToSlash(src)), "/")
		if rel == "" {
			rel = "."
		}
		if !strings.ContainsAny(rel, `*?[\`) {
			out = append(out, rel)
			continue
		}
		matches, err := b.glob(rel)
		switch {
		case err != nil:
			b.fail(a.line, "%s: %s: %v", a.verb, quote(src), err)
		case len(matches) == 0:
			b.fail(a.line, "%s: nothing in the build context matches %s", a.verb, quote(src))
		}
		out = append(out, matches...)
	}
	return out
}

func climbs(src string) bool {
	depth := 0
	for _, part := range strings.Split(filepath.ToSlash(src), "/") {
		switch part {
		case "", ".":
		case "..":
			depth--
		default:
			depth++
		}
		if depth < 0 {
			return true
		}
	}
	return false
}

// glob matches a pattern in the context without leaving it, and leaves out what is ignored.
func (b *builder) glob(pattern string) ([]string, error) {
	root, err := os.OpenRoot(b.spec.Context)
	if err != nil {
		return nil, cause(err)
	}
	defer root.Close()
	matches, err := fs.Glob(root.FS(), pattern)
	if err != nil {
		return nil, err
	}
	slices.Sort(matches)
	return slices.DeleteFunc(matches, func(m string) bool {
		fi, err := root.Stat(m)
		return err == nil && b.ignored(m, fi.IsDir())
	}), nil
}

func (b *builder) oneSource(a copyArgs, rel, to string, isDir bool) (Copy, bool) {
	root, err := os.OpenRoot(b.spec.Context)
	if err != nil {
		b.fail(a.line, "%s: the build context: %v", a.verb, cause(err))
		return Copy{}, false
	}
	defer root.Close()
	fi, err := root.Stat(rel)
	if err == nil && b.ignored(rel, fi.IsDir()) {
		b.fail(a.line, "%s: %s is left out by the ignore file", a.verb, quote(rel))
		return Copy{}, false
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b.fail(a.line, "%s: %s isn't in the build context", a.verb, quote(rel))
		return Copy{}, false
	case err != nil:
		b.fail(a.line, "%s: %s: %v", a.verb, quote(rel), cause(err))
		return Copy{}, false
	}
	c := Copy{From: filepath.Join(b.spec.Context, rel), Root: b.spec.Context, To: to, Owner: a.owner, Mode: a.mode}
	switch {
	case fi.IsDir():
		c.Exclude = b.ignore
		b.known[to] = true
	case a.unpack && isArchive(rel):
		b.refuse(a.code, a.line, bodycam.High, "ADD of an archive: it isn't unpacked, so its files are missing")
		return Copy{}, false
	case isDir:
		c.To = path.Join(to, path.Base(rel))
		b.known[to] = true
	default:
		c.Name = path.Base(rel)
	}
	err = c.seal(func(e Entry, _ ManifestFile) {
		if e.Mode.IsDir() {
			b.known[e.To] = true
		}
	})
	if err != nil {
		b.fail(a.line, "%s: %v", a.verb, err)
		return Copy{}, false
	}
	if b.entries += c.Files; b.entries > maxEntries {
		b.fail(a.line, "%s: the Dockerfile copies more than %d files", a.verb, maxEntries)
		b.stop = true
		return Copy{}, false
	}
	return c, true
}

func (b *builder) ignored(rel string, dir bool) bool {
	if len(b.ignore) == 0 || rel == "." {
		return false
	}
	pm, err := patternmatcher.New(b.ignore)
	if err != nil {
		return false // readIgnore has checked them
	}
	hit, err := pm.MatchesOrParentMatches(rel)
	return err == nil && hit && !(dir && pm.Exclusions())
}

func isArchive(name string) bool {
	for _, suffix := range []string{".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tbz2", ".tar.xz", ".txz", ".tar.zst"} {
		if strings.HasSuffix(strings.ToLower(name), suffix) {
			return true
		}
	}
	return false
}
