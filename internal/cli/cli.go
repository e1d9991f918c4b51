// Package cli is bodycam's command line: flags, wiring and exit statuses. The work is done elsewhere.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit statuses. They are part of the interface.
const (
	ExitOK           = 0 // fine
	ExitGate         = 1 // a gate failed: findings at or above the threshold, tampered, trust below the threshold
	ExitUsage        = 2 // usage or configuration
	ExitEnvironment  = 3 // environment or infrastructure failed
	ExitInconclusive = 4 // nothing found, but the evidence is incomplete: no verdict
)

// statusError carries an exit status. Where err is nil, everything was said already.
type statusError struct {
	status int
	err    error
	hint   string
}

func (e *statusError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &statusError{status: ExitUsage, err: fmt.Errorf(format, args...)}
}

func environment(err error) error {
	if err == nil {
		return nil
	}
	return &statusError{status: ExitEnvironment, err: err}
}

// unopened is the error for an argument that can't be opened: that it may not be read isn't the caller's mistake.
func unopened(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return environment(err)
	}
	return usage("%w", err)
}

func withHint(err error, hint string) error {
	var se *statusError
	if errors.As(err, &se) {
		return &statusError{status: se.status, err: err, hint: hint}
	}
	return &statusError{status: ExitUsage, err: err, hint: hint}
}

// streams are what a command talks through.
type streams struct {
	in       io.Reader
	out, err io.Writer
	colour   bool // standard output is a terminal and NO_COLOR is not set
	progress bool // standard error is a terminal
}

// Main runs a command line and returns its exit status.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	sandbox.Init() // does not return where this process is to be a sandbox's first
	// The collector comes when the heap has doubled. This part of it is never touched and costs no memory, but lets garbage
	// grow to as much before that: a short run, whose heap is a few megabytes, is collected 3 times in place of 12.
	room := make([]byte, 32<<20)
	defer runtime.KeepAlive(room)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	s := &streams{in: stdin, out: stdout, err: stderr, colour: wantColour(stdout), progress: isTerminal(stderr)}
	root := newRoot(s)
	root.SetArgs(args[1:])
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := misspelt(root, args[1:])
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if err == nil {
		return ExitOK
	}
	var se *statusError
	if !errors.As(err, &se) {
		se = &statusError{status: ExitUsage, err: err} // cobra's own: flags and arguments
	}
	if se.err != nil {
		fmt.Fprintf(stderr, "bodycam: %s\n", forTerminal(err))
	}
	if se.hint != "" {
		fmt.Fprintf(stderr, "  hint: %s\n", se.hint)
	}
	return se.status
}

// forTerminal is an error's text without control characters, which names on the command line and in the files may bring along.
func forTerminal(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, l := range lines {
		lines[i] = bodycam.Printable(l)
	}
	return strings.Join(lines, "\n")
}

// endAtSignals lets a signal end the process at once, for a command that only reads: it leaves nothing half done.
func endAtSignals() { signal.Reset(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) }

//go:generate go run ./gen ../../docs/man

// Root is the command tree, for the generator of the man pages.
func Root() *cobra.Command { return newRoot(&streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}) }

func newRoot(s *streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "bodycam",
		Short: "Record what AI agents do, from the kernel, and judge it",
		Long: `bodycam runs an AI agent in an isolated environment and records, from the kernel, every command, file and
host that the agent and every process it starts touch. The record doesn't depend on the agent's own account.`,
		Example: `  bodycam run ./task --agent codex      run an agent on a task and record it
  bodycam show RUN                      what happened, on one screen
  bodycam events RUN --json             every event, one JSON object a line
  bodycam doctor                        what this machine and user can do`,
		SilenceUsage: true, SilenceErrors: true,
		Version: version(),
	}
	root.SetFlagErrorFunc(nearFlag)
	root.SetVersionTemplate("bodycam {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = false
	root.AddCommand(runCommand(s), showCommand(s), eventsCommand(s), kindCommand(s), modelCommand(s), doctorCommand(s), compareCommand(s), probeCommand(s))
	root.AddCommand(ledgerCommands(s)...)
	root.AddCommand(checkCommand(s), rulesCommand(s), judgeCommand(s))
	root.AddCommand(hiddenCommands(s)...)
	cobra.EnableCommandSorting = false
	plainArguments(root)
	return root
}

// misspelt is the error for a command that a group of commands lacks: cobra would print the group's help and call that success.
func misspelt(root *cobra.Command, args []string) error {
	cmd, rest, err := root.Find(args)
	if err != nil || cmd == root || cmd.Runnable() || !cmd.HasSubCommands() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return nil // what else is wrong comes out when it is executed
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	err = usage("%s %s: there is no such command", cmd.CommandPath(), rest[0])
	if near := kind.Nearest(rest[0], names); near != "" {
		return withHint(err, "did you mean "+near+"?")
	}
	return withHint(err, "there are "+strings.Join(names, ", "))
}

// plainArguments says what a command wants instead of how many arguments cobra counted.
func plainArguments(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			var told *statusError
			switch {
			case err == nil || errors.As(err, &told):
				return err
			case len(args) == 0:
				err = usage("%s: an argument is missing", c.CommandPath())
			default:
				err = usage("%s: these arguments aren't what it takes: %q", c.CommandPath(), args)
			}
			return withHint(err, "usage: "+strings.Join(strings.Fields(c.UseLine()), " "))
		}
	}
	for _, c := range cmd.Commands() {
		plainArguments(c)
	}
}

// nearFlag names the flag that was likely meant.
func nearFlag(cmd *cobra.Command, err error) error {
	name, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := kind.Nearest(name, names); near != "" {
		return withHint(err, "did you mean --"+near+"?")
	}
	return withHint(err, cmd.CommandPath()+" --help lists them")
}

// exits writes the section that every command's help ends with.
func exits(lines ...string) string {
	return "\n\nEXIT STATUS\n  " + strings.Join(lines, "\n  ")
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

func wantColour(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
