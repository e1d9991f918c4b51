/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Paths and strings. */
#ifndef BODYCAM_PATH_H
#define BODYCAM_PATH_H

#include "emit.h"

#define AT_FDCWD (-100)
#define WALK_STEPS 1024

#define SHORT 32
#define BACK_END (FRONT + STR_MAX)

/*
 * put_back copies a name to before s->back's byte end. Short ones go in words, of which the last may write a little too far to the
 * front, where nothing has been written yet.
 */
static inline_always void put_back(struct scratch *s, __u32 end, const unsigned char *name, __u32 n)
{
	__u32 at = end - n;
	if (n > SHORT) {
		opaque(at);
		if (at < BACK_END)
			bpf_probe_read_kernel(&s->back[at], n & 0xff, name);
		return;
	}
	for (__u32 i = 8; i <= SHORT; i += 8) {
		at = end - i;
		opaque(at);
		if (at <= BACK_END - 8)
			store_word(&s->back[at], word(name + n - i));
		if (n <= i)
			break;
	}
}

struct up {
	struct scratch *s;
	struct task_struct *t;
	struct dentry *d;
	struct mount *m;
	__u32 bits;
};

/* walk_up writes one name of the path before the others, or goes from a mount to the one that it lies in. */
static inline_always long walk_up(__u32 i, void *ctx)
{
	struct up *u = ctx;
	struct scratch *s = u->s;
	struct dentry *d = u->d, *up = as(struct dentry, get(d, d_parent));
	struct mount *m = u->m;
	if (d == get(m, mnt.mnt_root)) {
		struct mount *parent = as(struct mount, get(m, mnt_parent));
		if (parent == m) {
			struct nsproxy *ns = get(u->t, nsproxy);
			u->bits = ns && get(m, mnt_ns) == get(ns, mnt_ns) ? 0 : WALK_DETACHED;
			return 1;
		}
		u->d = as(struct dentry, get(m, mnt_mountpoint));
		u->m = parent;
		return 0;
	}
	__u32 n = get(d, d_name.len) & 0xff, end = s->cursor, at = end - n;
	if (end < FRONT + n + 1)
		return 1;
	put_back(s, end, get(d, d_name.name), n);
	if (up == d) { /* an object outside any tree: pipe, memfd, socket */
		s->cursor = at;
		u->bits = WALK_ANON;
		return 1;
	}
	s->cursor = --at;
	opaque(at);
	if (at >= BACK_END)
		return 1;
	s->back[at] = '/';
	u->d = up;
	return 0;
}

/*
 * walk_back writes the path of s->dentry in s->mnt to the end of s->back, from the top of its mount tree, and returns its
 * length. It goes from the name upwards, as d_path does, but does not stop at the process's root: a chroot hides
 * nothing. Global, so that the verifier looks at it once; hence the scratch instead of arguments, and instead of what changes
 * with each step.
 */
noinline_fn int walk_back(void)
{
	GLOBAL_FN(0);
	s->cursor = BACK_END;
	if (!s->dentry || !s->mnt)
		return 0;
	struct up u = {s, t, as(struct dentry, s->dentry), as(struct mount, s->mnt), WALK_CUT};
	if (!get(u.d, d_hash.pprev) && u.d != get(u.d, d_parent))
		s->walk |= WALK_DELETED;
	repeat(WALK_STEPS, walk_up, &u);
	s->walk |= u.bits;
	if (s->cursor == BACK_END && !(u.bits & WALK_ANON)) {
		s->back[BACK_END - 1] = '/';
		return 1;
	}
	return BACK_END - s->cursor;
}

/* walk_at is walk_back to s->out[pos]. */
noinline_fn int walk_at(__u32 pos)
{
	struct scratch *s = scratch();
	if (!s || pos > OUT_MAX - STR_MAX - 1)
		return 0;
	__u32 n = walk_back();
	opaque(n);
	if (n > STR_MAX)
		return 0;
	bpf_probe_read_kernel(&s->out[pos], n, &s->back[BACK_END - n]);
	return n;
}

/* user_str_at copies the string at the user address s->ptr to s->out[pos] and returns its length. */
noinline_fn int user_str_at(__u32 pos)
{
	struct scratch *s = scratch();
	if (!s || pos > OUT_MAX - STR_MAX - 1)
		return 0;
	long n = bpf_probe_read_user_str(&s->out[pos], STR_MAX, (void *)s->ptr);
	return n > 0 ? n - 1 : 0;
}

noinline_fn int kernel_str_at(__u32 pos)
{
	struct scratch *s = scratch();
	if (!s || pos > OUT_MAX - STR_MAX - 1)
		return 0;
	long n = bpf_probe_read_kernel_str(&s->out[pos], STR_MAX, (void *)s->ptr);
	return n > 0 ? n - 1 : 0;
}

static inline_always __u64 stir(__u64 h, __u64 word, __u32 left)
{
	if (left < 8)
		word &= (1ULL << (left * 8)) - 1;
	h = (h ^ word) * 0xff51afd7ed558ccdULL;
	return h ^ h >> 32;
}

struct sum {
	struct scratch *s;
	__u64 h;
	__u32 n;
};

static inline_always long stir_in(__u32 i, void *ctx)
{
	struct sum *m = ctx;
	__u32 at = (i + SHORT / 8) * 8;
	if (at >= m->n)
		return 1;
	m->h = stir(m->h, *(__u64 *)(m->s->out + (at & (STR_MAX - 8))), m->n - at);
	return 0;
}

/* hash_out returns a hash, never 0, of the n bytes at s->out. */
noinline_fn __u64 hash_out(__u32 n)
{
	GLOBAL_FN(1);
	if (!n || n > STR_MAX)
		return 1;
	__u64 h = n * 0x9e3779b97f4a7c15ULL;
	for (__u32 i = 0; i < SHORT; i += 8) {
		h = stir(h, *(__u64 *)(s->out + i), n - i);
		if (n <= i + 8)
			return h | 1;
	}
	struct sum m = {s, h, n};
	repeat(STR_MAX / 8, stir_in, &m);
	return m.h | 1;
}

static inline_always __u64 mount_of(const struct vfsmount *v)
{
	return v ? (__u64)v - field_offset(struct mount, mnt) : 0;
}

static inline_always void start_at(struct scratch *s, struct path *p)
{
	s->dentry = (__u64)get(p, dentry);
	s->mnt = mount_of(get(p, mnt));
}

static inline_always __u32 walk(struct scratch *s, struct path *p, __u32 pos)
{
	start_at(s, p);
	return walk_at(pos) & 0x1fff;
}

static inline_always __u32 user_str(struct scratch *s, __u64 addr, __u32 pos)
{
	s->ptr = addr;
	return user_str_at(pos) & (STR_MAX - 1);
}

static inline_always __u32 kernel_str(struct scratch *s, const void *addr, __u32 pos)
{
	s->ptr = (__u64)addr;
	return kernel_str_at(pos) & (STR_MAX - 1);
}

/* fd_file returns the file behind a descriptor of the current task, or NULL. */
static inline_always struct file *fd_file(struct task_struct *t, int fd)
{
	struct files_struct *files = get(t, files);
	if (!files || fd < 0)
		return 0;
	struct fdtable *table = get(files, fdt);
	if ((__u32)fd >= get(table, max_fds))
		return 0;
	__u64 f = word(get(table, fd) + fd);
	return f ? as(struct file, f) : 0;
}

/* walk_base writes the path of the folder that a relative name starts from. */
noinline_fn int walk_base(int dfd, __u32 pos)
{
	struct scratch *s = scratch();
	struct task_struct *t = current();
	if (!s)
		return 0;
	if (dfd == AT_FDCWD) {
		struct fs_struct *fs = get(t, fs);
		start_at(s, &fs->pwd);
		return walk_at(pos);
	}
	struct file *f = fd_file(t, dfd);
	if (!f) {
		s->walk |= WALK_NOFD;
		return 0;
	}
	start_at(s, &f->f_path);
	return walk_at(pos);
}

#endif
