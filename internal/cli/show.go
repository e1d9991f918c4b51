package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/approval"
	"github.com/bodycam-dev/bodycam/internal/features"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/report"
	"github.com/bodycam-dev/bodycam/internal/session"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/spf13/cobra"
)

func showCommand(s *streams) *cobra.Command {
	var asJSON, all bool
	var approvers approverFlags
	cmd := &cobra.Command{
		Use:   "show RUN",
		Short: "Say what happened in a run, on one screen",
		Long: `Say what happened in a run: the tests' verdict, what stands out, commands, files, hosts, how the agent's account
compares, and what was lost or could not be seen. What is ordinary for the system and the harness is counted, not
listed: --all lists it.` + exits("0  shown", "2  RUN is no run directory", "3  RUN may not be read", "4  the record is incomplete, isn't what was sealed or can't be held against its ledger; what there is was shown"),
		Example: "  bodycam show runs/20260101-120000-ab\n  bodycam show RUN --json | jq .hosts",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			endAtSignals()
			r, err := openRun(args[0])
			if err != nil {
				return err
			}
			standing := new(holder).stand(r) // it has a place of its own
			sum, err := summariseAll(r, all)
			if err != nil {
				return environment(err)
			}
			weigh(standing, sum)
			items, err := approvers.approvals(r, &ringFlags{})
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(s.out)
				enc.SetIndent("", "  ")
				err = enc.Encode(struct {
					*report.Summary
					Approvals []approval.Item `json:"approvals,omitempty"`
				}{sum, items})
			} else if err = sum.Text(s.out, s.colour, all); err == nil && len(items) > 0 {
				var b strings.Builder
				writeApprovals(&b, items)
				_, err = fmt.Fprintf(s.out, "\n%s", b.String())
			}
			if err != nil {
				return environment(fmt.Errorf("printing the run: %w", err))
			}
			if !sum.Completed {
				return &statusError{status: ExitInconclusive}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "list everything")
	approvers.add(cmd.Flags())
	return cmd
}

// weigh says of what is shown what isn't as it was sealed.
func weigh(st *store.Standing, sum *report.Summary) {
	why := st.Reasons()
	sum.Completed = sum.Completed && len(why) == 0
	sum.Unsealed = st.Unsealed
	rest := store.Standing{Refused: st.Refused, Erased: st.Erased, Unknown: st.Unknown} // the other has its own place
	sum.Run.Complete = rest.Complete(sum.Run.Complete)
}

func summarise(r *store.Run) (*report.Summary, error) { return summariseAll(r, false) }

// summariseAll turns a run into what `show` says.
func summariseAll(r *store.Run, all bool) (*report.Summary, error) {
	f, err := features.Load(r, joinRows)
	if err != nil {
		return nil, fmt.Errorf("reading the record of %s: %w", r.Dir, err)
	}
	rows, err := r.Rows()
	if err != nil {
		return nil, err
	}
	links, err := r.Links()
	if err != nil {
		return nil, err
	}
	findings, err := r.Findings()
	if err != nil {
		return nil, err
	}
	if r.Cut() {
		if err := recount(r); err != nil {
			return nil, fmt.Errorf("counting the record of %s: %w", r.Dir, err)
		}
	}
	y := yardstick(r)
	info := r.Info
	info.Complete = info.Whole().Lacking(gaveUp(findings)...)
	s := &report.Summary{
		Run: info, Dir: r.Dir, Findings: findings, Apart: map[string]int{},
		Account: account(r, rows, links), NotSeen: notSeen(r, f), Completed: info.Complete.Complete && !f.Torn,
		Unusual: []report.Unusual{}, NotStarted: notStarted(&r.Info), LastWords: lastWords(r),
	}
	slices.SortStableFunc(s.Findings, func(a, b bodycam.Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	found := map[string]bool{}
	for _, fi := range s.Findings {
		found[bodycam.Unescape(fi.Resource)] = fi.Severity >= bodycam.Medium || found[bodycam.Unescape(fi.Resource)]
	}
	for _, n := range f.Notables(y) {
		if n.Resource != nil && found[n.Resource.Name] {
			continue // a finding says it already, and better
		}
		u := unusual(n)
		if i := slices.IndexFunc(s.Unusual, func(o report.Unusual) bool { return o.What == u.What && o.Why == u.Why && o.By == u.By }); i >= 0 {
			s.Unusual[i].Count += max(1, u.Count)
			continue
		}
		s.Unusual = append(s.Unusual, u)
	}
	for _, res := range f.Resources {
		place(s, res, y, all)
	}
	return s, nil
}

// notStarted tells whether a run ended without its agent's program having been executed.
func notStarted(r *bodycam.Run) bool {
	if r.Ended.IsZero() {
		return false
	}
	for _, p := range r.Phases {
		if p.Name == "agent" {
			return p.Exit == nil
		}
	}
	return true
}

// lastWords is the last line that an agent which failed wrote to its standard error, as far as a screen holds it.
func lastWords(r *store.Run) string {
	failed := false
	for _, p := range r.Info.Phases {
		failed = failed || p.Name == "agent" && p.Exit != nil && *p.Exit != 0
	}
	if !failed {
		return ""
	}
	b, err := r.ReadFile(store.AgentDir + "/stderr")
	if err != nil {
		return "" // it is a convenience, and not kept where the ledger alone is
	}
	const most = 300
	b = bytes.TrimSpace(b)
	b = b[bytes.LastIndexByte(b, '\n')+1:]
	return bodycam.Escape(string(b[:min(len(b), most)]))
}

// recount counts what is in the record of a run that was cut off, whose run.json is from before its agent began.
func recount(r *store.Run) error {
	c := bodycam.RunCounts{ByType: map[string]uint64{}}
	procs := map[bodycam.Proc]bool{}
	err := r.Raw(func(e *bodycam.Event) error {
		c.Events++
		c.Calls += e.N()
		c.ByType[e.Type.String()] += e.N()
		procs[e.Proc] = true
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrTorn) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c.Processes = uint64(len(procs))
	r.Info.Counts = c
	return nil
}

// fate says what became of a file that the agent wrote: "" where it is still there under this name.
func fate(r *features.Resource) string {
	last := func(actions ...features.Action) (seq uint64) {
		for _, a := range actions {
			if at, ok := r.At[a]; ok {
				seq = max(seq, at[1])
			}
		}
		return seq
	}
	made, gone, moved := last(features.Created, features.Written, features.Linked), last(features.Deleted), last(features.Renamed)
	switch {
	case gone > made && gone > moved:
		return "deleted"
	case moved > made:
		return "moved away"
	}
	return ""
}

// place puts a resource into its list, or counts it apart where it is ordinary.
func place(s *report.Summary, r *features.Resource, y features.Yardstick, all bool) {
	line := report.Line{Name: r.Label(), Count: r.Most(), Failed: r.Tried(), Bytes: r.Bytes, Actions: map[string]uint64{}}
	for a, n := range r.Counts {
		line.Actions[string(a)] = n
	}
	add := func(title string, list *[]report.Line) {
		if !all && y.Ordinary(r) {
			s.Apart[title]++
			return
		}
		*list = append(*list, line)
	}
	switch r.Kind {
	case bodycam.Command:
		if !all && line.Count == 0 {
			s.Apart["COMMANDS"]++ // looked for along PATH and not there
			return
		}
		line.Note = strings.Join(cutArgv(r.Argv), " ")
		s.Commands = append(s.Commands, line)
	case bodycam.Host:
		line.Addrs, line.Known, line.Count = r.Addrs, r.Source, r.Counts[features.Contact]
		if r.Refused > 0 {
			line.Note = fmt.Sprintf("not let through ×%d", r.Refused)
		}
		if slices.Contains(y.Endpoints, r.Name) {
			line.Note = "provided by the recorder"
		}
		s.Hosts = append(s.Hosts, line)
	case bodycam.File:
		c := r.Counts
		if c[features.Written]+c[features.Created]+c[features.Deleted]+c[features.Renamed]+c[features.Changed]+c[features.Linked] > 0 {
			line.Note = fate(r)
			add("FILES WRITTEN", &s.Written)
		} else if c[features.Read]+c[features.Executed]+c[features.Contact]+r.Failed[features.Read] > 0 {
			add("FILES READ", &s.Read)
		}
	}
}

// cutArgv shortens what a screen can't hold.
func cutArgv(argv []string) []string {
	const mostArgs, mostBytes = 8, 100
	out := make([]string, 0, mostArgs+1)
	for i, a := range argv {
		if i == mostArgs {
			out = append(out, "…")
			break
		}
		if len(a) > mostBytes {
			a = a[:mostBytes] + "…"
		}
		out = append(out, a)
	}
	return out
}

func unusual(n features.Notable) report.Unusual {
	u := report.Unusual{Rank: n.Rank, Why: n.Why}
	if n.Special != nil {
		u.What = strings.TrimSpace(n.Special.Call + " " + n.Special.Detail)
		u.By, u.Count, u.Failed = n.Special.Exe, n.Special.Count, n.Special.Errno != 0
		if n.Special.Errno != 0 {
			by := ""
			if n.Special.Refused {
				by = " from the sandbox"
			}
			u.Why += " (" + bodycam.ErrnoName(n.Special.Errno) + by + ")"
		}
		return u
	}
	r := n.Resource
	u.What, u.Count, u.Failed = r.Label(), r.Total(), r.Total() == 0
	u.By = strings.Join(r.By(), ", ")
	return u
}

// yardstick is what the run's plan declares as ordinary.
func yardstick(r *store.Run) features.Yardstick {
	var p kind.Plan
	y := features.Yardstick{Endpoints: []string{session.ModelHost}}
	if err := json.Unmarshal(r.Info.Plan, &p); err != nil {
		return y // a run without a readable plan is judged by nothing: everything stands out
	}
	y.Workspace, y.HarnessState, y.Programs = p.Judge.Workspace, p.Judge.HarnessState, p.Judge.TrustedPrograms
	y.Domains = append(append(y.Domains, p.Judge.TrustedDomains...), p.Judge.Allow.Hosts...)
	y.Files = p.Judge.Allow.Files
	y.HarnessState = append(slices.Clone(y.HarnessState), r.Info.Agent.State...)
	y.Programs = append(slices.Clone(y.Programs), r.Info.Agent.Programs...)
	if a := r.Info.Environment.Resolver; a != "" {
		y.Endpoints = append(y.Endpoints, a)
	}
	for _, k := range p.Skills {
		y.Skills = append(y.Skills, k.Roots...)
	}
	for _, f := range p.Network.Forward {
		y.Domains = append(y.Domains, f.Host)
	}
	for _, g := range p.Grading {
		if g.Box != "" {
			y.Grading = append(y.Grading, g.Box)
		}
		y.Grading = append(y.Grading, g.Exposed...)
	}
	return y
}

func account(r *store.Run, rows []bodycam.Row, links []bodycam.Link) report.Account {
	a := report.Account{Rows: len(rows), Transcript: len(rows) > 0, Commands: r.Info.Counts.ByType["exec"]}
	for _, u := range r.Info.Unlinked {
		if u.Startup {
			a.Startup++
		} else {
			a.Unlinked++
		}
	}
	linked := map[int]bool{}
	for _, l := range links {
		if l.Row >= 0 {
			linked[l.Row] = true
		}
	}
	for _, row := range rows {
		if row.Kind != bodycam.RowTool {
			continue
		}
		a.ToolCalls++
		switch {
		case linked[row.Index]:
			a.Linked++
		case row.Failed && row.Exit == nil:
			a.NotRun++ // refused, or not to be started: it claims no effect
		case row.Command != "" || len(row.Files) > 0:
			a.Unborne++
		}
	}
	return a
}

func notSeen(r *store.Run, f *features.Features) []string {
	out := []string{}
	if f.Torn {
		out = append(out, "the events file is torn: the recorder was cut off")
	}
	if r.Cut() {
		out = append(out, "the run has no end: it was cut off, or is still going on")
		if st, err := r.Stat(filepath.Join(store.AgentDir, "stdout")); err == nil && st.Size() > 0 {
			out = append(out, fmt.Sprintf("the transcript was not read before the run was cut off: the agent's output, %d bytes, is in agent/stdout", st.Size()))
		}
	}
	for _, h := range r.Info.Sensors {
		if h.Failed != "" {
			out = append(out, h.Sensor+" failed: "+h.Failed)
		}
		if h.Total.Lost > 0 || h.Gaps > 0 {
			out = append(out, fmt.Sprintf("%s: %d events lost, %d sequence numbers missing", h.Sensor, h.Total.Lost, h.Gaps))
		}
		for _, b := range h.Blind {
			line := b.What + ": " + b.Why
			if b.Count > 0 {
				line += fmt.Sprintf(" (×%d)", b.Count)
			}
			out = append(out, line)
		}
	}
	out = append(out, r.Info.Notes...)
	for _, k := range r.Info.Skipped {
		out = append(out, "not collected: "+k.Box+": "+k.Why)
	}
	return out
}
