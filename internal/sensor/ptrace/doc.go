// Package ptrace is the sensor for ordinary users: it needs no privilege, no BPF and no cgroup. A seccomp filter in
// the observed processes stops them only at calls that matter; the sensor reads the call at its entry and, where the
// outcome matters, the kernel's own objects at its end.
//
// # How a process comes under observation
//
// [Sensor.StartProcess] starts a program and puts the filter into it before its first instruction.
//
// A sandbox that starts its own commands does this instead: the child raises SIGSTOP, [Sensor.Attach] seizes and
// continues it, the child installs the filter ([InstallFilter], or [ChildFilter] as data for a sandbox that knows no
// sensor) and executes the program. The order matters: a filter without a tracer makes every filtered call fail with
// ENOSYS, so that nothing can run unobserved. The child must not be a direct child of the recorder, whose own wait
// would then take the tracer's stops.
//
// Everything that a traced process starts is traced. If the recorder dies, the kernel kills them all
// (PTRACE_O_EXITKILL). [Sensor.Stop] kills what still runs, for the same reason.
//
// # What is exact
//
// Opens: path, device and inode are read from the new descriptor while its thread is stopped. Exec: program,
// arguments and directory are read from the new process before its first instruction. Sockets: both ends are read
// from a duplicate of the socket. Calls that only take names (rename, unlink …) are resolved against the process's
// own root and directory at entry; if a thread or another process shares the memory, they are marked
// [bodycam.MarkUnverified]. A descriptor that was replaced before it was read is marked [bodycam.MarkRaced].
//
// # What it can't see
//
// Bytes read and written (each read and write would have to stop; the hole "bytes", inherent). Requests submitted
// to an io_uring (the hole "io_uring"). A process that is not dumpable, where the recorder is not privileged
// (the hole "not-dumpable"). SIGURG by tgkill, with which Go programs preempt themselves, isn't recorded.
//
// # What it changes
//
// Observed programs have no_new_privs and can't trace one another. Where the recorder could be harmed or blinded, the
// call is refused, and the record says so with [bodycam.MarkHostile]: signals, ptrace and memory access aimed at the
// recorder, clone with CLONE_UNTRACED, a seccomp listener of one's own (which could wave calls past). To an
// unprivileged recorder PR_SET_DUMPABLE 0 is answered without effect. With [Options.Deny], calls are refused and
// recorded as [bodycam.TypeDenied]; a seccomp filter that refuses them itself would hide the attempt.
//
// So would a sandbox's own filter. With [Options.Refuses] the sandbox lets the calls that it refuses stop, and the sensor
// refuses them in its place, with the same errno (refuse.go says why that can't be raced or talked out of). Without a tracer
// such a call fails with ENOSYS. All that is refused for the sandbox or for the recorder's sake has [bodycam.MarkRefused].
// Beside the bpf sensor (a cross-check) the sandbox's filter answers itself: a call that a tracer has refused has no number
// any more when bpf hears of its end.
//
// A program may install seccomp filters of its own. What they refuse never reaches the recorder; that there is such a
// filter is recorded ([bodycam.TypePrctl]). The x32 interface is answered with ENOSYS.
//
// Identities: Proc.Start has the resolution of /proc/PID/stat, ten milliseconds.
package ptrace
