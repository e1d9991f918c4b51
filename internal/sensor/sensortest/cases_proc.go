package sensortest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

func procCases() []Case {
	open, fork, exit, exec := typ(bodycam.TypeOpen), typ(bodycam.TypeFork), typ(bodycam.TypeExit), typ(bodycam.TypeExec)
	return []Case{
		{Name: "09-many/5000-true", Argv: []string{"procs", "storm", "5000"}, Check: func(t *testing.T, o *Outcome) {
			if o.num(t, "bad") != 0 {
				t.Errorf("%d of the commands failed under observation", o.num(t, "bad"))
			}
			o.count(t, 5000, fork, pid(o.PID), errno(0))
			o.count(t, 5000, exec, exe(real(t, "/bin/true")), argv("true"), errno(0))
			o.count(t, 5001, exit)
			t.Logf("%d events, sensor %.2f s CPU", len(o.Events), o.Health.CPU)
		}},
		{Name: "09-many/fork-tree-200", Argv: []string{"procs", "tree", "200"}, Check: func(t *testing.T, o *Outcome) {
			o.count(t, 200, fork, errno(0), cond{"within the tree", func(e *bodycam.Event) bool { return int(e.Child.PID) != o.PID }})
			leaf := o.one(t, open, path(o.in("leaf")), errno(0))
			parents := make(map[bodycam.Proc]bodycam.Proc)
			for i := range o.Events {
				if e := &o.Events[i]; e.Type == bodycam.TypeFork {
					parents[e.Child] = e.Proc
				}
			}
			depth := 0
			for p := leaf.Proc; int(p.PID) != o.PID && depth < 300; p = parents[p] {
				depth++
			}
			if depth != 200 {
				t.Errorf("the leaf lies %d forks deep, want 200", depth)
			}
		}},
		{Name: "09-many/orphan", Argv: []string{"procs", "orphan"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, fork, kid(o, t), child(o.pid(t, "grandchild")))
			o.one(t, open, pid(o.pid(t, "grandchild")), path(o.in("from-orphan")), errno(0))
			o.one(t, exit, pid(o.pid(t, "grandchild")), status(7<<8))
		}},
		{Name: "09-many/daemon", Argv: []string{"procs", "daemon"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, pid(o.pid(t, "daemon")), path(o.in("from-daemon")), errno(0))
			o.one(t, exit, pid(o.pid(t, "daemon")), status(0))
		}},
	}
}

func identityCases() []Case {
	open, fork, exit := typ(bodycam.TypeOpen), typ(bodycam.TypeFork), typ(bodycam.TypeExit)
	return []Case{
		{Name: "10-identity/thread", Argv: []string{"procs", "threads"}, Check: func(t *testing.T, o *Outcome) {
			tid := o.num(t, "tid")
			o.one(t, open, pid(o.PID), path(o.in("from-thread")), errno(0), cond{"the thread's tid", func(e *bodycam.Event) bool { return int(e.TID) == tid }})
			o.count(t, 0, fork, child(tid))
			o.count(t, 0, exit, pid(tid))
		}},
		{Name: "10-identity/leader-gone", Argv: []string{"procs", "leaderless"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, kid(o, t), path(o.in("after-leader")), errno(0))
			o.one(t, exit, kid(o, t), status(5<<8))
		}},
		{Name: "10-identity/pid-reuse", Argv: []string{"procs", "reuse"}, Need: func(o *Outcome) string {
			if o.fact("again") != "0" {
				return "this user can't choose a pid (CAP_CHECKPOINT_RESTORE): errno " + o.fact("again")
			}
			return ""
		}, Check: func(t *testing.T, o *Outcome) {
			a := o.one(t, open, kid(o, t), path(o.in("first")), errno(0))
			b := o.one(t, open, kid(o, t), path(o.in("second")), errno(0))
			if a.Proc == b.Proc {
				t.Errorf("two processes have the identity %+v", a.Proc)
			}
			o.one(t, exit, kid(o, t), status(1<<8))
			o.one(t, exit, kid(o, t), status(2<<8))
		}},
		{Name: "10-identity/clone-parent", Argv: []string{"procs", "cloneparent"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, fork, kid(o, t), child(o.pid(t, "sibling")))
		}},
		{Name: "10-identity/killed", Argv: []string{"procs", "killed"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, typ(bodycam.TypeSignal), pid(o.PID), child(o.pid(t, "child")), sig(9), errno(0))
			o.one(t, exit, kid(o, t), status(9))
		}},
		{Name: "10-identity/crashed", Argv: []string{"procs", "selfsignal"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, exit, kid(o, t), cond{"SIGSEGV", func(e *bodycam.Event) bool { return e.Status&0x7f == int32(unix.SIGSEGV) }})
		}},
		{Name: "10-identity/job-control", Argv: []string{"procs", "stopped"}, Check: func(t *testing.T, o *Outcome) {
			if o.fact("stopped") != "1" || o.num(t, "status") != 3<<8 {
				t.Errorf("SIGSTOP and SIGCONT work otherwise under observation: stopped %s, status %s", o.fact("stopped"), o.fact("status"))
			}
			o.one(t, open, path(o.in("continued")), errno(0))
		}},
		{Name: "10-identity/comm", Argv: []string{"procs", "comm"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, pid(o.PID), path(o.in("by-kworker")), errno(0))
			o.some(t, typ(bodycam.TypePrctl), pid(o.PID))
		}},
		{Name: "20-kin/clone3", Argv: []string{"procs", "clone3"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, fork, pid(o.PID), child(o.pid(t, "child")))
			o.one(t, open, kid(o, t), path(o.in("from-clone3")), errno(0))
		}},
		{Name: "20-kin/close-range", Argv: []string{"procs", "closerange"}, Check: func(t *testing.T, o *Outcome) {
			o.count(t, 2, open, path(o.in("f")), access(bodycam.Read), errno(0))
		}},
		{Name: "20-kin/ipc", Argv: []string{"procs", "ipc"}, Check: func(t *testing.T, o *Outcome) {
			call := func(n int32, fact, says string, bytes uint64) {
				t.Helper()
				o.one(t, typ(bodycam.TypeIPC), pid(o.PID), nr(n), o.outcome(t, fact), cond{"says " + says, func(e *bodycam.Event) bool {
					return strings.HasPrefix(e.Detail, says) && e.Bytes == bytes && e.Path == "" && e.Marks&inexact == 0
				}})
			}
			shm, msg, sem := "shared memory "+o.fact("shm"), "messages "+o.fact("msg"), "semaphores "+o.fact("sem")
			call(unix.SYS_SHMGET, "shmget", "shared memory key 0x5eed is "+o.fact("shm")+", 4096 bytes", 0)
			call(unix.SYS_SHMAT, "shmat", shm, 0)
			call(unix.SYS_MSGGET, "msgget", "messages key 0x0 is "+o.fact("msg"), 0)
			call(unix.SYS_MSGSND, "msgsnd", msg, 7)
			call(unix.SYS_MSGRCV, "msgrcv", msg, 7)
			call(unix.SYS_SEMGET, "semget", "semaphores key 0x0", 0)
			call(unix.SYS_SEMOP, "semop", sem, 0)
			call(unix.SYS_MQ_OPEN, "mq_open", "queue /sensortest", 0)
			call(unix.SYS_MQ_TIMEDSEND, "mq_send", "queue /sensortest", 5)
			call(unix.SYS_MQ_TIMEDRECEIVE, "mq_receive", "queue /sensortest", 5)
			call(unix.SYS_MQ_UNLINK, "mq_unlink", "queue /sensortest", 0)
		}},
		{Name: "20-kin/refused", Argv: []string{"procs", "refused"}, Check: func(t *testing.T, o *Outcome) {
			d := typ(bodycam.TypeDenied)
			for _, c := range []struct {
				fact string
				nr   int32
			}{{"swapon", unix.SYS_SWAPON}, {"quotactl", unix.SYS_QUOTACTL}, {"tiocsti", unix.SYS_IOCTL}, {"x32", 0x40000000 | unix.SYS_GETPID}} {
				if o.num(t, c.fact) != 0 { // a kernel may have x32
					o.one(t, d, nr(c.nr), o.outcome(t, c.fact))
				}
			}
		}},
		{Name: "20-kin/sockets", Argv: []string{"procs", "sockets"}, Check: func(t *testing.T, o *Outcome) {
			says := func(s string, p bodycam.Proto) cond {
				return cond{s, func(e *bodycam.Event) bool { return e.Detail == s && e.Proto == p }}
			}
			s := typ(bodycam.TypeSocket)
			o.one(t, s, o.outcome(t, "raw"), says("AF_INET SOCK_RAW protocol 1", bodycam.ProtoRaw))
			o.one(t, s, o.outcome(t, "packet"), says("AF_PACKET SOCK_DGRAM protocol 768", bodycam.ProtoPacket))
			o.one(t, s, o.outcome(t, "nothing"), says("family 45 SOCK_STREAM protocol 0", bodycam.ProtoOther))
			o.count(t, 3, s)
		}},
		{Name: "20-kin/pidfd-getfd", Argv: []string{"procs", "pidfd"}, Check: func(t *testing.T, o *Outcome) {
			target := child(o.pid(t, "child"))
			o.named(t, either(typ(bodycam.TypePtrace), typ(bodycam.TypePassFD)), target, o.outcome(t, "getfd"))
			o.one(t, typ(bodycam.TypeSignal), target, sig(9), errno(0))
		}},
	}
}

func hideCases() []Case {
	open := typ(bodycam.TypeOpen)
	ren := typ(bodycam.TypeRename)
	return []Case{
		{Name: "17-intrusion/ptrace", Argv: []string{"procs", "tracer"}, Check: func(t *testing.T, o *Outcome) {
			p, target := typ(bodycam.TypePtrace), child(o.pid(t, "child"))
			o.named(t, p, target, o.outcome(t, "seize"), nr(unix.SYS_PTRACE))
			o.named(t, p, target, o.outcome(t, "writev"), nr(unix.SYS_PROCESS_VM_WRITEV))
			o.named(t, p, target, o.outcome(t, "readv"), nr(unix.SYS_PROCESS_VM_READV))
			o.named(t, open, has(bodycam.Read|bodycam.Write), o.outcome(t, "mem"), cond{"given /proc/PID/mem", func(e *bodycam.Event) bool {
				return strings.HasPrefix(e.PathGiven, "/proc/") && strings.HasSuffix(e.PathGiven, "/mem")
			}})
		}},
		{Name: "17-intrusion/traceme", Argv: []string{"procs", "traceme"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, typ(bodycam.TypePtrace), kid(o, t), o.outcome(t, "traceme"))
		}},
		{Name: "17-intrusion/preload", Argv: []string{"procs", "preload"}, Env: []string{"LD_PRELOAD=evil.so", "LD_LIBRARY_PATH=."}, Prepare: func(t *testing.T, dir string) {
			b, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "bin", "evil.so"))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "evil.so"), b, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("evil.so")), errno(0))
		}},
		{Name: "17-intrusion/setuid", Argv: []string{"procs", "setuid"}, Check: func(t *testing.T, o *Outcome) {
			s := typ(bodycam.TypeSetuid)
			o.named(t, s, kid(o, t), o.outcome(t, "setresuid"), nr(unix.SYS_SETRESUID))
			o.named(t, s, kid(o, t), o.outcome(t, "setresgid"), nr(unix.SYS_SETRESGID))
			if o.fact("setresuid") == "0" {
				o.named(t, open, given("as-other"), cond{"uid 1234, gid 4321", func(e *bodycam.Event) bool { return e.UID == 1234 && e.GID == 4321 }})
			}
		}},
		{Name: "17-intrusion/opens-before-setuid", Argv: []string{"procs", "folds-setuid"}, Check: func(t *testing.T, o *Outcome) {
			if o.fact("setresuid") != "0" || o.fact("setresgid") != "0" {
				o.count(t, 9, open, kid(o, t), path(o.in("f")), access(bodycam.Read), errno(0))
				return
			}
			who := func(newUser, newGroup bool) cond {
				return cond{fmt.Sprintf("of uid 1234: %v, of gid 4321: %v", newUser, newGroup), func(e *bodycam.Event) bool {
					return (e.UID == 1234) == newUser && (e.GID == 4321) == newGroup
				}}
			}
			first := o.named(t, typ(bodycam.TypeSetuid), kid(o, t), nr(unix.SYS_SETRESGID))
			second := o.named(t, typ(bodycam.TypeSetuid), kid(o, t), nr(unix.SYS_SETRESUID))
			was := func(after, before *bodycam.Event) cond {
				return cond{"told in its place", func(e *bodycam.Event) bool { return o.between(e, after, before) }}
			}
			f := both(open, kid(o, t), path(o.in("f")), access(bodycam.Read), errno(0))
			o.count(t, 3, f, who(false, false), was(nil, first))
			o.count(t, 2, f, who(false, true), was(first, second))
			o.count(t, 4, f, who(true, true), was(second, nil))
		}},
		{Name: "18-hiding/dumpable", Argv: []string{"procs", "dumpable"}, Check: func(t *testing.T, o *Outcome) {
			o.some(t, typ(bodycam.TypePrctl), kid(o, t), errno(0))
			o.one(t, open, kid(o, t), path(o.in("hidden")), errno(0))
			o.named(t, ren, kid(o, t), path(o.in("hidden")), path2(o.in("hidden2")), errno(0))
		}},
		{Name: "18-hiding/signal-to-recorder", Argv: []string{"procs", "recorder", "{recorder}"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, typ(bodycam.TypeSignal), child(os.Getpid()), sig(int32(unix.SIGURG)), o.outcome(t, "kill"))
		}},
		{Name: "18-hiding/untraced-clone", Argv: []string{"procs", "untraced"}, Check: func(t *testing.T, o *Outcome) {
			if o.num(t, "clone") == 0 {
				o.one(t, open, path(o.in("from-untraced")), errno(0))
			} else {
				o.isRefused(t, bodycam.TypeFork)
			}
		}},
		{Name: "18-hiding/untraced-clone3", Argv: []string{"procs", "untraced3"}, Check: func(t *testing.T, o *Outcome) {
			if o.num(t, "clone3") == 0 {
				o.one(t, open, path(o.in("from-untraced")))
			} else {
				o.isRefused(t, bodycam.TypeFork)
			}
		}},
		{Name: "18-hiding/seccomp-listener", Argv: []string{"procs", "seccomp-hide"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("past-listener")), o.outcome(t, "open"))
		}},
	}
}

func mountCases() []Case {
	open := typ(bodycam.TypeOpen)
	return []Case{
		{Name: "19-mounts/bind", Argv: []string{"spaces", "bind"}, Check: func(t *testing.T, o *Outcome) {
			o.some(t, typ(bodycam.TypeNamespace), errno(0))
			o.some(t, typ(bodycam.TypeMount), either(path(o.in("innocent")), path2(o.in("innocent"))), o.outcome(t, "mount"))
			o.one(t, open, path(o.in("innocent")), access(bodycam.Read), devIno(t, o), errno(0))
		}},
		{Name: "19-mounts/tmpfs", Argv: []string{"spaces", "tmpfs"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("m/inside")), o.outcome(t, "open"))
			o.some(t, typ(bodycam.TypeMount), either(path(o.in("m")), path2(o.in("m"))), o.outcome(t, "umount"))
		}},
		{Name: "19-mounts/chroot", Argv: []string{"spaces", "chroot"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("jail/in")), given("/in"), o.outcome(t, "open"))
		}},
		{Name: "19-mounts/overlay", Argv: []string{"spaces", "overlay"}, Check: func(t *testing.T, o *Outcome) {
			if o.fact("mount") != "0" { // refused to ordinary users: the attempt stays
				o.some(t, typ(bodycam.TypeMount), o.outcome(t, "mount"))
				return
			}
			o.one(t, open, path(o.in("merged/f")), access(bodycam.Read|bodycam.Write), errno(0))
			o.named(t, typ(bodycam.TypeUnlink), o.leads("merged/d/g", "merged/l/g"), errno(0))
		}},
		{Name: "19-mounts/new-calls", Argv: []string{"spaces", "newapi"}, Check: func(t *testing.T, o *Outcome) {
			if o.fact("detached") == "0" {
				e := o.only(t, inexact&^bodycam.MarkDetached, open, given("early"), errno(0))
				if e.Marks&bodycam.MarkDetached == 0 || !strings.HasSuffix(e.Path, "/early") {
					t.Errorf("a file on a mount without a place: path %q, marks %v", e.Path, e.Marks.Names())
				}
			}
			o.some(t, typ(bodycam.TypeMount), o.outcome(t, "move_mount"), either(path(o.in("m")), path2(o.in("m"))))
			o.one(t, open, path(o.in("m/inside")), o.outcome(t, "open"))
		}},
		{Name: "19-mounts/detached", Argv: []string{"spaces", "detached"}, Check: func(t *testing.T, o *Outcome) {
			e := o.only(t, inexact&^bodycam.MarkDetached, open, given("inside"), access(bodycam.Read), o.outcome(t, "open"))
			if e.Path != o.in("m/inside") && (e.Marks&bodycam.MarkDetached == 0 || !strings.HasSuffix(e.Path, "/inside")) {
				t.Errorf("a file on a detached mount: path %q, marks %v", e.Path, e.Marks.Names())
			}
		}},
	}
}

// raceCases have a rival that changes under the call what the call names.
func raceCases(rival string) []Case {
	open, ren, connect := typ(bodycam.TypeOpen), typ(bodycam.TypeRename), typ(bodycam.TypeConnect)
	secret := both(open, given("secret-file"), access(bodycam.Read), errno(0))
	swapped := func(t *testing.T, o *Outcome) {
		o.count(t, o.num(t, "opened"), secret)
		o.count(t, 0, secret, unmarked(inexact), cond{"another path than the one opened", func(e *bodycam.Event) bool { return e.Path != o.in("secret-file") }})
	}
	// truth: every call is there, and no more unmarked records name an object than there truly were.
	truth := func(t *testing.T, o *Outcome, calls cond, a, b cond) {
		t.Helper()
		ta, tb := o.num(t, "a"), o.num(t, "b")
		o.count(t, ta+tb, calls, errno(0))
		_, na := o.match(calls, a, errno(0), unmarked(inexact))
		_, nb := o.match(calls, b, errno(0), unmarked(inexact))
		_, n := o.match(calls, errno(0), unmarked(inexact))
		if na > uint64(ta) || nb > uint64(tb) || na+nb != n {
			t.Errorf("%d unmarked records: %d of A, %d of B; in truth %d and %d", n, na, nb, ta, tb)
		}
	}
	name := func(s string) string { return "11-race/" + s + "-by-" + rival }
	return []Case{
		{Name: name("open"), Argv: []string{"races", "open", "3000", rival}, Check: func(t *testing.T, o *Outcome) {
			calls := both(open, access(bodycam.Read), either(given("A-file"), given("B-file")))
			truth(t, o, calls, path(o.in("A-file")), path(o.in("B-file")))
		}},
		{Name: name("rename"), Argv: []string{"races", "rename", "2000", rival}, Check: func(t *testing.T, o *Outcome) {
			calls := both(ren, path2(o.in("dst")))
			truth(t, o, calls, path(o.in("A-file")), path(o.in("B-file")))
			o.count(t, o.num(t, "failed"), calls, cond{"failed", func(e *bodycam.Event) bool { return e.Errno != 0 }})
		}},
		{Name: name("ways"), Argv: []string{"races", "ways", "2000", rival}, Check: func(t *testing.T, o *Outcome) {
			calls := both(ren, path2(o.in("dst")))
			truth(t, o, calls, path(o.in("A/f")), path(o.in("B/f")))
			o.count(t, o.num(t, "failed"), calls, cond{"failed", func(e *bodycam.Event) bool { return e.Errno != 0 }})
		}},
		{Name: name("dup2"), Argv: []string{"races", "dup2", "3000", rival}, Check: swapped},
		{Name: name("close"), Argv: []string{"races", "close", "3000", rival}, Check: swapped},
		{Name: name("connect"), Argv: []string{"races", "connect", "500", rival}, Check: func(t *testing.T, o *Outcome) {
			truth(t, o, connect, remote("127.0.0.65", 9), remote("127.0.0.66", 9))
		}},
	}
}

func nr(n int32) cond {
	return cond{"syscall of that number", func(e *bodycam.Event) bool { return e.NR == n }}
}
