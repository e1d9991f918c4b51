package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// scale compares many large runs that are made from recorded ones: their events again and again, as other processes,
// a fifth of the paths under other names each time. It prints how long bodycam compare takes and the most memory that
// it held: once when it has to extract the features, once with the features that were kept.
func scale(ctx context.Context, bodycamBin, out string, recorded []recorded, runs int, events uint64) error {
	dir, err := os.MkdirTemp(filepath.Dir(out), "bodycam-scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	next := make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for range 2 {
		wg.Go(func() {
			for i := range next {
				if err := synthesise(filepath.Join(out, recorded[i%len(recorded)].Run), filepath.Join(dir, fmt.Sprintf("run-%04d", i)), i, events); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for i := range runs {
		next <- i
	}
	close(next)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Printf("%d runs of %d events made in %s\n", runs, events, time.Since(began).Round(time.Second))
	for _, what := range []string{"features extracted and kept", "features that were kept"} {
		cmd := exec.CommandContext(ctx, bodycamBin, "compare", "--by", "task,model,agent", "--json", dir)
		cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		began := time.Now()
		err := cmd.Run()
		took := time.Since(began)
		var exit *exec.ExitError
		if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 4) {
			return fmt.Errorf("bodycam compare: %w\n%s", err, stderr.String())
		}
		var c struct {
			Runs  []json.RawMessage `json:"runs"`
			Pairs []json.RawMessage `json:"pairs"`
		}
		if err := json.Unmarshal(stdout.Bytes(), &c); err != nil {
			return err
		}
		usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		if !ok {
			return errors.New("this system tells no memory use")
		}
		fmt.Printf("%s: %d runs, %d pairs, %.1f s, %.1f s of CPU, %d MiB\n", what, len(c.Runs), len(c.Pairs), took.Seconds(),
			(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), usage.Maxrss>>10)
	}
	return nil
}

func synthesise(from, to string, n int, want uint64) error {
	r, err := store.Open(from)
	if err != nil {
		return err
	}
	rows, err := r.Rows()
	if err != nil {
		return err
	}
	links, err := r.Links()
	if err != nil {
		return err
	}
	info := r.Info
	info.ID = filepath.Base(to)
	w, err := store.Create(to, info, nil)
	if err != nil {
		return err
	}
	var have uint64
	for copies := 0; have < want; copies++ {
		err := r.Raw(func(e *bodycam.Event) error {
			if have >= want {
				return nil
			}
			have++
			if copies > 0 {
				again(e, copies, n)
			}
			return w.Event(e)
		})
		if err != nil {
			return err
		}
	}
	for _, name := range []string{"manifest-before.json", "manifest-after.json"} {
		var m any
		if err := r.JSON(name, &m); err != nil {
			return err
		}
		if err := w.JSON(name, m); err != nil {
			return err
		}
	}
	if err := errors.Join(w.Rows(rows), w.JSON(store.LinksFile, links)); err != nil {
		return err
	}
	return w.Close()
}

// again makes an event another process's, and gives a fifth of the paths another name.
func again(e *bodycam.Event, copies, n int) {
	shift := func(p *bodycam.Proc) {
		if p.PID != 0 {
			p.PID += int32(copies) * 100_000
			p.Start += uint64(copies)
		}
	}
	shift(&e.Proc)
	shift(&e.Parent)
	shift(&e.Child)
	e.Boot += uint64(copies) * 60e9
	e.Time += int64(copies) * 60e9
	name := func(p string) string {
		sum := 0
		for i := range len(p) {
			sum = sum*31 + int(p[i])
		}
		if (sum+copies)%5 != 0 || !strings.HasPrefix(p, "/") {
			return p
		}
		return p + "." + string(rune('a'+copies%26)) + string(rune('a'+n%26))
	}
	e.Path, e.Path2 = name(e.Path), name(e.Path2)
}
