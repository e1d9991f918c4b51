/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Processes: fork, exec, exit, signals; and io_uring, whose work no system call shows. */
#ifndef BODYCAM_LIFE_H
#define BODYCAM_LIFE_H

#include "cache.h"
#include "resolve.h"

#define CLONE_THREAD 0x00010000
#define CLONE_NEW 0x7e020080 /* new namespaces: NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET NEWTIME */
#define SIGNAL_GROUP_EXIT 4
#define ARGV_CHUNKS 1024

struct argv {
	struct scratch *s;
	__u64 from, total;
};

static inline_always long put_piece(__u32 i, void *ctx)
{
	struct argv *a = ctx;
	struct piece *p = (struct piece *)out_body(a->s);
	__u64 off = (__u64)i * CHUNK;
	if (off >= a->total)
		return 1;
	__u64 n = a->total - off;
	if (n > CHUNK)
		n = CHUNK;
	opaque(n);
	if (n > CHUNK)
		return 1;
	head(out_rec(a->s), K_ARGV, SRC_PART, 0);
	p->offset = off;
	if (bpf_probe_read_user(p + 1, n, (void *)(a->from + off)))
		n = 0;
	if (!put(sizeof(struct rec) + sizeof(struct piece) + n))
		lost(SRC_PART, 1);
	return 0;
}

/* put_argv sends argv as it lies in memory, piece by piece. */
noinline_fn int put_argv(__u64 from, __u64 total)
{
	GLOBAL_FN(0);
	struct argv a = {s, from, total};
	repeat(ARGV_CHUNKS, put_piece, &a);
	return 0;
}

struct works {
	struct callback_head *next;
	struct file *found;
};

/* put off until a task goes back to user mode: the freeing of a file, as a rule */
#define file_work(cb)                                                                                                  \
	as(struct file, (void *)(cb) - (field_exists(struct file, f_task_work) ? offset_where(struct file, f_task_work) : offset_where(struct file___6_1, f_rcuhead)))

static inline_always long look_at_work(__u32 i, void *ctx)
{
	struct works *w = ctx;
	if (!w->next)
		return 1;
	struct callback_head *cb = as(struct callback_head, w->next);
	struct file *f = file_work(cb);
	struct inode *in = get(f, f_inode);
	if (in && (get(in, i_mode) & S_IFMT) == S_IFREG && get(in, i_mapping) == get(f, f_mapping) && get(get(f, f_path.dentry), d_inode) == in)
		w->found = f;
	w->next = get(cb, next);
	return 0;
}

/*
 * script_file finds the script that an interpreter was started for. The kernel has let go of it by now, but files are
 * freed only when the task goes back to user mode: until then it waits in the task's list of work, of which it is the
 * oldest file. Returns NULL where it isn't there.
 */
static inline_always struct file *script_file(struct task_struct *t)
{
	struct works w = {get(t, task_works)};
	repeat(1024, look_at_work, &w);
	return w.found;
}

SEC("tp_btf/sched_process_exec")
int on_exec(__u64 *ctx)
{
	struct linux_binprm *bp = untrusted(struct linux_binprm, ctx[2]);
	struct task_struct *t = current();
	if (!mine())
		return 0;
	struct scratch *s = scratch();
	struct mm_struct *mm = get(t, mm);
	if (!s || !mm)
		return 0;
	__u64 from = get(mm, arg_start), total = get(mm, arg_end) - from;
	turn_over(my_cache());
	head(out_rec(s), K_EXEC, SRC_EXEC, 0);
	struct executed *x = (struct executed *)out_body(s);
	memzero(x, sizeof(*x));
	struct task_struct *parent = get(t, real_parent);
	x->parent = get(parent, tgid);
	x->parent_start = get(get(parent, group_leader), start_boottime);
	x->argv = total;
	x->old_tid = ctx[1];
	struct file *f = get(bp, file);
	x->ino = get(get(f, f_inode), i_ino);
	x->dev = get(get(get(f, f_inode), i_sb), s_dev);
	__u32 pos = EXEC_HEAD;
	s->walk = 0;
	x->exe = walk(s, &f->f_path, pos);
	pos += x->exe;
	x->exe_walk = s->walk;
	s->walk = 0;
	struct fs_struct *fs = get(t, fs);
	x->cwd = walk(s, &fs->pwd, pos);
	pos += x->cwd;
	x->cwd_walk = s->walk;
	x->given = kernel_str(s, get(bp, filename), pos);
	pos += x->given;
	if (get(bp, interp) != get(bp, filename)) {
		x->interpreter = 1;
		struct file *script = get(bp, executable);
		if (!script)
			script = script_file(t);
		if (script) {
			s->walk = 0;
			x->script = walk(s, &script->f_path, pos);
			pos += x->script;
			x->script_walk = s->walk;
		}
	}
	x->by_fd = get(bp, fdpath) != 0;
	opaque(pos);
	if (total < STR_MAX && pos <= OUT_MAX - STR_MAX && !bpf_probe_read_user(&s->out[pos], total & (STR_MAX - 1), (void *)from)) {
		x->args = total;
		pos += total & (STR_MAX - 1);
	}
	bool whole = x->args == total;
	put_unit(pos);
	if (!whole)
		put_argv(from, total);
	return 0;
}

SEC("tp_btf/task_newtask")
int on_newtask(__u64 *ctx)
{
	struct task_struct *child = untrusted(struct task_struct, ctx[0]);
	__u64 flags = ctx[1];
	if ((flags & CLONE_THREAD) || !mine())
		return 0;
	put_life(K_FORK, SRC_FORK, flags, get(child, pid), get(child, start_boottime));
	if (flags & CLONE_NEW)
		put_life(K_CLONE_NS, SRC_CALL, flags, get(child, pid), get(child, start_boottime));
	return 0;
}

/* Processes whose end was reported, by id: their start. */
struct {
	__uint(type, MAP_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} ended SEC(".maps");

/* first_to_end tells of the threads that end a process together which one came first. */
static inline_always bool first_to_end(struct task_struct *t)
{
	__u32 tgid = get(t, tgid);
	__u64 start = get(get(t, group_leader), start_boottime);
	__u64 *old = bpf_map_lookup_elem(&ended, &tgid);
	if (old)
		return __sync_lock_test_and_set(old, start) != start;
	return bpf_map_update_elem(&ended, &tgid, &start, NO_EXIST) == 0;
}

/* put_thread tells that the current task's id was another one, which is free now. */
noinline_fn int put_thread(__u32 old_tid)
{
	GLOBAL_FN(0);
	head(out_rec(s), K_THREAD, SRC_PART, 0);
	out_rec(s)->tid = old_tid;
	return put_unit(LIFE_LEN);
}

SEC("tp_btf/sched_process_exit")
int on_exit(__u64 *ctx)
{
	struct task_struct *t = current();
	struct cache *c = my_cache();
	__u32 tid = get(t, pid), old_tid = tid;
	if (c) { /* also of one that was moved out of the subtree */
		old_tid = c->tid;
		flush_all(c);
		give_back(c);
	}
	if (old_tid != tid) /* it dies of executing a program, under its leader's id */
		put_thread(old_tid);
	if (!mine())
		return 0;
	struct signal_struct *sig = get(t, signal);
	/* Since 6.16 the kernel tells. Before, threads that end at once may all find themselves the last. */
	bool last = exit_tells_last ? (bool)ctx[1] : get(sig, live.counter) == 0 && first_to_end(t);
	int status = get(sig, flags) & SIGNAL_GROUP_EXIT ? get(sig, group_exit_code) : get(get(t, group_leader), exit_code);
	put_life(last ? K_EXIT : K_THREAD, last ? SRC_EXIT : SRC_PART, status, 0, 0);
	return 0;
}

/*
 * Signals that a process of the target sends to another one. It may run with interrupts off, so it builds the record
 * in the ring.
 */
SEC("tp_btf/signal_generate")
int on_signal(__u64 *ctx)
{
	int sig = ctx[0];
	__u64 raw = ctx[1];
	struct task_struct *to = untrusted(struct task_struct, ctx[2]);
	struct task_struct *t = current();
	if (raw <= 1 || !mine()) /* 0 and 1 stand for the kernel's own */
		return 0;
	struct kernel_siginfo *info = as(struct kernel_siginfo, raw);
	if (get(info, si_code) > 0 || get(to, tgid) == get(t, tgid))
		return 0;
	seen_anytime(SRC_SIGNAL);
	__u64 waiting = bpf_ringbuf_query(&ring, RB_AVAIL_DATA);
	struct rec *r = bpf_ringbuf_reserve(&ring, LIFE_LEN, 0);
	if (!r) {
		gap_anytime();
		lost_anytime(SRC_SIGNAL);
		return 0;
	}
	head(r, K_SIGNAL, SRC_SIGNAL, 0);
	number_anytime(r);
	*(struct life *)(r + 1) = (struct life){sig, get(get(to, group_leader), start_boottime), get(to, tgid)};
	bpf_ringbuf_submit(r, wake_flag(waiting));
	return 0;
}

enum { URING_OPENAT = 18, URING_OPENAT2 = 28, URING_RENAMEAT = 35, URING_LINKAT = 39 };

/* Submissions: what is asked for is known, what came of it is not. */
SEC("tp_btf/io_uring_submit_req")
int on_uring(__u64 *ctx)
{
	struct io_kiocb *req = untrusted(struct io_kiocb, ctx[0]);
	if (!mine())
		return 0;
	struct scratch *s = scratch();
	if (!s)
		return 0;
	struct body *b = begin(s, K_URING, SRC_URING, 0);
	__u8 op = get(req, opcode);
	b->arg[0] = op;
	if (op >= URING_RENAMEAT && op <= URING_LINKAT)
		names_moved(current());
	__u32 pos = HEAD;
	if (op == URING_OPENAT || op == URING_OPENAT2) {
		struct io_open *o = as(struct io_open, &req->cmd);
		__u64 at = field_exists(struct io_open, filename) ? (__u64)get(o, filename) : member(struct io_open___7_0, o, filename.__incomplete_filename);
		struct filename *name = as(struct filename, at);
		b->arg[1] = get(o, how.flags);
		b->len[0] = kernel_str(s, get(name, name), pos);
		bool relative = !b->len[0] || s->out[HEAD] != '/';
		pos += b->len[0];
		if (relative) {
			s->walk = 0;
			b->len[1] = walk_base(get(o, dfd), pos) & 0x1fff;
			pos += b->len[1];
			b->walk = s->walk;
		}
	}
	put_unit(pos);
	return 0;
}

#endif
