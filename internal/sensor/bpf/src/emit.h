/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Maps, counters, and the way into the ring. */
#ifndef BODYCAM_EMIT_H
#define BODYCAM_EMIT_H

#include "calls.h"
#include "helpers.h"
#include "record.h"

#define STR_MAX 4096
#define OUT_MAX 24576 /* a per-CPU value may have 32 KiB */
#define CHUNK 16384
#define FRONT 256 /* room before the longest path */
#define PF_KTHREAD 0x00200000
#define PF_USER_WORKER 0x00004000
#define PF_IO_WORKER 0x00000010
#define SIGCONT 18
#define SIGSTOP 19

/* Set by the recorder before loading. */
const volatile __u32 host_mntns = 0;    /* the recorder's mount namespace */
const volatile __u32 stop_at = 0;       /* bytes waiting before the writer is stopped */
const volatile bool exit_tells_last = false; /* sched_process_exit has a second argument */

struct counter {
	__u64 seen, lost;
};

struct stats {
	__u64 seq;     /* records tried */
	__u64 raced;   /* descriptors gone before they could be read, of opens */
	__u64 gone;    /* and of other calls, of which nothing is told */
	struct counter src[SRC_NUM];
};

/*
 * Programs of system calls and of processes' lives don't interrupt one another on a processor, so they count without atomic
 * operations. All others may come at any time, also between these: they have counters, and a stream of records, of their own.
 */
enum { CALM, ANYTIME, STREAMS };

struct scratch {
	__u64 arg[8]; /* the call's six arguments; the last is always 0 */
	__s64 ret;
	__u32 nr, abi, walk, pad;
	__u64 ptr;        /* argument of the string functions */
	__u64 dentry, mnt; /* argument of the path functions, and where resolve is */
	__u64 found;
	__u32 cursor;   /* of walk_back: where the path begins so far */
	__u32 gathered; /* of flush_slots */
	__u32 at, len, links, depth; /* of resolve: the next byte, the component's length, what the way led through */
	__s32 dfd;
	__u32 follow, ended, budget;
	char comp[264], candidate[264];
	struct call call; /* what to do with the call that ends */
	struct net net;
	char back[FRONT + STR_MAX]; /* a path is written here from its end */
	char out[OUT_MAX];          /* the record; of K_OPEN only what comes after the path, which it is sent with from where that is */
};

struct {
	__uint(type, MAP_RINGBUF);
	__uint(max_entries, 32 << 20);
} ring SEC(".maps");

struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, STREAMS);
	__type(key, __u32);
	__type(value, struct stats);
} counters SEC(".maps");

struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/* The cgroup whose subtree is observed. The recorder puts it in. */
struct {
	__uint(type, MAP_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

/* Processes that back-pressure stopped: tgid to start time. The recorder continues them. */
struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u64);
} stopped SEC(".maps");

/* How many bytes wait before the reader is woken. The recorder sets it, to 0 while it waits for whatever comes next. */
volatile __u32 wake_at = 1 << 20;

/* How often back-pressure stopped a process. */
__u64 stops = 0;

/* Grows with every change that can move names: opens are folded only within one value. */
__u64 tree = 1;

static inline_always struct task_struct *current(void)
{
#ifdef OLD
	return (struct task_struct *)bpf_get_current_task();
#else
	return untrusted(struct task_struct, bpf_get_current_task_btf());
#endif
}

/* mine tells whether the current task is in the target's subtree. */
static inline_always bool mine(void)
{
	return bpf_current_task_under_cgroup(&target, 0) == 1;
}

static inline_always struct scratch *scratch(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&scratches, &zero);
}

static inline_always struct stats *stats_of(__u32 stream)
{
	return bpf_map_lookup_elem(&counters, &stream);
}

static inline_always void seen(__u32 src, __u64 n)
{
	struct stats *st = stats_of(CALM);
	if (st && src < SRC_NUM)
		st->src[src].seen += n;
}

static inline_always void lost(__u32 src, __u64 n)
{
	struct stats *st = stats_of(CALM);
	if (!st || src >= SRC_NUM || !n)
		return;
	st->src[src].lost += n;
	if (src == SRC_PART)
		st->src[src].seen += n;
}

static inline_always void seen_anytime(__u32 src)
{
	struct stats *st = stats_of(ANYTIME);
	if (st && src < SRC_NUM)
		__sync_fetch_and_add(&st->src[src].seen, 1);
}

static inline_always void lost_anytime(__u32 src)
{
	struct stats *st = stats_of(ANYTIME);
	if (!st || src >= SRC_NUM)
		return;
	__sync_fetch_and_add(&st->src[src].lost, 1);
	if (src == SRC_PART)
		__sync_fetch_and_add(&st->src[src].seen, 1);
}

/* gap_anytime leaves a gap for a record that could not be sent. */
static inline_always void gap_anytime(void)
{
	struct stats *st = stats_of(ANYTIME);
	if (st)
		__sync_fetch_and_add(&st->seq, 1);
}

/* number_anytime gives a record its place in the processor's second stream. */
static inline_always void number_anytime(struct rec *r)
{
	struct stats *st = stats_of(ANYTIME);
	r->seq = st ? __sync_fetch_and_add(&st->seq, 1) : 0;
	r->stream = bpf_get_smp_processor_id() * STREAMS + ANYTIME;
}

/*
 * head fills a record's head for the current task; seq is taken last, by put. What lies in the task's own struct is read through the
 * pointer that the kernel trusts, where a look is one instruction.
 */
static inline_always void head(struct rec *r, __u8 kind, __u8 source, __u8 type)
{
	struct task_struct *t = current(), *me = bpf_get_current_task_btf();
	r->kind = kind;
	r->source = source;
	r->type = type;
	r->abi = 0;
	r->time = bpf_ktime_get_boot_ns();
	r->start = get(get(t, group_leader), start_boottime);
	r->tgid = me->tgid;
	r->tid = me->pid;
	r->uid = get(get(t, cred), uid.val);
	r->gid = get(get(t, cred), gid.val);
	struct pid *sid = get(get(t, signal), pids[3]);
	r->sid = get(sid, numbers[0].nr);
	r->nr = -1;
	r->flags = me->flags & (PF_IO_WORKER | PF_USER_WORKER | PF_KTHREAD) ? REC_WORKER : 0;
	struct nsproxy *ns = get(t, nsproxy);
	if (ns && get(get(ns, mnt_ns), ns.inum) == host_mntns)
		r->flags |= REC_HOST_NS;
}

static inline_always __u64 wake_flag(__u64 waiting)
{
	return waiting >= wake_at ? RB_FORCE_WAKEUP : RB_NO_WAKEUP;
}

/*
 * press stops the process that writes faster than the recorder reads, before anything must be lost. The list is written
 * after the signal, so that a process on it can always be continued; one that fits on no list is continued at once.
 */
static inline_always void press(__u64 waiting)
{
	if (!stop_at || waiting < stop_at)
		return;
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct task_struct *t = current();
	__u64 start = get(get(t, group_leader), start_boottime);
	if (bpf_send_signal(SIGSTOP))
		return;
	if (bpf_map_update_elem(&stopped, &tgid, &start, 0)) {
		bpf_send_signal(SIGCONT);
		return;
	}
	__sync_fetch_and_add(&stops, 1);
}

/*
 * The verifier looks at a global function once, at a static one for each of its callers. So the larger functions are
 * global: they take numbers only, and find scratch and task themselves.
 */
#define GLOBAL_FN(none)                                                                                                \
	struct scratch *s = scratch();                                                                                 \
	struct task_struct *t __attribute__((unused)) = current();                                                     \
	if (!s)                                                                                                        \
		return none;                                                                                           \
	struct call *c __attribute__((unused)) = &s->call

/* interrupted tells a call that may be started again, with the same arguments, once a signal's handler has returned. */
static inline_always bool interrupted(__s64 ret)
{
	return ret <= -512 && ret >= -516;
}

/* send numbers a record and sends it, with the event of its source counted where unit says so. Returns whether that worked. */
static inline_always int send(struct rec *r, __u32 len, bool unit)
{
	struct stats *st = stats_of(CALM);
	if (!st)
		return 0;
	__u64 waiting = bpf_ringbuf_query(&ring, RB_AVAIL_DATA);
	__u32 src = r->source;
	r->seq = st->seq++;
	r->stream = bpf_get_smp_processor_id() * STREAMS + CALM;
	opaque(src);
	if (src >= SRC_NUM)
		return 0;
	if (unit && src != SRC_PART)
		st->src[src].seen++;
	int ok = bpf_ringbuf_output(&ring, r, len, wake_flag(waiting)) == 0;
	if (unit && !ok)
		lost(src, 1);
	press(waiting);
	return ok;
}

/* put sends the first len bytes of s->out. Process context only. */
noinline_fn int put(__u32 len)
{
	GLOBAL_FN(0);
	opaque(len);
	return len > OUT_MAX ? 0 : send((struct rec *)s->out, len, false);
}

/* put_unit sends s->out as one event of its source, which it counts. */
noinline_fn int put_unit(__u32 len)
{
	GLOBAL_FN(0);
	opaque(len);
	return len > OUT_MAX ? 0 : send((struct rec *)s->out, len, true);
}

static inline_always struct rec *out_rec(struct scratch *s)
{
	return (struct rec *)s->out;
}

static inline_always struct body *out_body(struct scratch *s)
{
	return (struct body *)(s->out + sizeof(struct rec));
}

/* begin starts a record with a body, of the current task. */
noinline_fn int begin_record(__u8 kind, __u8 source, __u8 type)
{
	GLOBAL_FN(0);
	head(out_rec(s), kind, source, type);
	memzero(out_body(s), sizeof(struct body));
	s->walk = 0;
	return 0;
}

/* put_life sends the record of a process that begins or ends. */
noinline_fn int put_life(__u8 kind, __u8 source, __u64 value, __u32 tgid, __u64 start)
{
	GLOBAL_FN(0);
	head(out_rec(s), kind, source, 0);
	*(struct life *)out_body(s) = (struct life){value, start, tgid};
	return put_unit(LIFE_LEN);
}

static inline_always struct body *begin(struct scratch *s, __u8 kind, __u8 source, __u8 type)
{
	begin_record(kind, source, type);
	return out_body(s);
}

#endif
