package cli

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/hostlog"
	"github.com/bodycam-dev/bodycam/internal/keyring"
	"github.com/bodycam-dev/bodycam/internal/mirror"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/rogpeppe/go-internal/testscript"
)

// ownHome gives a script keys, a machine's log and a home of its own.
func ownHome(e *testscript.Env) error {
	e.Setenv("BODYCAM_KEYS", filepath.Join(e.WorkDir, "keys"))
	e.Setenv("BODYCAM_HOME", filepath.Join(e.WorkDir, "home"))
	e.Setenv("HOME", e.WorkDir)
	e.Setenv("NO_COLOR", "1")
	return nil
}

// Each script in testdata/ledger is what a user, or an attacker, does with ledgers.
func TestLedgerScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/ledger",
		Setup: ownHome,
		Condition: func(c string) (bool, error) {
			switch c {
			case "root":
				return os.Geteuid() == 0, nil
			case "static":
				return static, nil
			}
			return false, fmt.Errorf("unknown condition %s", c)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mkrun": mkrun, "flip": flip, "cut": cut, "status": status, "mirrord": mirrord,
		},
	})
}

// mkrun NAME [sealed] [cut] [unhosted]: record a run of 1,203 events, two actions and a finding. sealed: without
// working copies. cut: its writer is killed, as far as the ledger can tell. unhosted: the machine's log isn't told.
func mkrun(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: mkrun NAME [sealed] [cut] [unhosted]")
	}
	has := map[string]bool{}
	for _, a := range args[1:] {
		has[a] = true
	}
	ring, _, err := keyring.OpenOrCreate(ts.Getenv("BODYCAM_KEYS"), nil)
	ts.Check(err)
	dir := ts.MkAbs(args[0])
	w, err := store.Create(dir, bodycam.Run{ID: args[0], Started: time.Now(), Plan: []byte("{}")}, &store.Sealing{
		Signers: ring.Signers, Recipients: ring.Recipients, Recorder: "script", Only: has["sealed"]})
	ts.Check(err)
	host := &hostlog.Log{Dir: hostlog.Dir(ring.Dir), Signers: nil, Recorder: "script"}
	host.Dir = filepath.Join(ts.Getenv("BODYCAM_HOME"), "host")
	host.Signers, err = keyring.Signers(ring.Dir, nil)
	ts.Check(err)
	if !has["unhosted"] {
		ts.Check(host.OpenRun(context.Background(), args[0], dir))
	}
	events(ts, w)
	if has["cut"] {
		ts.Check(w.Flush())
		time.Sleep(50 * time.Millisecond) // until the ledger's writer has handed its buffer over
		return
	}
	ts.Check(errors.Join(
		w.Action(&bodycam.Action{Intent: bodycam.Intent{Tool: "fetch"}, Execution: bodycam.Execution{Command: "curl http://a.example"}}),
		w.Action(&bodycam.Action{Intent: bodycam.Intent{Tool: "deploy"}, Execution: bodycam.Execution{Command: "deploy --to prod"},
			Policy: []bodycam.Policy{{Name: "guard", Verdict: "deny"}}, Effects: bodycam.Effects{Events: [][2]uint64{{4, 900}}, Confidence: 1},
			Delegation: &bodycam.Delegation{Requester: "planner", Scope: "staging only"}}),
		w.Findings([]bodycam.Finding{{Rule: "r1", Title: "wrote where it shouldn't", Severity: bodycam.High, Events: []uint64{700}}}),
		w.File("agent/stdout", []byte("all is well\n")),
		w.Coverage(bodycam.Health{Sensor: "bpf", Total: bodycam.Counters{Seen: 1203, Emitted: 1203}}),
		w.Update(func(r *bodycam.Run) { r.Ended = time.Now().UTC(); r.Complete = bodycam.Completeness{Complete: true} }),
		w.Close()))
	if !has["unhosted"] {
		ts.Check(host.CloseRun(context.Background(), args[0], dir))
	}
}

func events(ts *testscript.TestScript, w *store.Writer) {
	shell, tool := bodycam.Proc{PID: 10, Start: 1}, bodycam.Proc{PID: 11, Start: 2}
	add := func(e bodycam.Event) {
		e.NR = -1
		ts.Check(w.Event(&e))
	}
	add(bodycam.Event{Type: bodycam.TypeExec, Proc: shell, Exe: "/bin/sh", Argv: []string{"sh", "-c", "deploy"}, CWD: "/w"})
	add(bodycam.Event{Type: bodycam.TypeFork, Proc: shell, Child: tool})
	add(bodycam.Event{Type: bodycam.TypeExec, Proc: tool, Exe: "/bin/deploy", Argv: []string{"deploy"}})
	for i := range 1200 {
		add(bodycam.Event{Type: bodycam.TypeOpen, Proc: tool, Path: fmt.Sprintf("/w/secret-%d", i+4), Boot: uint64(i + 10)})
	}
}

// flip FILE N: change one byte; a negative N counts from the end.
func flip(ts *testscript.TestScript, neg bool, args []string) {
	path, n := spot(ts, args)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	ts.Check(err)
	defer f.Close()
	var b [1]byte
	_, err = f.ReadAt(b[:], n)
	ts.Check(err)
	b[0] ^= 0x55
	_, err = f.WriteAt(b[:], n)
	ts.Check(err)
}

// cut FILE N: make it N bytes long; a negative N takes as many off.
func cut(ts *testscript.TestScript, neg bool, args []string) {
	path, n := spot(ts, args)
	ts.Check(os.Truncate(path, n))
}

func spot(ts *testscript.TestScript, args []string) (string, int64) {
	if len(args) != 2 {
		ts.Fatalf("want FILE N")
	}
	path := ts.MkAbs(args[0])
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	info, err := os.Stat(path)
	ts.Check(err)
	if n < 0 {
		n += info.Size()
	}
	return path, n
}

// status N COMMAND…: run a command that must end with that exit status.
func status(ts *testscript.TestScript, neg bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	var ee interface{ ExitCode() int }
	if errors.As(err, &ee) {
		got = ee.ExitCode()
	} else {
		ts.Check(err)
	}
	if want := args[0]; strconv.Itoa(got) != want {
		ts.Fatalf("exit status %d, want %s", got, want)
	}
}

// mirrord DIR: serve a mirror over TLS until the script ends; its address and its certificate's file go into the
// environment, as MIRROR and MIRROR_CA.
func mirrord(ts *testscript.TestScript, neg bool, args []string) {
	const token = "a token for the tests"
	srv := httptest.NewTLSServer(mirror.Handler(mirror.NewDir(ts.MkAbs(args[0])), token))
	ts.Defer(srv.Close)
	ca := ts.MkAbs("mirror-ca.pem")
	ts.Check(os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600))
	ts.Setenv("MIRROR", srv.URL)
	ts.Setenv("MIRROR_CA", ca)
	ts.Setenv("BODYCAM_MIRROR_TOKEN", token)
}
