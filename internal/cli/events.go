package cli

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/spf13/cobra"
)

func eventsCommand(s *streams) *cobra.Command {
	var asJSON, follow bool
	var types []string
	var window, path, host string
	cmd := &cobra.Command{
		Use:   "events RUN",
		Short: "Print a run's events",
		Long: `Print every event of a run: what each process did, as the sensors saw it. They come in the order in which they arrived
at the recorder and were sealed, which is that of seq. It is nearly that of time, but not quite: processors report apart,
and repeats and closes are told late. To sort by when things happened, sort by boot (jq -s 'sort_by(.boot)').

With --json each line is one JSON object; docs/EVENTS.md describes its members. Paths, arguments and names are bytes:
a byte that isn't part of valid UTF-8 is printed as \xHH, and a backslash before xHH as \x5c, so nothing is lost.` +
			exits("0  all events were printed", "2  RUN is no run directory", "3  RUN may not be read", "4  what there is was printed, and isn't all: the run's record is incomplete (as bodycam show says) or has no end yet, isn't what was sealed or can't be held against the ledger for want of a key, events were erased, or with --follow the recorder was killed"),
		Example: `  bodycam events runs/20260101-120000-ab --json | jq 'select(.type=="connect")'
  bodycam events RUN --type exec,open
  bodycam events RUN --json --follow      while it runs`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := openRun(args[0])
			if err != nil {
				return err
			}
			want, err := typeSet(types)
			if err != nil {
				return err
			}
			if window != "" {
				if _, ok := bodycam.ParseWindow(window); !ok {
					return usage("--window %s: want agent, post-agent or verify", window)
				}
			}
			out := bufio.NewWriterSize(s.out, 64<<10)
			var buf []byte
			each := func(e *bodycam.Event) error {
				if want != nil && !want[e.Type] || window != "" && e.Window.String() != window ||
					path != "" && !strings.HasPrefix(e.Path, path) && !strings.HasPrefix(e.Path2, path) || host != "" && e.Host != host {
					return nil
				}
				if asJSON {
					buf = append(e.AppendJSON(buf[:0]), '\n')
				} else {
					buf = append(eventLine(buf[:0], e), '\n')
				}
				_, err := out.Write(buf)
				if err == nil && follow {
					err = out.Flush()
				}
				return err
			}
			if follow {
				err = r.Follow(cmd.Context(), each)
			} else {
				new(holder).hold(r)
				err = r.Events(each)
			}
			if ferr := out.Flush(); err == nil {
				err = ferr
			}
			if errors.Is(err, store.ErrTorn) {
				return &statusError{status: ExitInconclusive, err: fmt.Errorf("%s: %w: its writer was cut off", args[0], err)}
			}
			if errors.Is(err, store.ErrCut) {
				return &statusError{status: ExitInconclusive, err: fmt.Errorf("%s: %w", args[0], err)}
			}
			if errors.Is(err, cmd.Context().Err()) && follow {
				return nil
			}
			if err != nil || follow {
				return err
			}
			return stands(s, args[0], r.Info.Complete)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more while the run goes on")
	cmd.Flags().StringSliceVar(&types, "type", nil, "only these types (comma-separated): exec, open, connect …")
	cmd.Flags().StringVar(&window, "window", "", "only this window: agent, post-agent, verify")
	cmd.Flags().StringVar(&path, "path", "", "only events whose path begins so")
	cmd.Flags().StringVar(&host, "host", "", "only events of this host")
	return cmd
}

func typeSet(names []string) (map[bodycam.Type]bool, error) {
	if len(names) == 0 {
		return nil, nil
	}
	out := map[bodycam.Type]bool{}
	for _, n := range names {
		t, ok := bodycam.ParseType(n)
		if !ok {
			return nil, withHint(usage("--type %s: there is no such event type", n), "types are "+strings.Join(bodycam.Types()[1:], ", "))
		}
		out[t] = true
	}
	return out, nil
}

// eventLine is one event for people.
func eventLine(b []byte, e *bodycam.Event) []byte {
	at := time.Unix(0, e.Time).UTC().Format("15:04:05.000000")
	b = fmt.Appendf(b, "%7d %s %-9s %6d %-16s", e.Seq, at, e.Type, e.Proc.PID, bodycam.Printable(base(e.Exe)))
	what, second := e.Path, e.Path2
	switch e.Type {
	case bodycam.TypeExec:
		what = strings.Join(e.Argv, " ")
	case bodycam.TypeConnect, bodycam.TypeSend, bodycam.TypeAccept, bodycam.TypeBind, bodycam.TypeFlow, bodycam.TypeTLS, bodycam.TypeHTTP:
		what = e.Addr()
		if e.Remote.IsValid() {
			what = e.Proto.String() + " " + e.Remote.String()
		}
		if e.Host != "" {
			what += " " + e.Host + " (" + e.HostSource.String() + ")"
		}
	case bodycam.TypeDNS:
		what = e.Host
	case bodycam.TypeDenied:
		what = e.Syscall()
	case bodycam.TypeMount:
		// mount itself has its source second: nothing was renamed.
		if from := cmp.Or(e.Path2, e.Path2Given); from != "" && e.Syscall() == "mount" {
			what = from + " on " + e.Path
			second = ""
		}
	case bodycam.TypeFork:
		what = fmt.Sprintf("pid %d", e.Child.PID)
		if e.Failed() {
			what = e.Syscall()
		}
	case bodycam.TypeExit:
		what = fmt.Sprintf("status %d", e.Status>>8&0xff)
		if sig := e.Status & 0x7f; sig != 0 {
			what = fmt.Sprintf("signal %d", sig)
		}
	}
	b = append(b, ' ')
	b = append(b, bodycam.Printable(what)...)
	if second != "" {
		b = append(b, " -> "...)
		b = append(b, bodycam.Printable(second)...)
	}
	if e.Access != 0 {
		b = fmt.Appendf(b, " [%s]", e.Access)
	}
	if e.Errno != 0 {
		b = fmt.Appendf(b, " %s", bodycam.ErrnoName(e.Errno))
	}
	if e.N() > 1 {
		b = fmt.Appendf(b, " ×%d", e.N())
	}
	if e.Detail != "" && e.Detail != what {
		b = append(b, ' ')
		b = append(b, bodycam.Printable(e.Detail)...)
	}
	for _, m := range e.Marks.Names() {
		b = fmt.Appendf(b, " !%s", m)
	}
	return b
}

func base(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[i+1:]
	}
	return path
}

// openRun opens a run by its directory, or by its name in the folder of runs.
func openRun(arg string) (*store.Run, error) {
	r, err := store.Open(arg)
	if errors.Is(err, store.ErrNotRun) {
		return nil, withHint(usage("%w", err), "`bodycam run` prints where it leaves its run directories (by default under ./runs)")
	}
	if err != nil {
		return nil, unopened(err)
	}
	if _, serr := os.Stat(r.Path(store.EventsFile)); errors.Is(serr, fs.ErrNotExist) && r.HasLedger() {
		// It is kept in its ledger alone: this machine's keys open it, if they do.
		if r.Identities, err = (&ringFlags{}).identities(); err != nil {
			return nil, err
		}
	}
	return r, nil
}
