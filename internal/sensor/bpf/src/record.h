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
	K_OPEN,     /* body: a file was opened; its path */
	K_FILE,     /* body: a file used that this task did not open; names the slot, is no event */
	K_FLUSH,    /* flush: what a slot of the per-task cache gathered */
	K_MMAP,     /* body: a mapping of the file in a slot */
	K_EXEC,     /* body: exe, cwd, file name, script; arg[1] the thread's id before, arg[2] an interpreter runs, arg[4] the bits of the script's walk */
	K_ARGV,     /* body: a piece of argv; arg[0] total, arg[1] offset */
	K_FORK,     /* body */
	K_CLONE_NS, /* body: the child of the fork before has new namespaces; arg[0] the flags */
	K_EXIT,     /* body */
	K_THREAD,   /* body: a thread ended; no event, frees what the reader keeps for it */
	K_SIGNAL,   /* body */
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
	__u32 len; /* of the record, this head included */
	__u8 kind, source, abi, type;
	__u64 seq;   /* per CPU, without gaps: a gap is a lost record */
	__u64 time;  /* since boot */
	__u64 start; /* of the process, since boot */
	__u32 tgid, tid;
	__u32 uid, gid;
	__s32 sid, nr;
	__u16 cpu, flags;
	__u32 pad;
};

enum { /* rec.flags */
	REC_HOST_NS = 1, /* the process is in the recorder's own mount namespace */
	REC_WORKER = 2,  /* a kernel worker acts for the process */
};

enum { /* body.walk: bits of the first path; of the second, shifted by 16 */
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
	__u64 oid; /* of K_MMAP, K_FILE: the open that the slot holds */
	__u64 ino;
	__u64 other_start; /* child, or target */
	__u32 other_tgid;
	__u32 dev, fmode, fflags;
	__u32 walk;
	__u16 imode, slot;
	__u16 len[4]; /* name as given, path walked, second name, second path */
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
	__u32 mapped, prot;
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

#endif
