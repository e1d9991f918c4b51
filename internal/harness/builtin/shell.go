package builtin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// result is what came of a command.
type result struct {
	output   string
	cut      bool
	exit     int // 128+n where signal n ended it, as shells count
	timedOut bool
	left     bool // processes stayed behind and hold the output open
}

// shell runs commands one after another.
type shell struct {
	argv    []string // before the command
	dir     string
	timeout time.Duration
	limit   int
	keepDir bool // dir follows the shell's
}

// run runs one command to its end. The error is that of starting it.
func (s *shell) run(ctx context.Context, command string) (result, error) {
	cctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var dirR, dirW *os.File
	if s.keepDir {
		var err error
		if dirR, dirW, err = os.Pipe(); err != nil {
			return result{}, fmt.Errorf("make a pipe: %w", err)
		}
		defer dirR.Close()
		command += "\n__bodycam=$?; pwd -P >&3; exit $__bodycam"
	}
	argv := append(append([]string(nil), s.argv...), command)
	cmd := exec.CommandContext(cctx, argv[0], argv[1:]...)
	out := &capped{limit: s.limit}
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = s.dir, out, out, commandEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if dirW != nil {
		cmd.ExtraFiles = []*os.File{dirW}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // a daemon may hold the output open for ever
	err := cmd.Start()
	if dirW != nil {
		dirW.Close()
	}
	if err != nil {
		return result{}, fmt.Errorf("start %s: %w", argv[0], err)
	}
	err = cmd.Wait()
	r := result{timedOut: cctx.Err() != nil && ctx.Err() == nil, left: errors.Is(err, exec.ErrWaitDelay)}
	r.output, r.cut = out.text()
	r.exit = cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.exit = 128 + int(ws.Signal())
	}
	if dirR != nil {
		s.follow(dirR)
	}
	return r, nil
}

// follow takes the directory that the shell told.
func (s *shell) follow(r *os.File) {
	_ = r.SetReadDeadline(time.Now().Add(200 * time.Millisecond)) // a background process may hold the pipe
	b, _ := io.ReadAll(io.LimitReader(r, 8<<10))
	line, _, _ := bytes.Cut(b, []byte("\n"))
	if dir := string(line); strings.HasPrefix(dir, "/") {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			s.dir = dir
		}
	}
}

// commandEnv is the agent's environment without its credential.
func commandEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, KeyEnv+"=") {
			env = append(env, e)
		}
	}
	return env
}

// capped keeps the beginning and the end of what is written.
type capped struct {
	limit int
	head  []byte
	tail  []byte
	total int
}

func (c *capped) Write(p []byte) (int, error) {
	n := len(p)
	c.total += n
	if room := c.limit/2 - len(c.head); room > 0 {
		k := min(room, len(p))
		c.head, p = append(c.head, p[:k]...), p[k:]
	}
	c.tail = append(c.tail, p...)
	if len(c.tail) > 2*c.limit { // cut seldom, not at every write
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-c.limit/2:]...)
	}
	return n, nil
}

func (c *capped) text() (string, bool) {
	if len(c.tail) > c.limit/2 {
		c.tail = c.tail[len(c.tail)-c.limit/2:]
	}
	if left := c.total - len(c.head) - len(c.tail); left > 0 {
		return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", c.head, left, c.tail), true
	}
	return string(c.head) + string(c.tail), false
}
