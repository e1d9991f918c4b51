package bodycam

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
)

// The tables are the kernel's own, from its user-space headers (asm/unistd_64.h, unistd_32.h, unistd_x32.h of
// Linux 6.1, and the calls added up to 6.18), as lines "number<TAB>name".
var (
	//go:embed syscalls/x86_64.tsv
	amd64Table string
	//go:embed syscalls/x86_32.tsv
	i386Table string
	//go:embed syscalls/x86_x32.tsv
	x32Table string
)

var syscallNames = sync.OnceValue(func() map[ABI][]string {
	out := map[ABI][]string{}
	for abi, table := range map[ABI]string{ABIAMD64: amd64Table, ABII386: i386Table, ABIX32: x32Table} {
		var names []string
		for line := range strings.Lines(table) {
			num, name, ok := strings.Cut(strings.TrimSpace(line), "\t")
			nr, err := strconv.Atoi(num)
			if !ok || err != nil {
				continue
			}
			for len(names) <= nr {
				names = append(names, "")
			}
			names[nr] = name
		}
		out[abi] = names
	}
	return out
})

// SyscallName returns the name of a system call, "" where there is none (nr < 0), or "sys_N" where the number is
// unknown.
func SyscallName(abi ABI, nr int32) string {
	if nr < 0 || abi == ABINone {
		return ""
	}
	if abi == ABIX32 {
		nr &^= 0x40000000
	}
	names := syscallNames()[abi]
	if int(nr) < len(names) && names[nr] != "" {
		return names[nr]
	}
	return "sys_" + strconv.Itoa(int(nr))
}

// SyscallNumber returns the number of a named system call.
func SyscallNumber(abi ABI, name string) (int32, bool) {
	for nr, n := range syscallNames()[abi] {
		if n == name && n != "" {
			return int32(nr), true
		}
	}
	return -1, false
}

// Syscall is the name of the event's system call.
func (e *Event) Syscall() string { return SyscallName(e.ABI, e.NR) }
