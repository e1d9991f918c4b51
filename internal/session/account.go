package session

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/harness"
)

// maxLine bounds one line of a transcript, in bytes. What is longer is given to the parser in cut form.
const maxLine = 32 << 20

// account takes what the agent prints: it keeps it in a file, up to a limit, and hands it line by line to the
// harness's parser, with the time when each line arrived.
//
// The agent is hostile: it may print without end, without line feeds, or faster than anyone reads. Beyond the limit
// bytes are counted and dropped; the agent is never blocked for long by it.
type account struct {
	mu      sync.Mutex
	parser  harness.Parser
	file    *os.File
	limit   int64
	kept    int64
	dropped int64
	line    []byte
	skip    bool // the rest of an overlong line is being dropped
	err     error
}

func newAccount(path string, limit int64, p harness.Parser) (*account, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making the agent's output file: %w", err)
	}
	return &account{parser: p, file: f, limit: limit}, nil
}

// Write never fails: the agent must not notice a full disk of ours. What could not be kept is counted.
func (a *account) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := time.Now()
	keep := b
	if a.limit > 0 && a.kept+int64(len(b)) > a.limit {
		keep = b[:max(0, a.limit-a.kept)]
	}
	if len(keep) > 0 && a.err == nil {
		n, err := a.file.Write(keep)
		a.kept += int64(n)
		if err != nil {
			a.err = fmt.Errorf("keeping the agent's output: %w", err)
			keep = keep[:n]
		}
	}
	a.dropped += int64(len(b) - len(keep))
	if a.parser != nil {
		a.lines(at, keep)
	}
	return len(b), nil
}

func (a *account) lines(at time.Time, b []byte) {
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		part := b
		if i >= 0 {
			part = b[:i]
		}
		if !a.skip {
			a.line = append(a.line, part[:min(len(part), maxLine-len(a.line))]...)
			if len(a.line) >= maxLine {
				a.skip = true
				a.give(at)
			}
		}
		if i < 0 {
			return
		}
		if !a.skip {
			a.give(at)
		}
		a.skip = false
		b = b[i+1:]
	}
}

// give hands over a line. That the parser didn't understand it is no error: a row holds its text.
func (a *account) give(at time.Time) {
	_ = a.parser.Line(at, a.line)
	a.line = a.line[:0]
}

// finish ends the account and returns its rows and how many bytes were dropped.
func (a *account) finish() (rows []bodycam.Row, dropped int64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := time.Now()
	if a.parser != nil {
		if len(a.line) > 0 && !a.skip {
			a.give(at)
		}
		rows = a.parser.Finish(at)
	}
	if cerr := a.file.Close(); a.err == nil {
		a.err = cerr
	}
	return rows, a.dropped, a.err
}

// capped keeps the first bytes of an output and counts the rest.
type capped struct {
	mu      sync.Mutex
	w       io.Writer
	left    int64
	dropped int64
}

func (c *capped) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := b
	if int64(len(b)) > c.left {
		keep = b[:c.left]
	}
	n := len(keep)
	if n > 0 {
		var err error
		if n, err = c.w.Write(keep); err != nil {
			c.left = 0
		}
		c.left = max(0, c.left-int64(n))
	}
	c.dropped += int64(len(b) - n)
	return len(b), nil
}
