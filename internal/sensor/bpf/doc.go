// Package bpf is the sensor that watches a cgroup with eBPF. Its back end "tp" needs raw tracepoints and cgroup
// programs only, so it also runs where the kernel refuses kprobes, fentry and LSM programs.
//
// # How it works
//
// Everything is filtered in the kernel: programs act only for tasks whose cgroup is the target or below it. Records go
// through one ring buffer, so that their order is the order in which the kernel made them. The kernel side wakes the
// reader only once a mebibyte waits; otherwise the reader looks ten times a second, and where nothing comes it asks to be
// woken by the next record, and sleeps. It decodes the records where they lie in
// the ring and calls the sink at once: a copy first, and a second thread to decode it, drain the ring no faster, since decoding is cheap
// beside moving the bytes from one processor's cache to the other's, twice. If the sink is slow the ring fills; at half
// fill the target's cgroup is frozen, at three quarters whoever still writes is stopped by the kernel side (SIGSTOP, which a
// parent can notice; the freeze can't be). Both are undone when the ring has drained, and when the sensor stops. A sink that
// doesn't return holds up the reader, so a timer wakes the pauser to look after the ring.
//
// # Kernels
//
// The sources make two objects: one for kernels from 6.4 on, which reads the kernel's memory through typed pointers, and one for those before, from 6.1
// on, which asks a helper for each member. Which one is loaded, and which hooks are attached, goes by what the kernel's own types say is there, never
// by its version. Both make the same record, but for this: before 6.7 no hook sees the addresses of unix sockets, which are then those in the program's memory;
// before 6.13 a descriptor that another thread replaced at once by dup2 is known only by the way in which the file is open.
//
// # What each hook sees, and what it misses
//
//	sys_exit               every system call that calls.tsv names, in the x86_64, i386 and x32 tables, with its result;
//	                       also calls that seccomp refused. A descriptor returned leads to the kernel's file, and its
//	                       dentries and mounts to the canonical path: relative names, dirfd, links, /proc/self/fd, handles
//	                       and chroot make no difference. For calls that only name a path (rename, unlink, failed opens …)
//	                       see "Names" below.
//	                       A descriptor that another thread closed before it was read leaves an open marked raced.
//	                       One that is closed while another call uses it is told where the same thread used it before;
//	                       Health's note counts the rest.
//	sched_process_exec     the program really executed, argv as in memory, working directory, and the script behind an
//	                       interpreter (from the task's list of files to be freed). Failed execs come from sys_exit.
//	task_newtask           new processes, with the parent of that moment, and new namespaces. Threads are not events.
//	sched_process_exit     the end of the last thread, with the wait status.
//	signal_generate        signals that reach another process, with the target. Failed attempts come from sys_exit.
//	io_uring_submit_req    requests to io_uring: operation, and name for opens. What came of them is not known: they are
//	                       marked no-result, and Health names the blind spot "io_uring". Addresses of io_uring's connects
//	                       and sends are seen all the same, by the cgroup hooks.
//	cgroup connect, sendmsg (IPv4, IPv6, unix)
//	                       the kernel's copy of the address; joined with the call's end to one event. Also what connects
//	                       by sending (TCP Fast Open). Netlink sends are left out; raw and packet sockets are seen at
//	                       sys_exit, marked unverified.
//	inet_sock_set_state    the outcome of connection attempts in progress: the one event of such a connect waits for it
//	                       and has the final errno (EINPROGRESS where the socket was closed, or another program executed, before). The end of TCP
//	                       connections, with the payload bytes both ways.
//	cgroup sock_create, sock_release, skb
//	                       who made a socket; bytes of UDP and raw sockets; DNS questions and answers over port 53 (over TCP
//	                       only where a message fits one segment), of whoever made the socket.
//
// The owner of an accepted socket's flow is who made the listening one. A flow is reported at its socket's end: where that stayed open through
// an exec, it is told of the program that then ran, with the bytes of both. Names by other ways (DNS over HTTPS, SNI) are for other sensors.
//
// # Names
//
// A call that only names a path leaves no object to look at. At its end the name is walked again, through the kernel's cache of
// names (dentries and mounts), which still holds what the kernel has just walked: from the process's root, its working
// directory or the dirfd, over symbolic links (overlayfs's too), "..", mounts and roots, as far as the call goes: some follow a link at
// the end, some don't (calls.tsv). So the path is canonical: for what is removed, made or renamed its folder's path and its own name,
// for what is changed through its name the object's own path, with its device and inode. What is missing is named by the last folder
// that is there and the rest as given.
//
// The walk comes after the call, so the event is marked unverified unless all of this holds: the process has one
// thread, and shares memory, working directory and (where a dirfd was given) descriptors with nobody; the name lies in
// memory that no other process can write to; and, where the name leads through a folder or a link, no other thread moved a folder or a
// link, made one, or mounted anything within the last quarter of a second, in which no resolution takes part. What remains is
// process_vm_writev, ptrace and the like, which are events of their own. Where the walk fails (magic links of /proc, more than
// 2,048 names in the folder's cache, links too long to be kept in memory, openat2 with RESOLVE flags, pivot_root, move_mount) the path is the
// folder's and the name as given, joined as text, and marked.
//
// # Opens, reads, writes
//
// A small cache per task knows which file is behind which descriptor (a task leads to one of a pool; where that has an owner,
// one is made). It outlives its task, so what it gathered is told also where that ended in a way that no hook sees. The first open of a file is one event at once;
// opens of the same file by the same call, name and flags (as given: O_TRUNC and O_CREAT count) that follow are counted and reported as
// one event with Count. Bytes
// read and written (also by sendfile, splice, copy_file_range, reflinks) and mappings are summed per task and file and reported as
// close events: Count is how many closes it stands for, and a close through which nothing went is not reported.
// What the cache holds is reported when an entry is needed for another file, when the task executes a program, when it becomes another
// user or group or gets other capabilities, when it ends, before a repeat that comes
// more than a second after the first, and when the sensor stops. So it may be late, and Boot and LastBoot tell when it was; threads that share
// a descriptor each report their share. A program that begins, and a user that a task becomes, find the cache empty: what was gathered is
// reported before, of the program and the user that did it; the next open and the next mapping are events of their own, and
// what goes through descriptors that stayed open is told of who uses them. Bytes are not dated: those through a descriptor that stays open
// are reported with the last close of the file by the same task, flags and user, where there was one, and so under its time.
//
// # Counters
//
// Each attempt is counted in the kernel when it is seen, under its source, whether or not it gets a record. At the end
// Seen = Emitted + Folded + Lost holds for each source, where Emitted and Folded are counted by the decoder from the
// events delivered: the two counts are made apart. A record that found no room is lost and leaves a gap in its stream's
// sequence numbers: each processor has two streams, one of system calls and processes' lives, which don't interrupt one another and so count
// without atomic operations, and one of all else. The kernel leaves a program out where an interrupt needs it while it runs
// on the same processor (inet_sock_set_state may meet that): such runs are asked for at the end, and named as the blind spot "hooks". A call that a signal interrupts and that is then made again with the same arguments is one attempt.
package bpf
