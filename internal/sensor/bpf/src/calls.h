/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What to do at the end of each system call. The tables are filled from calls.tsv when the object is loaded. */
#ifndef BODYCAM_CALLS_H
#define BODYCAM_CALLS_H

#include "kernel.h"

#define CALLS 576 /* x32 keeps calls of its own at 512 to 547 */
#define X32_BIT 0x40000000

enum act { /* the names in calls.tsv, lower case */
	A_NONE,
	A_OPEN,     /* returns a descriptor of a file */
	A_OPENHOW,  /* A_OPEN, with the flags at the address in the argument fd */
	A_PATH,     /* names one or two paths */
	A_MOVE,     /* A_PATH; names that lead further change */
	A_RENAME,   /* A_PATH; such names change where a folder or a link is renamed */
	A_FD,       /* acts on the file behind a descriptor */
	A_ARGS,     /* only its arguments matter */
	A_CREDS,    /* A_ARGS; on success the task is another user, or may do other things */
	A_CHDIR,    /* A_PATH; on success the working directory is read back */
	A_CHROOT,   /* A_PATH; on success the root directory is read back */
	A_EXEC,     /* A_PATH when it fails; on success sched_process_exec tells */
	A_READ,     /* returns bytes read through fd */
	A_WRITE,    /* returns bytes written through fd */
	A_COPY,     /* returns bytes moved from fd to fd2 */
	A_IOCTL,    /* the file fd may become a copy of fd2, or get other flags; or text is typed into a terminal */
	A_CLOSE,
	A_MMAP,
	A_CLONE,    /* A_ARGS when it fails; on success task_newtask tells */
	A_CLONE3,   /* A_CLONE, with the flags at the address in the argument fd */
	A_KILL,     /* A_ARGS when it fails; on success signal_generate tells */
	A_TARGET,   /* A_ARGS, and the process that the argument fd names */
	A_PIDFD,    /* A_ARGS, and the process behind the pidfd fd2 */
	A_FAILED,   /* A_ARGS when it fails: what a sandbox refuses */
	A_SOCKET,   /* A_ARGS when it fails, or makes a raw or packet socket */
	A_PRCTL,
	A_CONNECT,
	A_BIND,
	A_LISTEN,
	A_ACCEPT,
	A_SENDTO,
	A_SENDMSG,
	A_SENDMMSG,
	A_RECVMSG,
	A_URING,    /* io_uring_enter: may have connected or sent */
	A_INDIRECT, /* arguments lie in memory, as for i386's old mmap */
	A_SOCKETCALL,
};

/* One call. Arguments are numbered from 1; 0 is none. */
struct call {
	__u8 act, type; /* type: bodycam's event type, passed through */
	__u8 dfd, path, dfd2, path2;
	__u8 fd, fd2, flags;
	__u8 follow, follow2; /* enum follow: how the names are treated */
} __attribute__((aligned(8)));

const volatile struct call calls64[CALLS] = {};
const volatile struct call calls32[CALLS] = {};
/* Which calls are in the tables at all: 1 in calls64, 2 in calls32. Most aren't, and cost only this look. */
const volatile __u8 watched[CALLS] = {};
const volatile __u8 type_denied = 0; /* bodycam's type of a call that isn't in the tables, through an ABI that is refused as a whole */
const volatile __u16 socketcalls[32] = {}; /* i386's socketcall: sub-call to system call number */

#endif
