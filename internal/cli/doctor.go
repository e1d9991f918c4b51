package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/internal/harness"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"github.com/bodycam-dev/bodycam/internal/sensor/bpf"
	"github.com/spf13/cobra"
)

// checkup is one thing that doctor looked at.
type checkup struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Why   string `json:"why,omitempty"`  // what is wrong, or what was found
	Need  bool   `json:"need,omitempty"` // without it a run can't be recorded
}

func doctorCommand(s *streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "List what this machine and user can do, and what is missing for more",
		Long: `Try everything that bodycam uses: eBPF program types (by loading them), cgroups, namespaces, overlay, KVM, the
kernel's questions before it opens a file (for rules of mode deny), and the agent programs. What isn't there is listed
with why, and with what bodycam does instead. What recorders that were killed left behind is named and removed, as
every run does.` + exits("0  a run can be recorded here", "3  it can't"),
		Example: "  bodycam doctor\n  sudo bodycam doctor --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := examine(cmd.Context())
			able, sensor := verdict(list)
			if asJSON {
				if err := printJSON(s, map[string]any{"able": able, "sensor": sensor, "checks": list}); err != nil {
					return err
				}
			} else {
				printCheckups(s, list, able, sensor)
			}
			if !able {
				return &statusError{status: ExitEnvironment}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func examine(ctx context.Context) []checkup {
	list := []checkup{leftovers()} // before the sandbox is tried, which would remove them
	for _, f := range bpf.Probe() {
		c := checkup{Group: "eBPF", Name: f.Name, OK: f.OK, Why: f.Why, Need: f.Needed}
		list = append(list, c)
	}
	for _, c := range sandbox.Available(ctx) {
		list = append(list, checkup{Group: "sandbox", Name: c.Name, OK: c.OK, Why: c.Why, Need: c.Name == "sandbox"})
	}
	list = append(list, guardCheckup())
	for _, name := range harness.Names() {
		h, err := harness.Get(name)
		if err != nil {
			continue
		}
		dctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		info, err := h.Detect(dctx)
		cancel()
		c := checkup{Group: "harness", Name: name, OK: err == nil}
		if err != nil {
			c.Why = err.Error()
		} else {
			c.Why = info.Version + " " + info.Path
		}
		list = append(list, c)
	}
	for _, tool := range []string{"gcc", "python3", "npm", "clang-19"} {
		path, err := exec.LookPath(tool)
		c := checkup{Group: "for development", Name: tool, OK: err == nil, Why: path}
		if err != nil {
			c.Why = "not found: only the tests and generated files need it"
		}
		list = append(list, c)
	}
	return list
}

// leftovers removes what killed recorders left.
func leftovers() checkup {
	c := checkup{Group: "killed recorders", Name: "nothing left behind", OK: true}
	stale, err := sandbox.Stale()
	if len(stale) > 0 {
		c.Why = "removed now: cgroups, files and records of " + strings.Join(stale, ", ")
	}
	if err = errors.Join(err, sandbox.Sweep()); err != nil {
		c.OK, c.Why = false, "can't be removed: "+err.Error()
	}
	return c
}

// verdict says whether a run can be recorded, and by which sensor.
func verdict(list []checkup) (able bool, sensor string) {
	able, sensor = true, "bpf"
	if os.Geteuid() != 0 {
		sensor = "ptrace"
	}
	for _, c := range list {
		if c.Group == "sandbox" && c.Need && !c.OK {
			able = false
		}
		if c.Group == "eBPF" && c.Need && !c.OK {
			sensor = "ptrace"
		}
	}
	return able, sensor
}

func printCheckups(s *streams, list []checkup, able bool, sensor string) {
	group := ""
	paint := func(code, text string) string {
		if !s.colour {
			return text
		}
		return "\x1b[" + code + "m" + text + "\x1b[0m"
	}
	for _, c := range list {
		if c.Group != group {
			group = c.Group
			fmt.Fprintf(s.out, "%s\n", group)
		}
		mark := paint("32", "yes")
		if !c.OK {
			mark = paint("33", "no ")
		}
		fmt.Fprintf(s.out, "  %s  %-24s %s\n", mark, c.Name, c.Why)
	}
	who := "an ordinary user"
	if os.Geteuid() == 0 {
		who = "root"
	}
	switch {
	case !able:
		fmt.Fprintf(s.out, "\nAs %s, no run can be recorded here: see the lines above.\n", who)
	case sensor == "bpf":
		fmt.Fprintf(s.out, "\nAs %s, runs are recorded with the bpf sensor.\n", who)
	default:
		better := "As root, eBPF does better."
		if os.Geteuid() == 0 {
			better = "eBPF would do better: the lines above say what it lacks."
		}
		fmt.Fprintf(s.out, "\nAs %s, runs are recorded with the ptrace sensor: slower, and it sees no bytes per file. %s\n", who, better)
	}
}
