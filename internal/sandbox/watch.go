//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// watchName is argv[0] of a process that tidies up after a recorder that was killed.
const watchName = "box-watch"

// watcher is that process. It reads a pipe whose other end the recorder holds: a byte says that the box was closed, the
// end of the pipe that the recorder has died.
type watcher struct {
	cmd  *exec.Cmd
	ours *os.File
}

// startWatcher starts it. It keeps files open until the box is gone.
func startWatcher(keep []*os.File) (*watcher, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	w := &watcher{ours: ours, cmd: &exec.Cmd{Path: "/proc/self/exe", Args: []string{watchName}, Env: watchEnv(), Dir: "/", Stdin: theirs, ExtraFiles: keep,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}} // what ends the recorder's group or terminal must not end it
	if err := w.cmd.Start(); err != nil {
		ours.Close()
		return nil, fmt.Errorf("start the process that tidies up: %w", err)
	}
	return w, nil
}

// watchEnv is what recordDir goes by.
func watchEnv() []string {
	env := []string{}
	for _, name := range []string{"XDG_RUNTIME_DIR", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// stop ends the watcher of a box that was closed.
func (w *watcher) stop() {
	_, _ = w.ours.Write([]byte{0}) // it may have been killed
	w.ours.Close()
	_ = w.cmd.Wait()
}

// watchMain is the watcher's life, if this process is one. It never returns then.
func watchMain() {
	if len(os.Args) != 1 || os.Args[0] != watchName {
		return
	}
	recorder := os.Getppid()
	if n, err := os.Stdin.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		os.Exit(0)
	}
	// The pipe ends a moment before the recorder counts as dead.
	started, err := startTime(recorder)
	for range 500 {
		if t, e := startTime(recorder); err != nil || e != nil || t != started {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if Sweep() != nil {
		os.Exit(1) // what is left stays for the next box, and `bodycam doctor` names it
	}
	os.Exit(0)
}
