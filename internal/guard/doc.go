// Package guard has the kernel ask before it opens a file or executes a program for a process of a sandbox: fanotify
// permission events. The thread that opens waits in the kernel, inside its call, until the answer is there; what it gets
// is the file that was asked about, by whatever name it was reached. So nothing can change in between.
//
// Marks lie on the sandbox's own mounts, never on a file system: processes of the host that open the same files by the
// host's mounts aren't asked about and don't wait.
//
// The kernel asks nobody about files of /proc, and isn't asked to about devices, terminals, pipes, sockets and memory
// files, nor about calls that need no open: rename, unlink, link, chmod, truncate by name, a descriptor that was opened
// before or passed on, a reference (O_PATH; its use to open the file is asked about). A call that makes a file is asked
// about when the empty file is there already; one that cuts a file (O_TRUNC) before it is cut.
//
// Where the decision fails or takes too long, the answer is no, then and for all that follows. The kernel says yes to
// whatever waits when the last descriptor of the group is closed: hold File open in a process that outlives this one
// until the sandbox is dead.
package guard
