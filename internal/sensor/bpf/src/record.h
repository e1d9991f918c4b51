/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What goes from the kernel to the recorder. bpf2go turns these structs into Go types, so that both sides read the
 * same layout. Every record begins with a struct rec; numbers are in the machine's byte order.
 */
#ifndef BODYCAM_RECORD_H
#define BODYCAM_RECORD_H

#include "kernel.h"

enum kind {
	K_CALL = 1, /* body: a system call, strings as given or walked */
	K_OPEN,     /* opened: a file was opened */
	K_RACED,    /* body: an open whose descriptor led to another file before it was read; strings as K_CALL's */
	K_FILE,     /* opened: a file used that this task did not open; names the slot, is no event */
	K_FLUSH,    /* flush, one or several: what slots of the per-task cache gathered */
	K_MMAP,     /* mapped: a mapping of the file in a slot */
	K_EXEC,     /* executed: a program was started */
	K_ARGV,     /* piece: of an argv too long for K_EXEC */
	K_FORK,     /* life: the child, and clone's flags */
	K_CLONE_NS, /* life: the child of the fork before has new namespaces; clone's flags */
	K_EXIT,     /* life: the wait status */
	K_THREAD,   /* life: a thread ended; no event, frees what the reader keeps for it */
	K_SIGNAL,   /* life: the target, and the signal */
	K_URING,    /* body: arg[0] the request's opcode */
	K_PASSFD,   /* body: path of the file passed */
	K_NET,      /* net: connect, bind, listen, accept, send */
	K_STATE,    /* net: how a connection attempt ended; ret is the error */
	K_FLOW,     /* net: bytes of a socket at its end */
	K_DNS,      /* net, then the payload of a packet from or to port 53 */
};

/* Sources of the counters. */
enum source {
	SRC_PART, /* pieces of an event: counted only when lost */
	SRC_CALL,
	SRC_OPEN,
	SRC_CLOSE,
	SRC_MMAP,
	SRC_EXEC,
	SRC_FORK,
	SRC_EXIT,
	SRC_NET,
	SRC_FLOW,
	SRC_DNS,
	SRC_SIGNAL,
	SRC_URING,
	SRC_PASSFD,
	SRC_NUM,
};

struct rec {
	__u64 seq;   /* per stream, without gaps: a gap is a lost record */
	__u64 time;  /* since boot */
	__u64 start; /* of the process, since boot */
	__u32 tgid, tid;
	__u32 uid, gid;
	__s32 sid, nr;
	__u16 stream; /* each processor has two */
	__u8 kind, source, abi, type;
	__u16 flags;
};

enum { /* rec.flags */
	REC_HOST_NS = 1, /* the process is in the recorder's own mount namespace */
	REC_WORKER = 2,  /* a kernel worker acts for the process */
};

enum { /* walk: bits of a path; body.walk has those of the second, shifted by 16 */
	WALK_DELETED = 1,
	WALK_ANON = 2,
	WALK_CUT = 4,
	WALK_DETACHED = 8,
	WALK_NOFD = 16,
	WALK_OBJECT = 32, /* the path is the object's own, not that of the folder that the given name starts from */
	WALK_UNSURE = 64,  /* somebody may have changed the name, or where it leads, before it was read */
	WALK_REST = 128,   /* a folder on the way was not there: the rest of the path is as given */
	WALK_NAME = 256,   /* the string is no path */
};

struct body {
	__s64 ret;
	__u64 arg[5];
	__u64 ino;
	__u64 other_start; /* target */
	__u32 other_tgid;
	__u32 dev, fmode, fflags;
	__u32 walk;
	__u16 imode, pad;
	__u16 len[4]; /* name as given, path walked, second name, second path */
};

struct opened { /* followed by the path and the name as given */
	__u64 ino;
	__u32 dev, fmode, fflags;
	__u32 asked; /* the flags that the call was given */
	__u16 imode, slot, walk;
	__u16 path, given; /* bytes */
	__u16 pad[3];
};

struct flush {
	__u64 oid;
	__u64 opens, first_open, last_open;
	__u64 closes, first_close, last_close;
	__u64 mmaps, last_mmap;
	__u64 rd, wr;
	__u64 ino;
	__u32 dev, fmode, fflags;
	__u16 imode, slot;
	__u8 mapped, prot;
	__u16 pad[3];
};

struct mapped {
	__u64 oid, ino; /* oid: the open that the slot holds */
	__u32 dev, prot, flags;
	__u16 slot, pad;
};

struct executed { /* followed by the strings in the order of their lengths */
	__u64 argv; /* bytes */
	__u64 ino;
	__u64 parent_start;
	__u32 parent;
	__s32 old_tid; /* the thread's id before: it takes over the leader's */
	__u32 dev;
	__u16 exe_walk, cwd_walk, script_walk;
	__u8 interpreter; /* one runs, for a script */
	__u8 by_fd;       /* execveat: the kernel made "/dev/fd/N/name" of the name */
	__u16 exe, cwd, given, script;
	__u16 args; /* bytes of argv that follow: all, or none where it is too long */
	__u16 pad;
};

struct piece { /* followed by the bytes, to the record's end */
	__u64 offset;
};

struct life {
	__u64 value;
	__u64 start; /* of the other process */
	__u32 tgid, pad;
};

struct net {
	__s64 ret;
	__u64 cookie, flags;
	__u64 rd, wr;
	__u16 family, socktype, proto;
	__u16 lport, rport;
	__u16 op;   /* enum netop */
	__u16 ulen; /* bytes of a unix address's path */
	__u16 plen; /* K_NET: bytes of the peer's path; K_DNS: bytes of the payload */
	__u32 verified, walk;
	__u8 laddr[16], raddr[16];
	__u8 upath[112];
};

enum netop { NET_CONNECT = 1, NET_SEND, NET_BIND, NET_LISTEN, NET_ACCEPT, NET_IN, NET_OUT };

#define HEAD (sizeof(struct rec) + sizeof(struct body))
#define LIFE_LEN (sizeof(struct rec) + sizeof(struct life))
#define OPEN_HEAD (sizeof(struct rec) + sizeof(struct opened))
#define EXEC_HEAD (sizeof(struct rec) + sizeof(struct executed))

#endif
