//go:build linux && amd64

package ptrace

import (
	"testing"

	"golang.org/x/sys/unix"
)

// simulate runs a filter as the kernel would, on a call described as struct seccomp_data.
func simulate(t *testing.T, f []unix.SockFilter, nr, arch uint32, args [6]uint64) uint32 {
	t.Helper()
	load := func(off uint32) uint32 {
		switch {
		case off == dataNR:
			return nr
		case off == dataArch:
			return arch
		case off >= dataArgs && off < dataArgs+48 && off%4 == 0:
			return uint32(args[(off-dataArgs)/8] >> (8 * (off % 8)))
		}
		t.Fatalf("load of offset %d", off)
		return 0
	}
	var a uint32
	for pc, steps := 0, 0; ; steps++ {
		if pc >= len(f) || steps > len(f) {
			t.Fatalf("the filter runs out of its end at %d", pc)
		}
		i := f[pc]
		pc++
		jump := func(yes bool) {
			if yes {
				pc += int(i.Jt)
			} else {
				pc += int(i.Jf)
			}
		}
		switch i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = load(i.K)
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= i.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == i.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(a >= i.K)
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(i.K)
		case unix.BPF_RET | unix.BPF_K:
			return i.K
		default:
			t.Fatalf("instruction %#x", i.Code)
		}
	}
}

func TestFilter(t *testing.T) {
	f := ChildFilter()
	if len(f) > unix.BPF_MAXINSNS {
		t.Fatalf("%d instructions, the kernel takes %d", len(f), unix.BPF_MAXINSNS)
	}
	const yes, no = unix.SECCOMP_RET_TRACE, unix.SECCOMP_RET_ALLOW
	const x64, i386 = unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_I386
	none := uint64(0xffffffffffffffff)
	for _, c := range []struct {
		what     string
		nr, arch uint32
		args     [6]uint64
		want     uint32
	}{
		{"openat", unix.SYS_OPENAT, x64, [6]uint64{}, yes},
		{"read", unix.SYS_READ, x64, [6]uint64{}, no},
		{"write", unix.SYS_WRITE, x64, [6]uint64{}, no},
		{"close", unix.SYS_CLOSE, x64, [6]uint64{}, no},
		{"the last of the table", 9, x64, [6]uint64{0, 0, unix.PROT_EXEC, unix.MAP_PRIVATE, 3}, yes},
		{"an unknown call", 9999, x64, [6]uint64{}, no},
		{"x32", x32Bit | 2, x64, [6]uint64{}, yes},
		{"an unknown interface", 0, 0x1234, [6]uint64{}, yes},
		{"i386 open", 5, i386, [6]uint64{}, yes},
		{"i386 socketcall", 102, i386, [6]uint64{}, yes},
		{"i386 write", 4, i386, [6]uint64{}, no},
		{"i386 257 is not openat", 257, i386, [6]uint64{}, no},
		{"sendto without address", unix.SYS_SENDTO, x64, [6]uint64{}, no},
		{"sendto with a low address", unix.SYS_SENDTO, x64, [6]uint64{4: 0x1000}, yes},
		{"sendto with a high address", unix.SYS_SENDTO, x64, [6]uint64{4: 0x700000000000}, yes},
		{"fork", unix.SYS_CLONE, x64, [6]uint64{17}, no},
		{"vfork", unix.SYS_CLONE, x64, [6]uint64{17 | unix.CLONE_VM | unix.CLONE_VFORK}, no},
		{"thread", unix.SYS_CLONE, x64, [6]uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, no},
		{"shared memory, no thread", unix.SYS_CLONE, x64, [6]uint64{17 | unix.CLONE_VM}, yes},
		{"shared descriptors, no thread", unix.SYS_CLONE, x64, [6]uint64{17 | unix.CLONE_FILES}, yes},
		{"clone untraced", unix.SYS_CLONE, x64, [6]uint64{17 | unix.CLONE_UNTRACED}, yes},
		{"clone with a user namespace", unix.SYS_CLONE, x64, [6]uint64{17 | unix.CLONE_NEWUSER}, yes},
		{"anonymous memory", unix.SYS_MMAP, x64, [6]uint64{0, 0, 7, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS, none}, no},
		{"anonymous memory with a descriptor", unix.SYS_MMAP, x64, [6]uint64{0, 0, 7, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS, 3}, no},
		{"shared anonymous memory", unix.SYS_MMAP, x64, [6]uint64{0, 0, 3, unix.MAP_SHARED | unix.MAP_ANONYMOUS, none}, yes},
		{"private data", unix.SYS_MMAP, x64, [6]uint64{0, 0, 3, unix.MAP_PRIVATE, 3}, no},
		{"private code", unix.SYS_MMAP, x64, [6]uint64{0, 0, 5, unix.MAP_PRIVATE, 3}, yes},
		{"shared data", unix.SYS_MMAP, x64, [6]uint64{0, 0, 3, unix.MAP_SHARED, 3}, yes},
		{"shared, validated", unix.SYS_MMAP, x64, [6]uint64{0, 0, 3, unix.MAP_SHARED_VALIDATE, 3}, yes},
		{"i386 mmap2, private code", 192, i386, [6]uint64{0, 0, 5, unix.MAP_PRIVATE, 3}, yes},
		{"PR_SET_DUMPABLE", unix.SYS_PRCTL, x64, [6]uint64{unix.PR_SET_DUMPABLE}, yes},
		{"PR_SET_PTRACER", unix.SYS_PRCTL, x64, [6]uint64{unix.PR_SET_PTRACER}, yes},
		{"PR_GET_DUMPABLE", unix.SYS_PRCTL, x64, [6]uint64{unix.PR_GET_DUMPABLE}, no},
		{"tgkill URG", unix.SYS_TGKILL, x64, [6]uint64{1, 1, uint64(unix.SIGURG)}, no},
		{"tgkill KILL", unix.SYS_TGKILL, x64, [6]uint64{1, 1, uint64(unix.SIGKILL)}, yes},
		{"prlimit of oneself", unix.SYS_PRLIMIT64, x64, [6]uint64{}, no},
		{"prlimit of another", unix.SYS_PRLIMIT64, x64, [6]uint64{1}, yes},
	} {
		if got := simulate(t, f, c.nr, c.arch, c.args); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.what, got, c.want)
		}
	}
	if got := simulate(t, filter(map[string]bool{"prlimit64": true}), unix.SYS_PRLIMIT64, x64, [6]uint64{}); got != yes {
		t.Error("a denied call must always stop")
	}
}

// TestTable holds the table's numbers: none twice, and those of the headers where they have them.
func TestTable(t *testing.T) {
	seen := make(map[[2]int32]string)
	for _, d := range callTable() {
		if d.on == nil {
			t.Errorf("%s has no handler", d.name)
		}
		for abi, n := range []int32{d.amd64, d.i386} {
			k := [2]int32{int32(abi), n}
			if n >= 0 && seen[k] != "" {
				t.Errorf("%s and %s share the number %d", d.name, seen[k], n)
			}
			seen[k] = d.name
		}
	}
}
