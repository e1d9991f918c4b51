// Package sandbox makes boxes: isolated environments in which commands run that nobody trusts. It knows nothing of
// what is observed in them.
//
// # How a box is made
//
// [Create] runs the recorder's own program again as process 1 of new user, mount, pid, network, ipc, uts and cgroup
// namespaces ([Init] takes over there). This init mounts a memory disk of limited size, assembles the root file
// system on it, moves into it with pivot_root and lets go of the host's. From then on it only starts commands,
// unpacks what CopyIn sends and reaps orphans, as the recorder asks over an inherited socket. All mounts live in
// its namespace and vanish with it. When the recorder dies, however, the socket closes and the kernel signals
// init's death signal; init's end is the end of every process in its pid namespace. What then is left, empty
// cgroups, the state directory and a record in /run/bodycam, is removed by a process that does nothing but wait for the
// recorder's death, in a session of its own. Should that be killed too, [Sweep] does it, which Create calls as well.
//
// # Users
//
// As root, a box has 65,536 user and group ids of its own, from a range of the host that belongs to nobody; the
// base is mounted with its owners shifted into that range. Root inside can install packages and is, outside, a user
// without any rights. Every command runs in one more user namespace below init's, so that root inside holds no
// power over the box's own network, mounts, host name or init; init runs as an id which that namespace doesn't map,
// so that nobody inside can signal it, and isn't dumpable, so that nobody can trace it.
//
// Without root a box has the caller's user alone, under whatever name and id a command asks for, and no cgroups.
// [Box.Weaker] says what that means.
//
// # Commands
//
// A command is forked straight into its cgroup, on a thread of init that has joined the cgroups of version 1.
// Between fork and exec, by system calls alone: new session, bounding set dropped, groups, user, limits (no core
// dumps), directory, standard streams, every other file closed on exec, no_new_privs, seccomp filter. A sensor that
// watches the cgroup sees these few calls of a process whose program still is the recorder's; the command begins
// with its first exec. Its environment is exactly Cmd.Env.
//
// Seccomp never kills. A refused call returns EPERM, or ENOSYS where programs know how to do without it (io_uring,
// clone3, other ABIs), or EAFNOSUPPORT, so that it can be recorded as one attempt with its errno.
//
// # Network
//
// A box without network has its loopback only. In a proxied one everything is turned to sockets that live in the
// box's network namespace but are held by the recorder ([Box.NetListeners]); there is no route to the host or
// anywhere else. The host's loopback is out of reach but for ports that Config names.
//
// # What is trusted
//
// Nothing that comes out of a box. [Box.CopyOut] and [Box.Manifest] open names below the box's root directory
// without following links out of it, check what they have opened before they read it, and count against limits.
package sandbox
