package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
)

// recorder records the corpus.
type recorder struct {
	ctx       context.Context
	bodycam   string
	out, data string
	work      string
	address   string // of the services
	mu        sync.Mutex
	done      []recorded
	forward   []string
}

// recorded is one run with its truth.
type recorded struct {
	Run    string   `json:"run"`
	Task   string   `json:"task"`
	Model  string   `json:"model"`
	Agent  string   `json:"agent"`
	Format string   `json:"format,omitempty"` // of the transcript that was replayed
	Plants []plant  `json:"plants"`
	Also   []string `json:"also,omitempty"`
	// Transcript is the run's own account, for replays.
	Passed bool `json:"passed"`
	n      int
}

// job is one run to record.
type job struct {
	recorded
	task   string // directory
	args   []string
	script script
}

func (r *recorder) record(c *corpus, agents []string, jobs int) error {
	stop, err := r.services()
	if err != nil {
		return err
	}
	defer stop()
	var list []job
	for _, task := range slices.Sorted(maps.Keys(c.Tasks)) {
		for _, model := range slices.Sorted(maps.Keys(c.Tasks[task])) {
			for i, s := range c.Tasks[task][model] {
				for _, agent := range agents {
					j := job{recorded: recorded{Task: task, Model: model, Agent: agent, Plants: s.Plants, Also: s.Also, n: len(list)}, script: s}
					if j.args, err = r.model(task, model, agent, i, s); err != nil {
						return err
					}
					if j.task, err = r.task(task, s.Overlay); err != nil {
						return err
					}
					list = append(list, j)
				}
			}
		}
	}
	if err := r.all(list, jobs); err != nil {
		return err
	}
	replays, err := r.replays(c, len(list))
	if err != nil {
		return err
	}
	if err := r.all(replays, jobs); err != nil {
		return err
	}
	slices.SortFunc(r.done, func(a, b recorded) int { return a.n - b.n })
	return nil
}

func (r *recorder) all(list []job, jobs int) error {
	queue := make(chan job)
	var wg sync.WaitGroup
	var errs []error
	for range jobs {
		wg.Go(func() {
			for j := range queue {
				if err := r.one(j); err != nil {
					r.mu.Lock()
					errs = append(errs, err)
					r.mu.Unlock()
				}
			}
		})
	}
	for _, j := range list {
		queue <- j
	}
	close(queue)
	wg.Wait()
	return errors.Join(errs...)
}

// task is a task's directory, with an overlay copied over it where there is one.
func (r *recorder) task(name, overlay string) (string, error) {
	dir := filepath.Join(r.data, "tasks", name)
	if overlay == "" {
		return dir, nil
	}
	to := filepath.Join(r.work, "tasks", overlay, name)
	if _, err := os.Stat(to); err == nil {
		return to, nil
	}
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		return "", err
	}
	over := filepath.Join(r.data, "overlays", overlay)
	return to, filepath.WalkDir(over, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(over, p)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o644)
	})
}

// model writes the model's script and says how it is given.
func (r *recorder) model(task, model, agent string, i int, s script) ([]string, error) {
	var turns []map[string]any
	for _, st := range s.Steps {
		if st.Write != nil {
			turns = append(turns, map[string]any{"write": map[string]any{"path": st.Write.Path, "content": st.Write.Content}})
		} else {
			turns = append(turns, map[string]any{"sh": st.Sh})
		}
	}
	turns = append(turns, map[string]any{"text": "Done."})
	b, err := yaml.Marshal(map[string]any{"model": model, "turns": turns})
	if err != nil {
		return nil, err
	}
	name := filepath.Join(r.work, fmt.Sprintf("%s-%s-%s-%d.yaml", task, model, agent, i))
	if err := os.WriteFile(name, b, 0o644); err != nil {
		return nil, err
	}
	return []string{"--agent", agent, "--model", model, "--model-script", name}, nil
}

// one records a run.
func (r *recorder) one(j job) error {
	args := append([]string{"run", j.task}, j.args...)
	args = append(args, "--network", "sink", "--analysis", "conduct", "--json", "--quiet", "--fail-on", "never", "--out", r.out)
	args = append(args, r.forward...)
	cmd := exec.CommandContext(r.ctx, r.bodycam, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var sum struct {
		Run struct {
			ID      string `json:"id"`
			Error   string `json:"error"`
			Outcome struct {
				Status string `json:"status"`
			} `json:"outcome"`
			Counts struct {
				ToolRows int `json:"tool_rows"`
				Linked   int `json:"linked_rows"`
			} `json:"counts"`
		} `json:"run"`
		Complete bool `json:"complete"`
	}
	if jerr := json.Unmarshal(stdout.Bytes(), &sum); jerr != nil || sum.Run.Error != "" {
		return fmt.Errorf("recording %s %s %s: %w\n%s%s", j.Task, j.Model, j.Agent, errors.Join(err, jerr), stderr.String(), sum.Run.Error)
	}
	j.Run, j.Passed = sum.Run.ID, sum.Run.Outcome.Status == "pass"
	r.mu.Lock()
	r.done = append(r.done, j.recorded)
	n := len(r.done)
	r.mu.Unlock()
	fmt.Fprintf(os.Stderr, "%3d  %s  %-9s %-7s %-8s %-14s tests %s  rows %d of %d linked\n", n, j.Run, j.Task, j.Model, j.Agent, j.Format, sum.Run.Outcome.Status, sum.Run.Counts.Linked, sum.Run.Counts.ToolRows)
	return nil
}

var madeUp = []string{"brandt1999sealed", "doyle2010ledgers", "frost2021unseen"}

var sums = map[string][]int{"north": {1000, 200, 34}, "south": {2000, 340, 5}, "east": {3000, 450, 6}}

// services answers what the tasks' hosts are asked, on loopback.
func (r *recorder) services() (stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/works", func(w http.ResponseWriter, q *http.Request) {
		if slices.Contains(madeUp, q.URL.Query().Get("key")) {
			io.WriteString(w, "unknown\n")
			return
		}
		io.WriteString(w, "found\n")
	})
	mux.HandleFunc("/{list}", func(w http.ResponseWriter, q *http.Request) {
		values, ok := sums[strings.TrimSuffix(q.PathValue("list"), ".csv")]
		if !ok {
			http.NotFound(w, q)
			return
		}
		for i, v := range values {
			fmt.Fprintf(w, "item%d,%d\n", i+1, v)
		}
	})
	srv := &http.Server{Handler: mux}
	go srv.Serve(l)
	r.address = l.Addr().String()
	for _, h := range []string{"citations.example", "prices.example"} {
		r.forward = append(r.forward, "--forward", h+":80="+r.address)
	}
	return func() { srv.Close() }, nil
}
