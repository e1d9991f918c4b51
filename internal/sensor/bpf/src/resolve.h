/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where a name leads: the walk that the kernel made for a call, made again at the call's end through the kernel's own
 * cache of names, where everything that it touched still is. Links are followed, ".." goes up as the kernel goes up, mounts are crossed.
 * What the walk needs lies in the scratch, so that the verifier has little to keep in mind.
 */
#ifndef BODYCAM_RESOLVE_H
#define BODYCAM_RESOLVE_H

#include "path.h"

#define NAME_STEPS 12288 /* bytes of a name and of the links in it */
#define CHILDREN 2048    /* names of one folder to look through */
#define FEW 64
#define MOUNTS 1024
#define LINKS 40
#define KNOWN 4096
#define QUIET 250000000ULL /* no name resolution takes so long */
#define SPARE (OUT_MAX - STR_MAX)

#define S_IFLNK 0120000
#define S_IFDIR 0040000
#define OVERLAY_MAGIC 0x794c7630
#define VM_SHARED 8
#define AT_SYMLINK_NOFOLLOW 0x100
#define AT_SYMLINK_FOLLOW 0x400
#define O_CREAT 0100
#define O_EXCL 0200
#define O_NOFOLLOW 0400000

/* How a call treats a name; the high half byte is the argument that holds its flags, from 1. */
enum follow {
	F_NO,   /* a link at the end is itself meant */
	F_YES,  /* a link at the end is followed */
	F_AT,   /* followed unless AT_SYMLINK_NOFOLLOW */
	F_LINK, /* followed with AT_SYMLINK_FOLLOW */
	F_OPEN, /* followed unless O_NOFOLLOW, or O_CREAT with O_EXCL */
	F_NAME, /* no path at all */
	F_TEXT, /* a path with rules of its own: left as it is given */
};

enum step { STEP_ON, STEP_LEAF, STEP_GONE, STEP_FAIL };

enum dentry_flags { DCACHE_MOUNTED = 1 << 15 };

struct known { /* a name found before; looked at again before it is believed */
	__u64 folder, entry;
};

struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, KNOWN);
	__type(key, __u32);
	__type(value, struct known);
} known_names SEC(".maps");

/* When names that lead further (of folders, links and mounts) last changed, by which thread, and before that by another one. */
__u64 moved_at = 0, moved_before = 0;
__u32 moved_by = 0;

static inline_always void names_moved(struct task_struct *t)
{
	__u32 tid = get(t, pid);
	if (moved_by != tid) {
		moved_before = moved_at;
		moved_by = tid;
	}
	moved_at = bpf_ktime_get_boot_ns();
}

/* same_name tells whether the cached name s->found is the component in s->comp. */
inline_old int same_name(__u32 len)
{
	GLOBAL_FN(0);
	struct dentry *d = as(struct dentry, s->found);
	len &= 0xff;
	if (get(d, d_name.len) != len || !get(d, d_hash.pprev) || bpf_probe_read_kernel(s->candidate, len, get(d, d_name.name)))
		return 0;
	struct bpf_iter_num it;
	int *i, same = 1;
	bpf_iter_num_new(&it, 0, (len + 7) / 8);
	while ((i = bpf_iter_num_next(&it))) {
		__u32 off = ((__u32)*i * 8) & 0xf8;
		__u64 w = *(__u64 *)(s->candidate + off);
		if (len - off < 8)
			w &= (1ULL << ((len - off) * 8)) - 1;
		if (w != *(__u64 *)(s->comp + off)) {
			same = 0;
			break;
		}
	}
	bpf_iter_num_destroy(&it);
	return same;
}

/* known_slot is where the component in s->comp of the folder s->dentry is remembered. */
static inline_always struct known *known_slot(struct scratch *s, __u32 len)
{
	__u64 h = s->dentry ^ len, last = *(__u64 *)(s->comp + ((len - 1) & 0xf8)); /* the last bytes differ most */
	h = (h ^ *(__u64 *)s->comp) * 0xff51afd7ed558ccdULL;
	h = (h ^ (h >> 32) ^ last) * 0xff51afd7ed558ccdULL;
	__u32 slot = (h >> 40) & (KNOWN - 1);
	return bpf_map_lookup_elem(&known_names, &slot);
}

struct children {
	struct scratch *s;
	__u64 at, end; /* end: where the circle closes; 0 where it is a list */
	__u32 len;
	int got;
};

/* look_at_child looks at one name of a folder. */
static inline_always long look_at_child(__u32 i, void *ctx)
{
	struct children *c = ctx;
	struct scratch *s = c->s;
	bool circle = !field_exists(struct dentry, d_children);
	__u64 at = c->at;
	if (at == c->end) {
		c->got = 0;
		return 1;
	}
	at -= circle ? offset_where(struct dentry___6_7, d_child) : offset_where(struct dentry, d_sib);
	struct dentry *d = as(struct dentry, at);
	if ((__u64)get(d, d_parent) != s->dentry) /* it was moved away, and the list with it */
		return 1;
	s->found = at;
	if (get(d, d_name.len) == c->len && same_name(c->len)) {
		c->got = 1;
		return 1;
	}
	c->at = circle ? member(struct dentry___6_7, d, d_child.next) : (__u64)get(d, d_sib.next);
	return 0;
}

/* find_child looks for s->comp in the folder s->dentry: 1 with s->found; 0 there is none; -1 can't be told. */
noinline_fn int find_child(__u32 len)
{
	GLOBAL_FN(-1);
	if (!len)
		return -1;
	struct known *k = known_slot(s, len);
	if (k && k->folder == s->dentry) {
		s->found = k->entry;
		if ((__u64)get(as(struct dentry, s->found), d_parent) == s->dentry && same_name(len))
			return 1;
	}
	struct children all = {s, 0, 0, len, -1};
	struct dentry *folder = as(struct dentry, s->dentry);
	if (field_exists(struct dentry, d_children)) {
		all.at = (__u64)get(folder, d_children.first);
	} else {
		all.at = member(struct dentry___6_7, folder, d_subdirs.next);
		all.end = (__u64)folder + offset_where(struct dentry___6_7, d_subdirs);
	}
	repeat(s->budget & 0xfff, look_at_child, &all);
	if (all.got == 1 && k) {
		k->folder = s->dentry;
		k->entry = s->found;
	}
	return all.got;
}

struct mounts {
	struct scratch *s;
	__u64 at, end;
	bool entered;
};

static inline_always long look_at_mount(__u32 i, void *ctx)
{
	struct mounts *m = ctx;
	__u64 at = m->at;
	if (at == m->end || !at)
		return 1;
	at -= field_offset(struct mount, mnt_child);
	struct mount *c = as(struct mount, at);
	if ((__u64)get(c, mnt_mountpoint) == m->s->dentry) {
		m->s->mnt = at;
		m->s->dentry = (__u64)get(c, mnt.mnt_root);
		m->entered = true;
		return 1;
	}
	m->at = (__u64)get(c, mnt_child.next);
	return 0;
}

/* enter_mount goes to what is mounted on s->dentry, if anything is. */
static inline_always bool enter_mount(struct scratch *s)
{
	struct mount *in = as(struct mount, s->mnt);
	struct mounts m = {s, (__u64)get(in, mnt_mounts.next), s->mnt + field_offset(struct mount, mnt_mounts)};
	repeat(MOUNTS, look_at_mount, &m);
	return m.entered;
}

static inline_always bool is_mountpoint(__u64 dentry)
{
	__u32 bit = enum_value_exists(enum dentry_flags, DCACHE_MOUNTED) ? enum_value(enum dentry_flags, DCACHE_MOUNTED) : 0x10000;
	return get(as(struct dentry, dentry), d_flags) & bit;
}

noinline_fn int cross_mounts(void)
{
	GLOBAL_FN(0);
	struct bpf_iter_num it;
	bpf_iter_num_new(&it, 0, 16);
	while (bpf_iter_num_next(&it))
		if (!is_mountpoint(s->dentry) || !enter_mount(s))
			break;
	bpf_iter_num_destroy(&it);
	return 0;
}

/* go_up goes to the folder above, not beyond the process's root. */
inline_old int go_up(void)
{
	GLOBAL_FN(0);
	struct fs_struct *fs = get(t, fs);
	__u64 root = (__u64)get(fs, root.dentry), root_mnt = mount_of(get(fs, root.mnt));
	struct bpf_iter_num it;
	bpf_iter_num_new(&it, 0, 64);
	while (bpf_iter_num_next(&it)) {
		if (s->dentry == root && s->mnt == root_mnt)
			break;
		struct mount *m = as(struct mount, s->mnt);
		if (s->dentry != (__u64)get(m, mnt.mnt_root)) {
			s->dentry = (__u64)get(as(struct dentry, s->dentry), d_parent);
			break;
		}
		if ((__u64)get(m, mnt_parent) == s->mnt)
			break;
		s->dentry = (__u64)get(m, mnt_mountpoint);
		s->mnt = (__u64)get(m, mnt_parent);
	}
	bpf_iter_num_destroy(&it);
	return cross_mounts();
}

/* link_text is the address of what a link says, where that is in memory. */
static inline_always __u64 link_text(struct inode *in)
{
	if (get(in, i_link) || get(get(in, i_sb), s_magic) != OVERLAY_MAGIC || !field_exists(struct ovl_inode, __upperdentry))
		return (__u64)get(in, i_link);
	void *o = (void *)in - field_offset(struct ovl_inode, vfs_inode);
	__u64 real = member(struct ovl_inode, o, __upperdentry);
	if (!real && field_exists(struct ovl_inode, oe)) {
		__u64 lower = member(struct ovl_inode, o, oe);
		__u32 n = 0;
		bpf_probe_read_kernel(&n, sizeof(n), (void *)lower + field_offset(struct ovl_entry, __numlower));
		if (n)
			real = member(struct ovl_path, lower + field_offset(struct ovl_entry, __lowerstack), dentry);
	} else if (!real && field_exists(struct ovl_inode___6_4, lowerpath)) {
		real = member(struct ovl_inode___6_4, o, lowerpath.dentry);
	}
	return real ? (__u64)get(get(as(struct dentry, real), d_inode), i_link) : 0;
}

/* enter_link puts what a link says before the rest of the name. */
noinline_fn int enter_link(void)
{
	GLOBAL_FN(STEP_FAIL);
	__u64 text = link_text(as(struct inode, get(as(struct dentry, s->found), d_inode)));
	if (!text || ++s->links > LINKS)
		return STEP_FAIL;
	long n = bpf_probe_read_kernel_str(&s->out[SPARE], STR_MAX, (void *)text);
	if (n <= 1 || n > STR_MAX || (__u32)--n > s->at)
		return STEP_FAIL;
	__u32 at = (s->at - n) & (STR_MAX - 1);
	bpf_probe_read_kernel(&s->back[FRONT + at], n & (STR_MAX - 1), &s->out[SPARE]);
	s->at = at;
	if (s->out[SPARE] == '/')
		start_at(s, &get(t, fs)->root);
	return STEP_ON;
}

/* step takes the component in s->comp. */
noinline_fn int step(__u32 len, int last)
{
	GLOBAL_FN(STEP_FAIL);
	if (s->comp[0] == '.' && len == 1)
		return STEP_ON;
	if (!last)
		s->depth++;
	if (s->comp[0] == '.' && s->comp[1] == '.' && len == 2) {
		s->depth++;
		go_up();
		return STEP_ON;
	}
	if (last && !s->follow)
		return STEP_LEAF;
	int found = find_child(len);
	if (found < 0)
		return STEP_FAIL;
	struct inode *in = found ? as(struct inode, get(as(struct dentry, s->found), d_inode)) : 0;
	if (!in) {
		if (s->ret >= 0) /* it was there, and is in the cache no more */
			return STEP_FAIL;
		return last ? STEP_LEAF : STEP_GONE;
	}
	if ((get(in, i_mode) & S_IFMT) == S_IFLNK) {
		s->depth++;
		return enter_link();
	}
	s->dentry = s->found;
	cross_mounts();
	return STEP_ON;
}

struct way {
	struct scratch *s;
	int ended;
};

/* next_byte takes one byte of the name; at a component's end, the component. */
static inline_always long next_byte(__u32 i, void *ctx)
{
	struct way *w = ctx;
	struct scratch *s = w->s;
	__u32 at = s->at, len = s->len;
	bool end = at >= STR_MAX;
	char ch = end ? '/' : s->back[FRONT + (at & (STR_MAX - 1))];
	if (ch != '/') {
		if (len >= 255)
			return 1;
		s->comp[len & 0xff] = ch;
		s->len = len + 1;
		s->at = at + 1;
		return 0;
	}
	if (len) {
		*(__u64 *)(s->comp + (len & 0xff)) = 0;
		int r = step(len, end);
		if (r != STEP_ON) {
			w->ended = r;
			return 1;
		}
		s->len = 0;
		return 0;
	}
	if (end) {
		w->ended = STEP_ON;
		return 1;
	}
	s->at = at + 1;
	return 0;
}

/* steps walks the name in s->back from s->at. Returns how the walk ended: STEP_ON with s->dentry the object itself. */
static inline_always int steps(struct scratch *s)
{
	struct way w = {s, STEP_FAIL};
	s->len = 0;
	repeat(NAME_STEPS, next_byte, &w);
	return w.ended;
}

#define PROC_SUPER_MAGIC 0x9fa0
#define FD_PREFIX 14 /* bytes of "/proc/self/fd/" */

/*
 * from_fd begins the way of a name like /proc/self/fd/7/rest at the folder behind the descriptor, where the kernel itself
 * jumps to: such links of procfs have no text that could be followed. Returns how many bytes of the name that took, 0 where
 * the name is another one, or /proc is no procfs.
 */
noinline_fn int from_fd(__u32 pos, __u32 n)
{
	GLOBAL_FN(0);
	if (pos > SPARE / 2 || n < FD_PREFIX + 2)
		return 0;
	const char *name = &s->out[pos];
	if (__builtin_memcmp(name, "/proc/self/fd/", FD_PREFIX))
		return 0;
	int fd = 0, digits = 0;
	for (int i = 0; i < 8; i++) {
		char ch = s->out[(pos + FD_PREFIX + i) & 0x3fff];
		if (ch == '/')
			break;
		if (ch < '0' || ch > '9' || i == 7)
			return 0;
		fd = fd * 10 + ch - '0';
		digits++;
	}
	struct fs_struct *fs = get(t, fs);
	start_at(s, &fs->root);
	s->budget = CHILDREN;
	*(__u64 *)s->comp = 0x636f7270; /* proc */
	if (!digits || find_child(4) != 1)
		return 0;
	s->dentry = s->found;
	cross_mounts();
	struct inode *in = get(as(struct dentry, s->dentry), d_inode);
	if (!in || get(get(in, i_sb), s_magic) != PROC_SUPER_MAGIC)
		return 0;
	struct file *f = fd_file(t, fd);
	if (!f)
		return 0;
	start_at(s, &f->f_path);
	s->dfd = fd;
	return FD_PREFIX + digits;
}

/*
 * resolve walks the name of n bytes at s->out[pos] and writes where it leads behind it. It returns the length of that, or -1
 * where the way can't be seen. What was not found is named by its folder's path and its own name.
 */
noinline_fn int resolve(__u32 pos, __u32 n)
{
	GLOBAL_FN(-1);
	struct fs_struct *fs = get(t, fs);
	n &= STR_MAX - 1;
	__u32 end = (pos + n) & 0x7fff;
	if (pos > SPARE / 2 || end > SPARE)
		return -1;
	__u32 skip = 0;
	if (n && s->out[pos] == '/') {
		skip = from_fd(pos, n) & 0x1f;
		if (!skip)
			start_at(s, &fs->root);
	} else if (s->dfd == AT_FDCWD) {
		start_at(s, &fs->pwd);
	} else {
		struct file *f = fd_file(t, s->dfd);
		if (!f)
			return -1;
		start_at(s, &f->f_path);
	}
	if (!s->dentry || !s->mnt)
		return -1;
	pos += skip;
	n = (n - skip) & (STR_MAX - 1);
	for (int i = 0; i < 4 && n > 1; i++) /* slashes at the end add nothing to a path */
		if (s->out[(pos + n - 1) & 0x3fff] == '/')
			n--;
	s->at = STR_MAX - n;
	bpf_probe_read_kernel(&s->back[FRONT + (s->at & (STR_MAX - 1))], n & (STR_MAX - 1), &s->out[pos]);
	s->links = s->depth = 0;
	s->budget = CHILDREN;
	int r = steps(s);
	if (r == STEP_FAIL)
		return -1;
	__u32 rest = r == STEP_GONE ? (STR_MAX - s->at) & (STR_MAX - 1) : 0;
	if (rest)
		bpf_probe_read_kernel(&s->out[SPARE], rest, &s->back[FRONT + (s->at & (STR_MAX - 1))]);
	__u32 m = walk_at(end) & 0x1fff;
	s->ended = r;
	if (r == STEP_ON)
		return m;
	if (r == STEP_GONE)
		s->walk |= WALK_REST;
	__u32 at = (end + m) & 0x7fff;
	if (at >= SPARE - 512)
		return -1;
	if (m != 1 || s->out[end] != '/')
		s->out[at++] = '/';
	bpf_probe_read_kernel(&s->out[at], s->len & 0xff, s->comp);
	at += s->len & 0xff;
	if (rest) {
		if (at > SPARE - STR_MAX)
			return -1;
		bpf_probe_read_kernel(&s->out[at], rest, &s->out[SPARE]);
		at += rest;
	}
	return at - end;
}

struct memory {
	__u64 from, to;
	int fixed;
};

/* look_at_memory tells whether nobody but the thread itself can have written to where a name lies. */
static long look_at_memory(struct task_struct *t, struct vm_area_struct *v, void *ctx)
{
	struct memory *m = ctx;
	struct vm_area_struct *u = as(struct vm_area_struct, v);
	if (m->from < get(u, vm_start) || m->to > get(u, vm_end) || (get(u, vm_flags) & VM_SHARED))
		return 0;
	m->fixed = !get(u, vm_file) || get(get(get(u, vm_file), f_inode), i_writecount.counter) <= 0;
	return 0;
}

/*
 * certain tells that the name read now is the one that the kernel read, and that it still leads where it led then: no
 * other thread shares memory, folder or descriptors, and nobody moved what the way leads through.
 */
noinline_fn int certain(__u64 name, __u32 n)
{
	GLOBAL_FN(0);
	struct mm_struct *mm = get(t, mm);
	if (!mm || get(mm, mm_users.counter) != 1 || get(get(t, fs), users) != 1 || (s->dfd != AT_FDCWD && get(get(t, files), count.counter) != 1))
		return 0;
	if (s->depth) {
		__u64 other = moved_by == get(t, pid) ? moved_before : moved_at;
		if (other && bpf_ktime_get_boot_ns() - other < QUIET)
			return 0;
	}
	if (!name)
		return 1;
	struct memory m = {name, name + n + 1, 0};
	bpf_find_vma(bpf_get_current_task_btf(), name, look_at_memory, &m, 0);
	return m.fixed;
}

static inline_always bool follows(struct scratch *s, __u8 how)
{
	__u64 flags = how >> 4 ? s->arg[((how >> 4) - 1) & 7] : 0;
	switch (how & 15) {
	case F_YES:
		return true;
	case F_AT:
		return !(flags & AT_SYMLINK_NOFOLLOW);
	case F_LINK:
		return flags & AT_SYMLINK_FOLLOW;
	case F_OPEN:
		return !(flags & O_NOFOLLOW) && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL);
	}
	return false;
}

/* moves_ways tells whether the rename that has just been resolved moved something that names lead through. */
static inline_always bool moves_ways(struct scratch *s)
{
	s->budget = FEW;
	if (s->ended != STEP_LEAF || find_child(s->len & 0xff) != 1)
		return true;
	struct inode *in = get(as(struct dentry, s->found), d_inode);
	__u16 type = in ? get(in, i_mode) & S_IFMT : 0;
	return type == S_IFDIR || type == S_IFLNK;
}

#endif
