package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bodycam-dev/bodycam/internal/analysis"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
)

// analysisRun is where a command finds its copy of the run directory.
const analysisRun = "/run-directory"

// confined runs an analysis's command in a box of its own: no network, an ordinary user, the host's programs, copies of
// the run directory and of the files that the command names. What it does to the copies is gone with the box.
func confined(ctx context.Context, j analysis.Job) (out analysis.Output, err error) {
	state, err := os.MkdirTemp("", "bodycam-analysis-")
	if err != nil {
		return out, err
	}
	defer os.RemoveAll(state)
	var id [5]byte
	rand.Read(id[:])
	box, err := sandbox.Create(ctx, sandbox.Config{ID: fmt.Sprintf("analysis-%x", id), StateDir: filepath.Join(state, "box"),
		Limits: sandbox.Limits{MemoryBytes: 2 << 30, Pids: 256, DiskBytes: 4 << 30, OutputBytes: uint64(j.Limit) + 1}})
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	entries, err := os.ReadDir(j.RunDir)
	if err != nil {
		return out, err
	}
	for _, e := range entries {
		switch e.Name() {
		case "ledger", "payload", "features", ".reserve", "ledger.json": // what is sealed, and what can be made again
			continue
		}
		if err := box.CopyIn(ctx, filepath.Join(j.RunDir, e.Name()), analysisRun+"/"+e.Name(), sandbox.CopyOpts{}); err != nil {
			return out, err
		}
	}
	for _, f := range j.Files {
		st, err := os.Stat(f.Host)
		if err != nil {
			return out, err
		}
		if err := box.CopyIn(ctx, f.Host, f.Box, sandbox.CopyOpts{Mode: 0o444 | st.Mode()&0o111}); err != nil {
			return out, err
		}
	}
	var stdout, stderr bytes.Buffer
	p, err := box.Start(ctx, sandbox.Cmd{Argv: append(j.Argv, analysisRun), Env: j.Env, Dir: "/tmp", Stdin: j.Stdin, Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		return out, err
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
			_ = box.Kill(context.WithoutCancel(ctx), sandbox.GroupAgent) // its end is waited for below
		case <-ended:
		}
	}()
	st, _ := p.Wait()
	if st.Err != nil && ctx.Err() == nil {
		return out, st.Err
	}
	out = analysis.Output{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), Exit: st.Code}
	if st.Signal != 0 {
		out.Exit = 128 + int(st.Signal)
	}
	out.Cut = int64(len(out.Stdout)) > j.Limit
	return out, nil
}
