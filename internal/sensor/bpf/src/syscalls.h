/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The end of system calls. */
#ifndef BODYCAM_SYSCALLS_H
#define BODYCAM_SYSCALLS_H

#include "cache.h"
#include "calls.h"
#include "net.h"
#include "resolve.h"

#define TS_COMPAT 2
#define ABI_AMD64 1
#define ABI_I386 2
#define ABI_X32 3
#define PROT_WRITE 2
#define PROT_EXEC 4
#define MAP_SHARED_TYPES 3
#define MAP_TYPE 15
#define MAP_ANONYMOUS 32
#define O_PATH 0x200000
#define FICLONE 0x40049409
#define FICLONERANGE 0x4020940d
#define FS_IOC_SETFLAGS 0x40086602
#define FS_IOC32_SETFLAGS 0x40046602
#define FS_IOC_FSSETXATTR 0x401c5820
#define TIOCSTI 0x5412
#define TIOCLINUX 0x541c
#define AF_NETLINK_FAMILY 16
#define AF_PACKET_FAMILY 17
#define SOCK_TYPE 15
#define SOCK_RAW_TYPE 3
#define SOCK_PACKET_TYPE 10
#define ENOSYS 38
#define RENAME_EXCHANGE 2
#define PIDFS_MAGIC 0x50494446
#define PIDFD_NAME 0x5d64666469705bULL /* "[pidfd]" */

/* arg returns argument n, from 1; 0 for no argument. */
static inline_always __u64 arg(struct scratch *s, __u8 n)
{
	return s->arg[(n - 1) & 7];
}

/* begin_call starts a record of the system call that ends. */
noinline_fn int begin_call(__u8 kind, __u8 source)
{
	GLOBAL_FN(0);
	if (interrupted(s->ret))
		source = SRC_PART;
	struct body *b = begin(s, kind, source, c->type);
	struct rec *r = out_rec(s);
	r->nr = s->nr;
	r->abi = s->abi;
	b->ret = s->ret;
	for (int i = 0; i < 5; i++)
		b->arg[i] = s->arg[i];
	return 0;
}

static inline_always struct body *call_body(struct scratch *s, __u8 kind, __u8 source)
{
	begin_call(kind, source);
	return out_body(s);
}

/*
 * put_name copies a name as given to out[pos]; where it leads follows or, where that can't be seen, the path of the folder that it
 * starts from.
 */
noinline_fn int put_name(int dfd, __u64 name, __u32 pos, int second)
{
	GLOBAL_FN(0);
	struct body *b = out_body(s);
	if (pos > OUT_MAX / 2)
		return pos;
	__u32 n = user_str(s, name, pos);
	__u32 end = pos + n;
	int m = -1;
	__u8 how = second ? c->follow2 : c->follow;
	char first;
	s->walk = 0;
	if (!n && name && how != F_NAME && bpf_probe_read_user(&first, 1, (void *)name))
		how = F_TEXT; /* not an empty name, but one that is in memory no more */
	if (how == F_NAME) {
		s->walk = WALK_NAME;
		m = 0;
	} else if (how != F_TEXT && (n || s->ret >= 0)) {
		s->dfd = dfd;
		s->follow = follows(s, how);
		m = resolve(pos, n);
		if (m >= 0) {
			s->walk |= WALK_OBJECT;
			if (!certain(name, n))
				s->walk |= WALK_UNSURE;
			struct inode *in = s->ended == STEP_ON ? get(as(struct dentry, s->dentry), d_inode) : 0;
			if (in && !second) {
				b->ino = get(in, i_ino);
				b->dev = get(get(in, i_sb), s_dev);
			}
		}
	}
	if (m < 0) {
		s->walk = 0;
		bool relative = !n || s->out[pos] != '/';
		if (relative) {
			m = walk_base(dfd, end) & 0x1fff;
		} else { /* starts from the process's root: which one matters only after a chroot */
			struct fs_struct *fs = get(t, fs);
			m = walk(s, &fs->root, end);
			s->walk = 0;
			if (m <= 1)
				m = 0;
		}
	}
	b->walk |= second ? s->walk << 16 : s->walk;
	if (second) {
		b->len[2] = n;
		b->len[3] = m;
	} else {
		b->len[0] = n;
		b->len[1] = m;
	}
	return (end + m) & 0x7fff;
}

static inline_always int dfd_arg(struct scratch *s, __u8 n)
{
	return n ? (int)arg(s, n) : AT_FDCWD;
}

struct tried {
	struct scratch *s;
	__u64 at;
	__u32 start, pos, word;
};

static inline_always long try_arg(__u32 i, void *ctx)
{
	struct tried *a = ctx;
	struct scratch *s = a->s;
	__u64 p = 0;
	__u32 pos = a->pos, word = a->word;
	if (bpf_probe_read_user(&p, word == 8 ? 8 : 4, (void *)a->at))
		return 1;
	a->at += word;
	if (!p) {
		out_body(s)->arg[4] = 0;
		return 1;
	}
	if (pos > OUT_MAX - STR_MAX || pos - a->start >= STR_MAX)
		return 1;
	long n = bpf_probe_read_user_str(&s->out[pos], STR_MAX, (void *)p);
	if (n <= 0)
		return 1;
	a->pos = pos + (n & 0x1fff);
	return 0;
}

/*
 * put_tried_argv copies the arguments of an exec that failed, as far as they fit into one string. What the program
 * has in memory now may differ from what the kernel saw.
 */
noinline_fn int put_tried_argv(__u64 at, __u32 pos)
{
	GLOBAL_FN(0);
	struct body *b = out_body(s);
	struct tried a = {s, at, pos, pos, s->abi == ABI_AMD64 ? 8 : 4};
	b->arg[4] = 1; /* cut, unless the end is found */
	repeat(256, try_arg, &a);
	b->len[2] = a.pos - pos;
	return a.pos & 0x7fff;
}

static inline_always __u8 source_of(struct call *c)
{
	return c->act == A_EXEC ? SRC_EXEC : c->act == A_OPEN || c->act == A_OPENHOW ? SRC_OPEN : SRC_CALL;
}

/* on_path reports a call that names paths. */
noinline_fn int on_path(void)
{
	GLOBAL_FN(0);
	call_body(s, K_CALL, source_of(c));
	__u32 pos = HEAD;
	if (c->path)
		pos = put_name(dfd_arg(s, c->dfd), arg(s, c->path), pos, 0);
	if (c->path2)
		pos = put_name(dfd_arg(s, c->dfd2), arg(s, c->path2), pos, 1);
	if (c->act == A_EXEC)
		pos = put_tried_argv(s->arg[c->dfd ? 2 : 1], pos) & 0x7fff;
	if (!s->ret) {
		__sync_fetch_and_add(&tree, 1);
		if (c->act == A_MOVE || (c->act == A_RENAME && ((c->flags && (arg(s, c->flags) & RENAME_EXCHANGE)) || moves_ways(s))))
			names_moved(t);
	}
	put_unit(pos);
	return 0;
}

/* on_dir reports chdir and chroot that worked: the name as given, and where that led. */
noinline_fn int on_dir(void)
{
	GLOBAL_FN(0);
	struct body *b = call_body(s, K_CALL, SRC_CALL);
	struct fs_struct *fs = get(t, fs);
	__u32 pos = HEAD, n = 0;
	if (c->path)
		n = user_str(s, arg(s, c->path), pos);
	b->len[0] = n;
	pos += n;
	b->len[1] = walk(s, c->act == A_CHROOT ? &fs->root : &fs->pwd, pos);
	b->walk = s->walk | WALK_OBJECT;
	put_unit(pos + b->len[1]);
	return 0;
}

noinline_fn int on_fd(void)
{
	GLOBAL_FN(0);
	struct body *b = call_body(s, K_CALL, SRC_CALL);
	struct file *f = fd_file(t, arg(s, c->fd));
	if (f) {
		body_of_file(b, f);
		b->len[1] = walk(s, &f->f_path, HEAD);
		b->walk = s->walk | WALK_OBJECT;
	} else {
		b->walk = WALK_NOFD;
	}
	__u32 pos = HEAD + b->len[1];
	if (c->path2) {
		b->len[2] = user_str(s, arg(s, c->path2), pos);
		b->walk |= WALK_NAME << 16;
		pos += b->len[2];
	}
	put_unit(pos);
	return 0;
}

/* behind_pidfd returns what a pidfd stands for, or NULL. Since 6.9 such a descriptor has a file system of its own. */
static inline_always struct pid *behind_pidfd(struct task_struct *t, int fd)
{
	struct file *f = fd_file(t, fd);
	if (!f)
		return 0;
	struct inode *in = get(f, f_inode);
	if (get(get(in, i_sb), s_magic) == PIDFS_MAGIC)
		return get(in, i_private) ? as(struct pid, get(in, i_private)) : 0;
	struct dentry *d = as(struct dentry, get(f, f_path.dentry));
	return word(get(d, d_name.name)) == PIDFD_NAME && get(f, private_data) ? as(struct pid, get(f, private_data)) : 0;
}

/* numbered returns what a number stands for in the current task's pid namespace, or NULL: it is looked up in the namespace's tree. */
static inline_always struct pid *numbered(struct task_struct *t, __u32 nr)
{
	struct pid *own = as(struct pid, get(t, thread_pid));
	__u64 level = get(own, level) & 31;
	opaque(level); /* in 64 bits: 6.8 sees no bound of a product of 32 */
	__u64 upid = (__u64)own + field_offset(struct pid, numbers) + level * type_size(struct upid);
	__u64 at = (__u64)get(get(as(struct upid, upid), ns), idr.idr_rt.xa_head);
	for (int i = 0; i < 6 && (at & 3) == 2; i++) { /* a node of the tree */
		struct xa_node *n = as(struct xa_node, at - 2);
		__u64 index = nr >> (get(n, shift) & 31);
		if (!i && index > 63)
			return 0;
		at = word((__u64)n + field_offset(struct xa_node, slots) + (index & 63) * 8);
	}
	return at & 3 ? 0 : as(struct pid, at);
}

/* put_target notes the process that a call acts on: the one that a thread belongs to. */
static inline_always void put_target(struct body *b, struct pid *p)
{
	__u64 first = p ? (__u64)get(p, tasks[0].first) : 0;
	if (!first)
		return;
	struct task_struct *u = as(struct task_struct, first - field_offset(struct task_struct, pid_links));
	b->other_tgid = get(u, tgid);
	b->other_start = get(get(u, group_leader), start_boottime);
}

/* on_args reports a call by its arguments; with A_TARGET, the process that one of them names. */
noinline_fn int on_args(void)
{
	GLOBAL_FN(0);
	struct body *b = call_body(s, K_CALL, SRC_CALL);
	__u32 pos = HEAD;
	if (c->path) {
		b->len[0] = user_str(s, arg(s, c->path), pos);
		pos += b->len[0];
	}
	if (c->fd2)
		put_target(b, behind_pidfd(t, arg(s, c->fd2)));
	else if (c->act == A_TARGET || c->act == A_KILL)
		put_target(b, numbered(t, arg(s, c->fd)));
	put_unit(pos);
	return 0;
}

/*
 * swapped tells that another thread may have put another file behind the new descriptor already. A file just opened has
 * one reference; one that came by dup2 has more, and may be open in another way than was asked for.
 */
static inline_always bool swapped(struct file *f, __u64 flags)
{
	if (field_exists(struct file, f_ref) && get(f, f_ref.refcnt.counter) != 0)
		return true;
	__u32 want = (flags + 1) & 3; /* O_RDONLY, O_WRONLY, O_RDWR as FMODE_READ, FMODE_WRITE, both */
	return !(flags & O_PATH) && want && (get(f, f_mode) & 3) != want;
}

/* on_raced_open reports an open whose descriptor leads to another file by now: by the name as given. */
noinline_fn int on_raced_open(void)
{
	GLOBAL_FN(0);
	struct stats *st = stats_of(CALM);
	if (st)
		st->raced++;
	struct body *b = call_body(s, K_RACED, SRC_OPEN);
	s->call.follow = F_TEXT;
	__u32 pos = c->path ? put_name(dfd_arg(s, c->dfd), arg(s, c->path), HEAD, 0) : HEAD;
	b->walk = WALK_NOFD;
	put_unit(pos);
	return 0;
}

/*
 * replaced is asked after a file was read: in a table that others share, the file may have been closed, freed and
 * become another one meanwhile.
 */
static inline_always bool replaced(struct task_struct *t, int fd, struct file *f)
{
	return fd_file(t, fd) != f || (field_exists(struct file, f_ref) && get(f, f_ref.refcnt.counter) != 0);
}

/* open_file reports an open that worked, or folds it into the entry of an earlier one. It returns 1 where the file is gone. */
noinline_fn int open_file(struct cache *cache)
{
	GLOBAL_FN(0);
	int fd = s->ret;
	struct file *f = fd_file(t, fd);
	bool others = shared(t);
	if (!f || (others && c->flags && swapped(f, arg(s, c->flags))))
		return 1;
	struct key k;
	key_of(&k, f);
	__u32 n = c->path ? user_str(s, arg(s, c->path), 0) : 0;
	__u32 asked = c->flags ? arg(s, c->flags) : 0;
	__u64 given = hash_out(n);
	int slot = -1;
	if (cache) {
		slot = entry_find(cache, &k, given, how_opened(s->nr, s->abi, asked));
		struct entry *e = &cache->e[slot & (ENTRIES - 1)];
		if (slot >= 0 && e->tree == tree) {
			if (others && replaced(t, fd, f))
				return 1;
			__u64 now = bpf_ktime_get_boot_ns();
			if (stale(e, now))
				flush_slot(cache, slot);
			seen(SRC_OPEN, 1);
			if (!e->opens++)
				e->first_open = now;
			e->last_open = now;
			touch_entry(cache, slot);
			bind_fd(cache, fd, f, slot);
			return 0;
		}
		if (slot < 0)
			slot = entry_slot(cache, &k);
		slot &= ENTRIES - 1;
		if (holds(cache, slot)) {
			flush_slot(cache, slot);
			if (c->path) /* that used s->out */
				n = user_str(s, arg(s, c->path), 0);
		}
	}
	struct rec *r = start_open(s, K_OPEN, SRC_OPEN, c->type, &k, slot, n);
	if (!r || (others && (replaced(t, fd, f) || misread(t, fd, f, &k, r))))
		return 1;
	r->nr = s->nr;
	r->abi = s->abi;
	((struct opened *)(r + 1))->asked = asked;
	send(r, open_len(r), true);
	if (cache) {
		entry_fill(cache, slot, &k, r, given);
		touch_entry(cache, slot);
		bind_fd(cache, fd, f, slot);
	}
	return 0;
}

static inline_always int on_open(void)
{
	struct cache *c = my_cache();
	if (!c) {
		need_cache();
		c = my_cache();
	}
	return open_file(c) ? on_raced_open() : 0;
}

/* on_mmap reports the first executable, and the first shared writable, mapping of a file; later ones are folded. */
noinline_fn int on_mmap(void)
{
	GLOBAL_FN(0);
	__u64 prot = s->arg[2], flags = s->arg[3];
	if (flags & MAP_ANONYMOUS)
		return 0;
	int fd = s->arg[4], slot = -1;
	struct cache *cache = my_cache();
	struct file *f = cache ? fd_file(t, fd) : 0;
	if (f && known_entry(cache, fd, f)) {
		slot = cache->fd[fd & (FDS - 1)].slot;
	} else {
		slot = used_slot(fd);
		cache = slot < 0 ? 0 : my_cache();
	}
	opaque(slot);
	if (!cache)
		return 0;
	slot &= ENTRIES - 1;
	struct entry *e = &cache->e[slot];
	e->mapped = 1;
	__u8 how = 0;
	if (prot & PROT_EXEC)
		how |= MAP_EXEC;
	if ((prot & PROT_WRITE) && (flags & MAP_TYPE) != 2)
		how |= MAP_SHARED_WRITE;
	if (!how)
		return 0;
	if ((e->told & how) == how) {
		seen(SRC_MMAP, 1);
		e->mmaps++;
		e->last_mmap = bpf_ktime_get_boot_ns();
		return 0;
	}
	e->told |= how;
	head(out_rec(s), K_MMAP, SRC_MMAP, c->type);
	out_rec(s)->nr = s->nr;
	out_rec(s)->abi = s->abi;
	*(struct mapped *)out_body(s) = (struct mapped){cache->oid[slot], e->ino, e->dev, prot, flags, slot};
	put_unit(sizeof(struct rec) + sizeof(struct mapped));
	return 0;
}

static inline_always bool prctl_matters(__u64 option)
{
	switch (option) {
	case 1:          /* PR_SET_PDEATHSIG */
	case 4:          /* PR_SET_DUMPABLE */
	case 15:         /* PR_SET_NAME */
	case 22:         /* PR_SET_SECCOMP */
	case 24:         /* PR_CAPBSET_DROP */
	case 28:         /* PR_SET_SECUREBITS */
	case 35:         /* PR_SET_MM */
	case 36:         /* PR_SET_CHILD_SUBREAPER */
	case 38:         /* PR_SET_NO_NEW_PRIVS */
	case 47:         /* PR_CAP_AMBIENT */
	case 59:         /* PR_SET_SYSCALL_USER_DISPATCH */
	case 0x59616d61: /* PR_SET_PTRACER */
		return true;
	}
	return false;
}

noinline_fn int on_prctl(void)
{
	GLOBAL_FN(0);
	if (!prctl_matters(s->arg[0]))
		return 0;
	struct body *b = call_body(s, K_CALL, SRC_CALL);
	if (s->arg[0] == 15)
		b->len[0] = user_str(s, s->arg[1], HEAD) & 15;
	put_unit(HEAD + b->len[0]);
	return 0;
}

static inline_always void load_args(struct scratch *s, struct pt_regs *regs)
{
	if (s->abi == ABI_I386) {
		s->arg[0] = (__u32)regs->bx;
		s->arg[1] = (__u32)regs->cx;
		s->arg[2] = (__u32)regs->dx;
		s->arg[3] = (__u32)regs->si;
		s->arg[4] = (__u32)regs->di;
		s->arg[5] = (__u32)regs->bp;
	} else {
		s->arg[0] = regs->di;
		s->arg[1] = regs->si;
		s->arg[2] = regs->dx;
		s->arg[3] = regs->r10;
		s->arg[4] = regs->r8;
		s->arg[5] = regs->r9;
	}
}

/* reaches_past tells of sockets that send and receive whole packets, past every hook on addresses. */
static inline_always bool reaches_past(struct scratch *s)
{
	__u32 family = s->arg[0], type = s->arg[1] & SOCK_TYPE;
	return family == AF_PACKET_FAMILY || type == SOCK_PACKET_TYPE || (type == SOCK_RAW_TYPE && family != AF_NETLINK_FAMILY);
}

static inline_always bool ioctl_matters(__u32 cmd, long ret)
{
	switch (cmd) {
	case FICLONE:
	case FICLONERANGE:
	case FS_IOC_SETFLAGS:
	case FS_IOC32_SETFLAGS:
	case FS_IOC_FSSETXATTR:
		return true;
	case TIOCSTI:
	case TIOCLINUX:
		return ret < 0;
	}
	return false;
}

/* load_indirect replaces the arguments by the six words at addr, as i386's multiplexed calls keep them. */
static noinline_fn int load_indirect(struct scratch *s, __u64 addr)
{
	__u32 w[6] = {};
	bpf_probe_read_user(w, sizeof(w), (void *)addr);
	for (int i = 0; i < 6; i++)
		s->arg[i] = w[i];
	return 0;
}

/* on_reflink counts a file's whole size, or the range's, as read from one and written to the other. */
noinline_fn int on_reflink(void)
{
	GLOBAL_FN(0);
	__u64 range[3] = {s->arg[2]}; /* source, offset, length */
	if (s->arg[1] == FICLONERANGE)
		bpf_probe_read_user(range, sizeof(range), (void *)s->arg[2]);
	struct file *f = fd_file(t, range[0]);
	if (!f)
		return 0;
	__u64 n = range[2] ? range[2] : get(get(f, f_inode), i_size);
	moved(range[0], n, 0);
	moved(s->arg[0], 0, n);
	return 0;
}

/* on_ioctl handles the requests that ioctl_matters lets through. */
noinline_fn int on_ioctl(void)
{
	GLOBAL_FN(0);
	__u32 cmd = s->arg[1];
	s->call.fd2 = 0;
	if (cmd == TIOCSTI || cmd == TIOCLINUX)
		return on_args();
	if (cmd == FICLONE || cmd == FICLONERANGE)
		return s->ret ? 0 : on_reflink();
	__u32 flags = 0; /* both structs begin with them */
	bpf_probe_read_user(&flags, sizeof(flags), (void *)s->arg[2]);
	s->arg[2] = flags;
	return on_fd();
}

/* dispatch_net handles the calls on sockets. */
noinline_fn int dispatch_net(void)
{
	GLOBAL_FN(0);
	switch (c->act) {
	case A_CONNECT:
		return on_address(NET_CONNECT, s->arg[0]);
	case A_BIND:
		return on_address(NET_BIND, s->arg[0]);
	case A_LISTEN:
		return on_address(NET_LISTEN, s->arg[0]);
	case A_ACCEPT:
		return s->ret >= 0 ? on_address(NET_ACCEPT, s->ret) : 0;
	case A_SENDTO:
		return on_send(s->arg[0], s->arg[4], s->arg[5]);
	case A_SENDMSG:
	case A_SENDMMSG:
		return on_sendmsg(s->arg[0], s->arg[1]);
	case A_RECVMSG:
		return s->ret >= 0 ? on_recvmsg(s->arg[0], s->arg[1]) : 0;
	case A_URING:
		return s->ret < 0 ? on_args() : flush_pending();
	}
	return 0;
}

/* load_flags replaces an argument that points to a struct by the 64 bits of flags that the struct begins with. */
static inline_always void load_flags(struct scratch *s, __u8 n)
{
	__u64 flags = 0;
	bpf_probe_read_user(&flags, sizeof(flags), (void *)arg(s, n));
	s->arg[(n - 1) & 7] = flags;
}

/* load_how is load_flags for struct open_how, whose third word may bind the name to its folder. */
static inline_always void load_how(struct scratch *s, __u8 n)
{
	__u64 how[3] = {};
	bpf_probe_read_user(how, sizeof(how), (void *)arg(s, n));
	s->arg[(n - 1) & 7] = how[0];
	if (how[2])
		s->call.follow = F_TEXT;
}

static inline_always int dispatch(struct scratch *s, struct call *c)
{
	switch (c->act) {
	case A_OPENHOW:
		load_how(s, c->fd);
	case A_OPEN: /* fall through */
		return s->ret < 0 ? on_path() : on_open();
	case A_CLONE3:
		load_flags(s, c->fd);
		return on_args();
	case A_PATH:
	case A_MOVE:
	case A_RENAME:
	case A_EXEC:
		return on_path();
	case A_FD:
		return on_fd();
	case A_CHDIR:
	case A_CHROOT:
		return s->ret ? on_path() : on_dir();
	case A_CREDS:
		if (s->ret >= 0)
			turn_over(my_cache());
	case A_ARGS: /* fall through */
	case A_TARGET:
	case A_PIDFD:
		return on_args();
	case A_CLONE:
	case A_FAILED:
	case A_KILL:
		return on_args();
	case A_SOCKET:
		return s->ret < 0 || reaches_past(s) ? on_args() : 0;
	case A_PRCTL:
		return on_prctl();
	case A_MMAP:
		return on_mmap();
	case A_IOCTL:
		return on_ioctl();
	}
	return 0;
}

static inline_always void copy_call(struct scratch *s, const volatile struct call *c)
{
	const volatile __u64 *from = (const volatile __u64 *)c;
	__u64 *to = (__u64 *)&s->call;
	to[0] = from[0];
	to[1] = from[1];
}

/* on_other_abi reports a call of another ABI that isn't there: a sandbox refuses the ABI as a whole. */
static noinline_fn int on_other_abi(struct pt_regs *regs, long ret, __u64 nr)
{
	struct scratch *s = scratch();
	if (!s || !mine())
		return 0;
	s->abi = nr & X32_BIT ? ABI_X32 : ABI_I386;
	s->nr = nr;
	s->ret = ret;
	load_args(s, regs);
	__builtin_memset(&s->call, 0, sizeof(s->call));
	s->call.act = A_FAILED;
	s->call.type = type_denied;
	return on_args();
}

static inline_always bool failed(long ret)
{
	return (unsigned long)ret >= (unsigned long)-4095;
}

/* no_matter tells of calls of which nothing is recorded, by what lies in registers. */
static inline_always bool no_matter(__u8 act, struct pt_regs *regs, long ret, bool compat)
{
	switch (act) {
	case A_CLOSE:
		return ret != 0;
	case A_READ:
	case A_WRITE:
	case A_COPY:
		return ret <= 0;
	case A_MMAP:
		return failed(ret) || (compat ? regs->si : regs->r10) & MAP_ANONYMOUS;
	case A_INDIRECT:
		return failed(ret);
	case A_EXEC:
		return !ret;
	case A_FAILED:
	case A_KILL:
	case A_CLONE:
	case A_CLONE3:
		return ret >= 0;
	case A_IOCTL:
		return !ioctl_matters(compat ? regs->cx : regs->si, ret);
	}
	return false;
}

/* on_watched handles the end of a call that is in the tables, or was refused with its ABI. */
static_old int on_watched(struct pt_regs *regs, long ret, __u64 nr)
{
	__u64 index = nr & ~(__u64)X32_BIT;
	if (index >= CALLS)
		return 0;
	struct task_struct *t = current();
	bool compat = get(t, thread_info.status) & TS_COMPAT;
	const volatile struct call *c = compat ? &calls32[index] : &calls64[index];
	__u8 act = c->act;
	if (act == A_NONE && ret == -ENOSYS && (compat || index != nr))
		return on_other_abi(regs, ret, nr);
	if (act == A_NONE || no_matter(act, regs, ret, compat) || !mine())
		return 0;
	if (act == A_READ || act == A_WRITE || act == A_CLOSE)
		return on_descriptor(t, act, compat ? regs->bx : regs->di, ret);
	struct scratch *s = scratch();
	if (!s)
		return 0;
	s->abi = compat ? ABI_I386 : index != nr ? ABI_X32 : ABI_AMD64;
	s->nr = nr;
	s->ret = ret;
	load_args(s, regs);
	copy_call(s, c);
	switch (act) {
	case A_SOCKETCALL: {
		__u64 sub = socketcalls[s->arg[0] & 31];
		if (!sub || sub >= CALLS)
			return 0;
		load_indirect(s, s->arg[1]);
		s->nr = sub;
		copy_call(s, &calls32[sub]);
		act = s->call.act;
		break;
	}
	case A_INDIRECT:
		load_indirect(s, s->arg[0]);
		return on_mmap();
	case A_COPY:
		moved(arg(s, c->fd), ret, 0);
		moved(arg(s, c->fd2), 0, ret);
		return 0;
	}
	return act >= A_CONNECT && act <= A_URING ? dispatch_net() : dispatch(s, &s->call);
}

/* Every system call of the machine comes here. The few lines of this function are all that most of them cost. */
SEC("tp_btf/sys_exit")
int on_sys_exit(__u64 *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)ctx[0];
	long ret = ctx[1];
	__u64 nr = regs->orig_ax, index = nr & ~(__u64)X32_BIT;
	if (index >= CALLS || (!watched[index] && ret != -ENOSYS))
		return 0;
	return on_watched(regs, ret, nr);
}

#endif
