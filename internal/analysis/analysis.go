// Package analysis runs the analyses of a kind over a run directory: built-in ones, and commands.
//
// A command reads events as JSON lines (docs/EVENTS.md) on standard input, gets the path of a copy of the run directory
// as its last argument, and writes its findings as JSON to standard output: a list of them, or an object with
// "version" and "findings". How it is kept from everything else is the caller's business: see [Exec].
package analysis

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// Analysis is one analysis as a kind names it.
type Analysis struct {
	Name       string
	Command    []string // nil: built in
	Dir        string   // of the file that names the command: where its relative paths begin
	Timeout    time.Duration
	Parameters map[string]json.RawMessage
}

// Builtin is an analysis that comes with bodycam.
type Builtin struct {
	Version string
	Digest  string // of what it judges by, where that is data
	Run     func(ctx context.Context, r *store.Run, parameters map[string]json.RawMessage) ([]bodycam.Finding, error)
}

// Job is a command that is to be run with no more rights than it needs: no network, a user of its own, a copy of the
// run directory and of Files, and nothing else of the host but its programs.
type Job struct {
	Argv   []string // the run directory's place is appended
	Files  []File   // that Argv names: they go along
	RunDir string   // on the host
	Env    []string // the whole environment
	Stdin  io.Reader
	Limit  int64 // bytes of output that are kept
}

// File is a file of the host and its place in the box.
type File struct{ Host, Box string }

// Output is what came of a job.
type Output struct {
	Stdout, Stderr []byte
	Exit           int
	Cut            bool // Stdout was longer than the limit
}

// Exec runs a job. It ends when the context does.
type Exec func(ctx context.Context, j Job) (Output, error)

// Record says what was run, so that a verdict can be repeated.
type Record struct {
	Name     string    `json:"name"`
	Command  []string  `json:"command,omitempty"` // empty: built in
	Version  string    `json:"version,omitempty"`
	SHA256   string    `json:"sha256,omitempty"` // of the command's files, or of what a built-in analysis judges by
	Started  time.Time `json:"started"`
	Seconds  float64   `json:"seconds"`
	Findings int       `json:"findings"`
	Error    string    `json:"error,omitempty"`
}

// RecordFile holds the records, in the run's folder for derived data.
const RecordFile = "analyses.json"

// DefaultTimeout bounds a command for which the kind says nothing.
const DefaultTimeout = 5 * time.Minute

// Run runs the analyses in order. One that fails doesn't keep the others from running; its error is part of what is
// returned beside all findings. The records are written into the run directory, unless the run is sealed only.
func Run(ctx context.Context, r *store.Run, list []Analysis, builtins map[string]Builtin, exec Exec) ([]bodycam.Finding, []Record, error) {
	findings, records := []bodycam.Finding{}, []Record{}
	var errs []error
	for _, a := range list {
		started := time.Now()
		rec := Record{Name: a.Name, Command: a.Command, Started: started.UTC()}
		fs, err := one(ctx, r, a, builtins, exec, &rec)
		for i := range fs {
			if fs[i].Analysis == "" || len(a.Command) > 0 {
				fs[i].Analysis = a.Name
			}
		}
		findings = append(findings, fs...)
		rec.Seconds, rec.Findings = time.Since(started).Seconds(), len(fs)
		if err != nil {
			err = fmt.Errorf("analysis %s: %w", a.Name, err)
			rec.Error = err.Error()
			errs = append(errs, err)
		}
		records = append(records, rec)
	}
	if !r.Sealed() {
		b, err := json.MarshalIndent(records, "", "  ")
		if err == nil {
			err = features.WriteDerived(r, RecordFile, append(b, '\n'))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("recording the analyses: %w", err))
		}
	}
	return findings, records, errors.Join(errs...)
}

func one(ctx context.Context, r *store.Run, a Analysis, builtins map[string]Builtin, exec Exec, rec *Record) ([]bodycam.Finding, error) {
	if len(a.Command) == 0 {
		b, ok := builtins[a.Name]
		if !ok {
			return nil, errors.New("there is no such built-in analysis, and it has no command")
		}
		rec.Version, rec.SHA256 = b.Version, b.Digest
		if a.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, a.Timeout)
			defer cancel()
		}
		return b.Run(ctx, r, a.Parameters)
	}
	if exec == nil {
		return nil, errors.New("commands can't be run here")
	}
	return external(ctx, r, a, exec, rec)
}

// The bounds of what a command may answer.
const (
	maxOutput   = 16 << 20
	maxFindings = 10_000
	maxErrors   = 2000 // bytes of standard error that are quoted
)

// boxDir is where a command's own files lie.
const boxDir = "/opt/analysis"

func external(ctx context.Context, r *store.Run, a Analysis, exec Exec, rec *Record) ([]bodycam.Finding, error) {
	argv, files, err := place(a)
	if err != nil {
		return nil, err
	}
	if rec.SHA256, err = digest(files); err != nil {
		return nil, err
	}
	params, err := json.Marshal(a.Parameters)
	if err != nil {
		return nil, err
	}
	if a.Parameters == nil {
		params = []byte("{}")
	}
	timeout := a.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	events, stop := stream(r)
	defer stop()
	out, err := exec(ctx, Job{Argv: argv, Files: files, RunDir: r.Dir, Stdin: events, Limit: maxOutput,
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1",
			"BODYCAM_EVENT_SCHEMA=" + fmt.Sprint(bodycam.EventSchema), "BODYCAM_PARAMETERS=" + string(params)}})
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("it did not end within %s", timeout)
	case err != nil:
		return nil, err
	case out.Exit != 0:
		return nil, fmt.Errorf("it ended with status %d: %s", out.Exit, quote(out.Stderr))
	case out.Cut:
		return nil, fmt.Errorf("it wrote more than %d bytes", maxOutput)
	}
	if err := stop(); err != nil {
		return nil, err
	}
	ans, err := ParseAnswer(out.Stdout, r.Info.Counts.Events)
	if err != nil {
		return nil, err
	}
	rec.Version = ans.Version
	return ans.Findings, nil
}

// place finds the files that a command names and gives them a place in the box. A program without a slash is one of
// the box's own.
func place(a Analysis) (argv []string, files []File, err error) {
	for i, arg := range a.Command {
		host := arg
		if !filepath.IsAbs(host) {
			host = filepath.Join(a.Dir, host)
		}
		st, serr := os.Stat(host)
		named := i == 0 && strings.Contains(arg, "/")
		if serr != nil || !st.Mode().IsRegular() || i == 0 && !named {
			if named && !systemProgram(arg) {
				return nil, nil, fmt.Errorf("its program %s isn't there: paths are relative to the kind's file", arg)
			}
			argv = append(argv, arg)
			continue
		}
		if systemProgram(host) {
			argv = append(argv, host)
			continue
		}
		box := fmt.Sprintf("%s/%d/%s", boxDir, i, filepath.Base(host))
		files = append(files, File{Host: host, Box: box})
		argv = append(argv, box)
	}
	return argv, files, nil
}

// systemProgram tells whether a path lies where the box has the host's own programs.
func systemProgram(p string) bool {
	for _, dir := range []string{"/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(p, dir) {
			return true
		}
	}
	return false
}

// digest is over the names and contents of a command's files.
func digest(files []File) (string, error) {
	if len(files) == 0 {
		return "", nil
	}
	h := sha256.New()
	for _, f := range files {
		b, err := os.ReadFile(f.Host)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%q %d\n", filepath.Base(f.Host), len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// stream gives a run's events as JSON lines. stop ends it and says whether the record could be read; that the reader
// didn't want all of it is no error.
func stream(r *store.Run) (io.Reader, func() error) {
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		var buf bytes.Buffer
		var line []byte
		err := r.Events(func(e *bodycam.Event) error {
			line = append(e.AppendJSON(line[:0]), '\n')
			buf.Write(line)
			if buf.Len() < 64<<10 {
				return nil
			}
			_, err := pw.Write(buf.Bytes())
			buf.Reset()
			return err
		})
		if errors.Is(err, store.ErrTorn) {
			err = nil
		}
		if err == nil {
			_, err = pw.Write(buf.Bytes())
		}
		if errors.Is(err, io.ErrClosedPipe) {
			err = nil
		}
		pw.CloseWithError(err)
		done <- err
	}()
	stopped := false
	var result error
	return pr, func() error {
		if !stopped {
			stopped = true
			pr.Close()
			result = <-done
		}
		return result
	}
}

func quote(b []byte) string {
	s := strings.TrimSpace(string(b))
	if len(s) > maxErrors {
		s = "… " + s[len(s)-maxErrors:]
	}
	if s == "" {
		return "it said nothing"
	}
	return bodycam.Printable(s)
}
