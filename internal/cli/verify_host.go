package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/hostlog"
	"github.com/bodycam-dev/bodycam/internal/mirror"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// hostNote is what the machine's log knows of a run.
type hostNote struct {
	Status  ledger.Status `json:"status"`
	Reasons []string      `json:"reasons,omitempty"`
}

// compareMirror holds the run against a mirror and takes the mirror's checkpoint as a root of trust.
func (f *verifyFlags) compareMirror(ctx context.Context, v *verification, t *ledger.Trust) error {
	m, err := openMirror(f.mirror, f.ca)
	if err != nil {
		return err
	}
	if v.Mirror, err = mirror.Compare(ctx, v.Path, m, mirror.CompareOptions{Trusted: f.trustMirror}); err != nil {
		return environment(fmt.Errorf("comparing with the mirror: %w", err))
	}
	if p := v.Mirror.Pinned; p != nil {
		t.Pinned = append(t.Pinned, *p)
	}
	v.Trust = append(v.Trust, v.Mirror.Where)
	return nil
}

// openMirror opens a mirror. The token for one behind TLS comes from the environment.
func openMirror(where, caFile string) (mirror.Target, error) {
	o := mirror.ClientOptions{Token: os.Getenv(mirrorTokenEnv)}
	if caFile != "" {
		b, err := os.ReadFile(caFile)
		if err != nil {
			return nil, usage("reading the mirror's authorities: %w", err)
		}
		o.CAs = b
	}
	if strings.HasPrefix(where, "https://") && o.Token == "" {
		return nil, usage("a mirror behind TLS wants its token: set %s", mirrorTokenEnv)
	}
	m, err := mirror.Open(where, o)
	if err != nil {
		return nil, usage("%w", err)
	}
	return m, nil
}

const mirrorTokenEnv = "BODYCAM_MIRROR_TOKEN"

func (f *verifyFlags) hostDir() (string, error) {
	keys, err := f.ring.directory()
	if err != nil {
		return "", err
	}
	return hostlog.Dir(keys), nil
}

// pinKnown takes the head that the machine's log knows of a run as a root, where it knows one: what is put back in a run's place
// from before it was extended, or from before something was erased, isn't the run any more.
func (f *verifyFlags) pinKnown(v *verification, t *ledger.Trust) {
	st, gen, err := f.ring.known(&store.Run{Dir: v.Path})
	if err != nil {
		return // verifying the run says what is wrong with it; that there be such a log only --host asks for
	}
	if head := knownHead(st, gen); head != nil {
		t.Pinned = append(t.Pinned, *head)
	}
}

// stateOf is what the machine's log says of a ledger, nil where it doesn't know it.
func stateOf(states []*hostlog.State, gen *ledger.Genesis) *hostlog.State {
	id := gen.ID()
	i := slices.IndexFunc(states, func(st *hostlog.State) bool { return st.Log == hex.EncodeToString(id[:]) })
	if i < 0 {
		return nil
	}
	return states[i]
}

// knownHead is the last head that the machine's log knows of a ledger, nil where it knows none.
func knownHead(st *hostlog.State, gen *ledger.Genesis) *ledger.Pinned {
	if st == nil {
		return nil
	}
	head, ok := st.Head()
	if !ok {
		return nil
	}
	head.Origin = gen.Origin()
	return &ledger.Pinned{Checkpoint: head, Source: "the machine's log of runs"}
}

// pinHost takes what the machine's log knows of a run as a root.
func (f *verifyFlags) pinHost(v *verification, t *ledger.Trust) error {
	dir, err := f.hostDir()
	if err != nil {
		return err
	}
	states, err := hostlog.Read(dir)
	if errors.Is(err, hostlog.ErrNone) {
		return usage("%w", err)
	}
	if err != nil {
		return environment(err)
	}
	v.Host = &hostNote{Status: ledger.StatusVerified}
	gen, err := runGenesis(v.Path)
	if err != nil {
		v.Host.Status, v.Host.Reasons = ledger.StatusUnverifiable, []string{err.Error()}
		return nil
	}
	st := stateOf(states, gen)
	switch head := knownHead(st, gen); {
	case head != nil:
		t.Pinned = append(t.Pinned, *head)
	case st != nil:
		v.Host.Status, v.Host.Reasons = ledger.StatusIncomplete, []string{"it knows that the run began and not that it ended"}
	default:
		v.Host.Status, v.Host.Reasons = ledger.StatusUnverifiable, []string{"it doesn't know this run: it was recorded elsewhere, or put here"}
	}
	return nil
}

func runGenesis(dir string) (*ledger.Genesis, error) {
	b, err := regular.ReadFile(filepath.Join(dir, "ledger", "genesis"))
	if err != nil {
		return nil, err
	}
	return ledger.ParseGenesis(b)
}

// The states of a run that the machine's log knows.
const (
	hostIntact   = "intact"
	hostVanished = "vanished"
	hostUnended  = "unended"
	hostTampered = "tampered"
	hostUnknown  = "unknown"
)

type hostRun struct {
	Run    string    `json:"run"`
	Log    string    `json:"log"`
	Dir    string    `json:"dir"`
	Began  time.Time `json:"began,omitzero"`
	State  string    `json:"state"` // intact, vanished, unended, tampered, unknown
	Reason string    `json:"reason,omitempty"`
}

type hostReport struct {
	Verdict ledger.Verdict `json:"verdict"`
	Ledger  *ledger.Report `json:"ledger"` // of the machine's log itself
	Dir     string         `json:"dir"`
	Runs    []hostRun      `json:"runs"`
}

// verifyHost verifies the machine's log of runs and looks for each of them.
func (f *verifyFlags) verifyHost(ctx context.Context, s *streams, args []string) error {
	dir, err := f.hostDir()
	if err != nil {
		return err
	}
	states, err := hostlog.Read(dir)
	if errors.Is(err, hostlog.ErrNone) {
		return withHint(usage("%w", err), "it is made by the first run that is recorded with keys")
	}
	damaged := err
	trust, _, err := f.trust()
	if err != nil {
		return err
	}
	rep := &hostReport{Dir: dir, Runs: []hostRun{}}
	if rep.Ledger, err = ledger.Verify(ctx, regular.FS(dir), ledger.VerifyOptions{Trust: trust}); err != nil {
		return environment(fmt.Errorf("verifying the machine's log of runs: %w", err))
	}
	if damaged != nil && rep.Ledger.Verdict != ledger.Tampered {
		return environment(damaged)
	}
	where := ""
	if len(args) == 1 {
		where = args[0]
	}
	if rep.Runs, err = f.findRuns(ctx, states, where); err != nil {
		return err
	}
	rep.conclude()
	if f.json {
		err = printJSON(s, rep)
	} else {
		err = rep.text(s)
	}
	if err != nil {
		return environment(err)
	}
	v := verification{Report: &ledger.Report{Verdict: rep.Verdict}}
	return v.status()
}

// conclude: a machine's log never ends, so that its own report is never quite complete; what counts is whether it was
// tampered with, and whose it is.
func (r *hostReport) conclude() {
	r.Verdict = ledger.Verified
	c := &r.Ledger.Claims
	switch {
	case r.Ledger.Verdict == ledger.Tampered:
		r.Verdict = ledger.Tampered
	case c.Integrity.Status != ledger.StatusVerified, c.Identity.Status != ledger.StatusVerified:
		r.Verdict = ledger.Incomplete
	}
	for _, run := range r.Runs {
		switch run.State {
		case hostVanished, hostTampered:
			r.Verdict = ledger.Tampered
		case hostUnended:
			if r.Verdict == ledger.Verified {
				r.Verdict = ledger.Incomplete
			}
		}
	}
}

// findRuns looks for each run: in the folder that was given, under whatever name, and else where it was recorded.
func (f *verifyFlags) findRuns(ctx context.Context, states []*hostlog.State, where string) ([]hostRun, error) {
	found := map[string]string{} // log → directory
	if where != "" {
		entries, err := os.ReadDir(where)
		if err != nil {
			return nil, usage("%w", err)
		}
		for _, e := range entries {
			dir := filepath.Join(where, e.Name())
			if gen, err := runGenesis(dir); err == nil {
				id := gen.ID()
				found[hex.EncodeToString(id[:])] = dir
			}
		}
	}
	out := []hostRun{}
	for _, st := range states {
		dir, ok := found[st.Log]
		delete(found, st.Log)
		if !ok {
			dir = st.Dir // only what is nowhere is vanished
		}
		run := hostRun{Run: st.Run, Log: st.Log, Dir: dir, Began: st.Opened}
		if err := run.check(ctx, st, dir); err != nil {
			return nil, err
		}
		out = append(out, run)
	}
	for log, dir := range found {
		out = append(out, hostRun{Run: filepath.Base(dir), Log: log, Dir: dir, State: hostUnknown, Reason: "the machine's log doesn't know it"})
	}
	return out, nil
}

// check looks whether a run is there and ends as the machine's log says, or later.
func (h *hostRun) check(ctx context.Context, st *hostlog.State, dir string) error {
	gen, err := runGenesis(dir)
	if errors.Is(err, os.ErrNotExist) {
		h.State, h.Reason = hostVanished, "its ledger isn't there"
		return nil
	}
	if err != nil {
		h.State, h.Reason = hostTampered, err.Error()
		return nil
	}
	if id := gen.ID(); hex.EncodeToString(id[:]) != st.Log {
		h.State, h.Reason = hostTampered, "another run lies in its place"
		return nil
	}
	head := knownHead(st, gen)
	damage, err := damaged(ctx, dir, head)
	if err != nil {
		return environment(err)
	}
	switch {
	case damage != "":
		h.State, h.Reason = hostTampered, damage
	case head == nil:
		h.State, h.Reason = hostUnended, "it began and its end was never noted: it is still going on, or its recorder was killed"
	default:
		h.State = hostIntact
	}
	return nil
}

func (r *hostReport) text(s *streams) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", strings.ToUpper(string(r.Verdict)), r.Dir)
	if f := r.Ledger.FirstBad; f != nil {
		fmt.Fprintf(&b, "first bad: record %d (epoch %d): %s\n", f.Seq, f.Epoch, bodycam.Printable(f.What))
	}
	if c := r.Ledger.Claims.Identity; c.Status != ledger.StatusVerified {
		fmt.Fprintf(&b, "identity: %s: %s\n", c.Status, strings.Join(c.Reasons, "; "))
	}
	counts := map[string]int{}
	for _, run := range r.Runs {
		counts[run.State]++
	}
	fmt.Fprintf(&b, "\n  %s: %d intact, %d vanished, %d tampered with, %d without an end, %d that it doesn't know\n", count(uint64(len(r.Runs)), "run"),
		counts[hostIntact], counts[hostVanished], counts[hostTampered], counts[hostUnended], counts[hostUnknown])
	for _, run := range r.Runs {
		if run.State == hostIntact {
			continue
		}
		fmt.Fprintf(&b, "  %-9s %s  %s\n            %s\n", run.State, bodycam.Printable(run.Run), bodycam.Printable(run.Dir), bodycam.Printable(run.Reason))
	}
	if counts[hostVanished] > 0 {
		b.WriteString("\n  a run can't be taken out of this log. One that was deleted is found again in a backup or a mirror: verify --host DIR.\n" +
			"  To be rid of what a run holds, and keep it intact: bodycam keys destroy RUN --all, and leave its folders ledger and payload\n")
	}
	_, err := s.out.Write([]byte(b.String()))
	return err
}

// damaged says what is wrong with the ledger in a run directory, by its own keys and a head that is known of it: "" where it is whole.
// It finds damage; whose keys those are it doesn't judge. Payloads aren't opened, so it costs little beside reading them.
func damaged(ctx context.Context, dir string, known *ledger.Pinned) (string, error) {
	trust := ledger.Trust{Self: true}
	if known != nil {
		trust.Pinned = []ledger.Pinned{*known}
	}
	rep, err := ledger.Verify(ctx, regular.FS(dir), ledger.VerifyOptions{Trust: trust})
	if err != nil {
		return "", fmt.Errorf("verifying %s: %w", dir, err)
	}
	if rep.Verdict != ledger.Tampered {
		return "", nil
	}
	if rep.FirstBad != nil && rep.FirstBad.What != "" {
		return rep.FirstBad.What, nil
	}
	if all := slices.Concat(rep.Claims.Integrity.Reasons, rep.Claims.Order.Reasons, rep.Claims.Identity.Reasons); len(all) > 0 {
		return all[0], nil
	}
	return "it was tampered with", nil
}

// hostLog opens the machine's log for writing.
func (f *ringFlags) hostLog() (*hostlog.Log, error) {
	dir, err := f.directory()
	if err != nil {
		return nil, err
	}
	signers, err := f.signers()
	if err != nil {
		return nil, err
	}
	return &hostlog.Log{Dir: hostlog.Dir(dir), Signers: signers, Recorder: recorderName()}, nil
}

// known is what the machine's log knows of a run; nil where it knows nothing.
func (f *ringFlags) known(r *store.Run) (*hostlog.State, *ledger.Genesis, error) {
	dir, err := f.directory()
	if err != nil {
		return nil, nil, err
	}
	gen, err := runGenesis(r.Dir)
	if err != nil {
		return nil, nil, err
	}
	states, err := hostlog.Read(hostlog.Dir(dir))
	if errors.Is(err, hostlog.ErrNone) {
		return nil, gen, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return stateOf(states, gen), gen, nil
}

// seen is the head that the machine's log knows of a run: a ledger that holds less was rolled back and must not be
// continued.
func (f *ringFlags) seen(r *store.Run) ([]checkpoint.Checkpoint, error) {
	st, gen, err := f.known(r)
	if err != nil {
		return nil, err
	}
	head := knownHead(st, gen)
	if head == nil {
		return nil, nil
	}
	return []checkpoint.Checkpoint{head.Checkpoint}, nil
}

// noteRun brings the machine's log up to date with a run that was extended, if it knows the run.
func (f *ringFlags) noteRun(ctx context.Context, r *store.Run) error {
	st, _, err := f.known(r)
	if err != nil || st == nil {
		return err
	}
	l, err := f.hostLog()
	if err != nil {
		return err
	}
	return l.CloseRun(ctx, st.Run, r.Dir)
}
