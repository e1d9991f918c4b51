package liars

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/internal/otlp"
	"github.com/bodycam-dev/bodycam/internal/trust/audit"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
	"github.com/bodycam-dev/bodycam/internal/trust/trace"
)

// auditorAt is set in the process that audits and is killed: directory, agent and address for traces.
const auditorAt = "BODYCAM_TEST_AUDITOR"

func TestMain(m *testing.M) {
	if at := os.Getenv(auditorAt); at != "" {
		var o [3]string
		if err := json.Unmarshal([]byte(at), &o); err == nil {
			err = auditor(o[0], o[1], o[2])
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// auditor audits the agent with forty tools, one message at a time, or takes the audit up.
func auditor(dir, target, address string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	store := new(trace.Store)
	go func() { _ = otlp.Serve(ctx, l, store.Sink) }()
	a, _ := Get("forty-tools")
	r, err := Setting{Judge: Oracle{}, PerScope: 20, Seed: 3, Dir: dir, Timeout: 20 * time.Second, Wait: 20 * time.Second, Concurrency: 1}.audit(ctx, a, target, store)
	if err != nil {
		return err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "result.json"), b, 0o600)
}

// An audit that is killed (SIGKILL) again and again, while it sends and while it steers, ends with the verdict of one that
// isn't; no probe whose answer is kept is asked again; and its evidence gives the same verdict once more.
func TestKilledAndResumed(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	a, _ := Get("forty-tools")
	do := a.Do
	a.Do = func(q Query) Act {
		mu.Lock()
		asked[q.Text]++
		mu.Unlock()
		return do(q)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- (&Server{Agent: a, OTLP: "http://" + address, Delay: 5 * time.Millisecond, Retry: 10 * time.Second}).Serve(ctx, l)
	}()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	start := func(dir string) *exec.Cmd {
		at, _ := json.Marshal([3]string{dir, "http://" + l.Addr().String(), address})
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), auditorAt+"="+string(at))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	whole := t.TempDir()
	if err := start(whole).Wait(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	once := len(asked)
	for text, n := range asked {
		if n != 1 {
			t.Errorf("uninterrupted, %q is asked %d times", text, n)
		}
	}
	clear(asked)
	mu.Unlock()
	if once <= 60 {
		t.Errorf("%d probes: there was no steering", once)
	}

	dir := t.TempDir()
	kills := []int{0, 1, 7, 30, 59, 60, 62, once - 1}
	for _, n := range kills {
		cmd := start(dir)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		killed := false
		for !killed {
			if lines(t, dir) >= n {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatalf("the auditor ended before %d answers were kept: %v", n, err)
				}
				killed = true
			}
			select {
			case err := <-ended:
				if !killed {
					t.Fatalf("the auditor ended by itself, with %d answers kept: %v", lines(t, dir), err)
				}
				ended <- err
			default:
			}
		}
		<-ended
	}
	if err := start(dir).Wait(); err != nil {
		t.Fatal(err)
	}
	twice := 0
	for text, n := range asked {
		if n > 1 {
			twice += n - 1
			t.Logf("%q was in flight %d times", text, n-1)
		}
	}
	if twice > len(kills) {
		t.Errorf("%d messages were sent again after %d kills: more than what was in flight", twice, len(kills))
	}
	want, got := resultOf(t, whole), resultOf(t, dir)
	if want.Gate != score.Pass || got.Gate != want.Gate || got.Score != want.Score || got.Interval != want.Interval || len(got.Probes) != len(want.Probes) {
		t.Errorf("gate %s, score %v %v of %d probes, uninterrupted %s, %v %v of %d: %v", got.Gate, got.Score, got.Interval, len(got.Probes), want.Gate, want.Score, want.Interval, len(want.Probes), got.Reasons)
	}
	for i := range min(len(want.Probes), len(got.Probes)) {
		w, g := want.Probes[i], got.Probes[i]
		if w.ID != g.ID || w.Prompt != g.Prompt || w.Verdict != g.Verdict || w.Class != g.Class || !slices.Equal(w.Calls, g.Calls) {
			t.Errorf("probe %d: %+v, uninterrupted %+v", i, g, w)
		}
	}
	_, e, err := audit.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if again := score.Score(e, score.Defaults()); again.Gate != got.Gate || again.Score != got.Score || again.Interval != got.Interval {
		t.Errorf("scored again: %s %v %v, was %s %v %v", again.Gate, again.Score, again.Interval, got.Gate, got.Score, got.Interval)
	}
}

// lines counts the answers kept.
func lines(t *testing.T, dir string) int {
	b, err := os.ReadFile(filepath.Join(dir, audit.ExchangesFile))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}

func resultOf(t *testing.T, dir string) *score.Result {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	r := new(score.Result)
	if err := json.Unmarshal(b, r); err != nil {
		t.Fatal(err)
	}
	return r
}
