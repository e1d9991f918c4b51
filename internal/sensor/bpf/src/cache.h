/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A small cache per task: which file is behind which descriptor, and what was done with it. Repeats are counted here
 * instead of being sent. What it gathered is sent when an entry is needed for another file, when the task executes a program,
 * becomes another user, or ends, and when the sensor stops; so every count arrives, late at worst, and told of who did it.
 */
#ifndef BODYCAM_CACHE_H
#define BODYCAM_CACHE_H

#include "path.h"

#define ENTRIES 16
#define FDS 32
#define FLUSH_AFTER 1000000000ULL /* a repeat that comes later than this after the first is told apart */

#define S_IFMT 0170000
#define S_IFBLK 0060000
#define S_IFREG 0100000
#define S_IFCHR 0020000
#define S_IFSOCK 0140000

#define FMODE_CREATED 0x100000

enum { MAP_EXEC = 1, MAP_SHARED_WRITE = 2 };

struct key { /* what an open file is known again by, read once: each look at the kernel's memory is a lot of code */
	__u64 dentry, parent, mnt, inode, hash_len;
	__u32 fflags, fmode, gen, pad;
};

struct entry { /* one way in which a file is open: object, name and flags */
	struct key key;
	__u64 tree, given; /* given: hash of the name that the program gave; 0 where it did not open the file */
	__u64 how;         /* the call that opened it, and the flags given, of which the kernel keeps only some */
	__u64 opens, first_open, last_open;
	__u64 closes, first_close, last_close;
	__u64 mmaps, last_mmap;
	__u64 rd, wr, ino;
	__u32 dev;
	__u16 imode;
	__u8 mapped, told; /* told: mappings already sent, MAP_* */
	__u32 recent;      /* used later than its neighbour */
};

struct fd_ref {
	__u64 file, oid;
	__s32 fd;
	__u32 slot;
};

struct cache {
	__u64 task;  /* whose it is; 0: nobody's */
	__u64 start; /* of its process. This and what follows: who the task is, or was when it did what the cache holds */
	__u32 tgid, tid, uid, gid;
	__s32 sid, pad;
	__u64 oid[ENTRIES]; /* the records that named the files; 0: the entry is empty */
	struct entry e[ENTRIES];
	struct fd_ref fd[FDS];
};

/*
 * Memory of a cache's size is dear to get and to give back, and most tasks live shortly. So there is a pool of caches, in which
 * a task's address leads to its own: it stays when a thread takes over its leader's id, and is soon used again. Where that cache has
 * an owner already, the task gets one of the others. Both outlive their tasks.
 */
#define POOL_BITS 10
#define OTHERS 16384

struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 1 << POOL_BITS);
	__type(key, __u32);
	__type(value, struct cache);
} pool SEC(".maps");

struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, OTHERS);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct cache);
} others SEC(".maps");

static const struct cache no_cache = {};

__u32 overflowed = 0; /* some task's cache is not in the pool */

static inline_always struct cache *pooled(__u64 task)
{
	__u32 i = (task * 0x9e3779b97f4a7c15ULL) >> (64 - POOL_BITS);
	return bpf_map_lookup_elem(&pool, &i);
}

/* my_cache returns the current task's cache, or NULL where it has none. */
static inline_always struct cache *my_cache(void)
{
	__u64 task = bpf_get_current_task();
	struct cache *c = pooled(task);
	if (c && c->task == task)
		return c;
	return overflowed ? bpf_map_lookup_elem(&others, &task) : 0;
}

static inline_always __s32 session(struct task_struct *t)
{
	struct pid *sid = get(get(t, signal), pids[3]);
	return get(sid, numbers[0].nr);
}

/* belongs notes whose doings a cache gathers from now on. */
static inline_always void belongs(struct cache *c, struct task_struct *t)
{
	c->start = get(get(t, group_leader), start_boottime);
	c->tgid = get(t, tgid);
	c->tid = get(t, pid);
	c->uid = get(get(t, cred), uid.val);
	c->gid = get(get(t, cred), gid.val);
	c->sid = session(t);
}

/* need_cache gives the current task, which has none, a cache. Where there is none left, what it would gather is lost, and counted. */
noinline_fn int need_cache(void)
{
	struct task_struct *t = current();
	__u64 task = bpf_get_current_task();
	struct cache *c = pooled(task);
	if (c && !__sync_val_compare_and_swap(&c->task, 0, task)) {
		belongs(c, t);
		return 0;
	}
	overflowed = 1;
	bpf_map_update_elem(&others, &task, &no_cache, NO_EXIST);
	c = bpf_map_lookup_elem(&others, &task);
	if (!c) {
		lost(SRC_PART, 1);
		return 0;
	}
	c->task = task;
	belongs(c, t);
	return 0;
}

static inline_always void empty(struct cache *c)
{
	for (int i = 0; i < ENTRIES; i++)
		c->oid[i] = 0; /* that makes what c->fd says void too */
}

/* give_back leaves a cache, flushed before, to other tasks. */
static inline_always void give_back(struct cache *c)
{
	__u64 task = c->task;
	empty(c);
	if (c == pooled(task))
		c->task = 0;
	else
		bpf_map_delete_elem(&others, &task);
}

static inline_always void key_of(struct key *k, struct file *f)
{
	struct dentry *d = as(struct dentry, get(f, f_path.dentry));
	struct inode *in = get(f, f_inode);
	*k = (struct key){
		.dentry = (__u64)d, .parent = (__u64)get(d, d_parent), .mnt = (__u64)get(f, f_path.mnt), .inode = (__u64)in,
		.hash_len = get(d, d_name.hash_len), .fflags = get(f, f_flags), .fmode = get(f, f_mode), .gen = get(in, i_generation)};
}

static inline_always bool same_file(struct key *a, struct key *b)
{
	return a->dentry == b->dentry && a->inode == b->inode && a->parent == b->parent && a->hash_len == b->hash_len && a->mnt == b->mnt &&
	       a->fflags == b->fflags && a->fmode == b->fmode && a->gen == b->gen;
}

static inline_always __u32 entry_hash(struct key *k)
{
	__u32 h = k->hash_len; /* of the name, salted with the folder */
	return (h ^ (h >> 7) ^ (h >> 17)) & (ENTRIES - 1);
}

/* holds tells whether an entry has something to send. */
static inline_always bool holds(struct cache *c, __u32 slot)
{
	struct entry *e = &c->e[slot & (ENTRIES - 1)];
	return c->oid[slot & (ENTRIES - 1)] && (e->rd || e->wr || e->mapped || e->opens || e->mmaps);
}

/* gather moves what an entry holds to o. */
static inline_always void gather(struct flush *o, struct cache *c, __u32 slot)
{
	struct entry *e = &c->e[slot];
	bool used = e->rd || e->wr || e->mapped;
	if (used && !e->closes) {
		seen(SRC_CLOSE, 1);
		e->closes = 1;
		e->first_close = e->last_close = bpf_ktime_get_boot_ns();
	}
	o->oid = c->oid[slot];
	o->opens = e->opens;
	o->first_open = e->first_open;
	o->last_open = e->last_open;
	o->closes = used ? e->closes : 0;
	o->first_close = e->first_close;
	o->last_close = e->last_close;
	o->mmaps = e->mmaps;
	o->last_mmap = e->last_mmap;
	o->rd = e->rd;
	o->wr = e->wr;
	o->ino = e->ino;
	o->dev = e->dev;
	o->fmode = e->key.fmode;
	o->fflags = e->key.fflags;
	o->imode = e->imode;
	o->slot = slot;
	o->mapped = e->mapped;
	o->prot = e->told;
	e->opens = e->closes = e->mmaps = e->rd = e->wr = 0;
	e->mapped = 0;
}

/*
 * flush_slots sends what the entries of some slots, a bit each, hold, as one record, and empties those that hold nothing. What
 * can't be sent is counted as lost. It uses s->out.
 */
noinline_fn int flush_slots(struct cache *cache, __u32 slots)
{
	GLOBAL_FN(0);
	if (!cache)
		return 0;
	struct flush *all = (struct flush *)(s->out + sizeof(struct rec));
	__u64 opens = 0, closes = 0, mmaps = 0;
	s->gathered = 0;
	struct bpf_iter_num it;
	int *i;
	bpf_iter_num_new(&it, 0, ENTRIES);
	while ((i = bpf_iter_num_next(&it))) {
		__u32 slot = *i & (ENTRIES - 1);
		if (!(slots >> slot & 1))
			continue;
		if (!holds(cache, slot)) {
			cache->oid[slot] = 0;
			continue;
		}
		struct flush *o = &all[s->gathered++ & (ENTRIES - 1)];
		gather(o, cache, slot);
		opens += o->opens;
		closes += o->closes;
		mmaps += o->mmaps;
	}
	bpf_iter_num_destroy(&it);
	if (!s->gathered)
		return 0;
	if (cache->task == (__u64)t)
		cache->sid = session(t);
	*out_rec(s) = (struct rec){
		.kind = K_FLUSH, .source = SRC_CLOSE, .time = bpf_ktime_get_boot_ns(), .start = cache->start, .tgid = cache->tgid,
		.tid = cache->tid, .uid = cache->uid, .gid = cache->gid, .sid = cache->sid, .nr = -1};
	if (!put(sizeof(struct rec) + s->gathered * sizeof(struct flush))) {
		lost(SRC_OPEN, opens);
		lost(SRC_CLOSE, closes);
		lost(SRC_MMAP, mmaps);
	}
	return 0;
}

static inline_always void flush_slot(struct cache *c, __u32 slot)
{
	flush_slots(c, 1 << (slot & (ENTRIES - 1)));
}

static inline_always void flush_all(struct cache *c)
{
	flush_slots(c, (1 << ENTRIES) - 1);
}

static inline_always __u64 how_opened(__u32 nr, __u32 abi, __u32 asked)
{
	return (__u64)abi << 48 | (__u64)(nr & 0xffff) << 32 | asked;
}

/*
 * turn_over is called when the current task became another: by executing a program, or another user. What it did before is sent,
 * and told of who it was; nothing that it does from now on is folded into that.
 */
noinline_fn int turn_over(struct cache *c)
{
	if (!c)
		return 0;
	flush_all(c);
	empty(c);
	belongs(c, current());
	return 0;
}

/* stale tells whether a repeat at this time is too late to be folded into what an entry gathered. */
static inline_always bool stale(struct entry *e, __u64 now)
{
	return (e->opens && now - e->first_open > FLUSH_AFTER) || (e->closes && now - e->first_close > FLUSH_AFTER);
}

static inline_always bool entry_is(struct cache *c, __u32 i, struct key *k, __u64 given, __u64 how)
{
	struct entry *e = &c->e[i];
	return c->oid[i] && same_file(&e->key, k) && (!given || (e->given == given && e->how == how));
}

/* entry_find returns the slot of the entry for an open file, or -1; given 0 takes it however it was opened. */
static inline_always int entry_find(struct cache *c, struct key *k, __u64 given, __u64 how)
{
	__u32 i = entry_hash(k);
	if (entry_is(c, i, k, given, how))
		return i;
	i ^= 1;
	return entry_is(c, i, k, given, how) ? (int)i : -1;
}

/* entry_slot picks where an entry goes: of the two slots that a file may use, the one not used last. It has to be flushed. */
static inline_always int entry_slot(struct cache *c, struct key *k)
{
	__u32 i = entry_hash(k);
	if (c->oid[i] && (!c->oid[i ^ 1] || (c->e[i].recent && !c->e[i ^ 1].recent)))
		i ^= 1;
	return i & (ENTRIES - 1);
}

/* oid_of makes the name that user space joins a slot's later records by: sequence number and stream. It is never 0. */
static inline_always __u64 oid_of(struct rec *r)
{
	return ((r->seq + 1) << 12) | (r->stream & 0xfff);
}

/* entry_fill gives a slot to the file that the record r tells of. */
static inline_always void entry_fill(struct cache *c, __u32 slot, struct key *k, struct rec *r, __u64 given)
{
	struct opened *o = (struct opened *)(r + 1);
	struct entry *e = &c->e[slot & (ENTRIES - 1)];
	memzero(e, sizeof(*e));
	c->oid[slot & (ENTRIES - 1)] = oid_of(r);
	e->key = *k;
	e->given = given;
	e->how = how_opened(r->nr, r->abi, o->asked);
	e->tree = tree;
	e->ino = o->ino;
	e->dev = o->dev;
	e->imode = o->imode;
}

static inline_always void touch_entry(struct cache *c, __u32 i)
{
	c->e[i & (ENTRIES - 1)].recent = 1;
	c->e[(i ^ 1) & (ENTRIES - 1)].recent = 0;
}

static inline_always void bind_fd(struct cache *c, int fd, struct file *f, __u32 slot)
{
	struct fd_ref *r = &c->fd[fd & (FDS - 1)];
	r->file = (__u64)f;
	r->fd = fd;
	r->slot = slot;
	r->oid = c->oid[slot & (ENTRIES - 1)];
}

static inline_always void body_of_file(struct body *b, struct file *f)
{
	struct inode *in = get(f, f_inode);
	b->ino = get(in, i_ino);
	b->dev = get(get(in, i_sb), s_dev);
	b->imode = get(in, i_mode);
	b->fmode = get(f, f_mode);
	b->fflags = get(f, f_flags);
}

/*
 * start_open begins a K_OPEN or K_FILE record before the path of the file, which it walks to the end of s->back. n bytes of a
 * name as given lie behind that, in s->out. So the record is whole without a copy.
 */
static inline_always struct rec *start_open(struct scratch *s, __u8 kind, __u8 source, __u8 type, struct key *k, __u32 slot, __u32 n)
{
	s->dentry = k->dentry;
	s->mnt = mount_of((struct vfsmount *)k->mnt);
	s->walk = 0;
	__u32 len = walk_back(), end = __builtin_offsetof(struct scratch, out), at = end - OPEN_HEAD - len;
	opaque(at);
	if (at > end - OPEN_HEAD)
		return 0;
	struct rec *r = (struct rec *)((char *)s + at);
	head(r, kind, source, type);
	struct opened *o = (struct opened *)(r + 1);
	struct inode *in = as(struct inode, k->inode);
	o->ino = get(in, i_ino);
	o->dev = get(get(in, i_sb), s_dev);
	o->fmode = k->fmode;
	o->fflags = k->fflags;
	o->asked = 0;
	o->imode = get(in, i_mode);
	o->slot = slot;
	o->walk = s->walk | WALK_OBJECT;
	o->path = len;
	o->given = n;
	return r;
}

static inline_always __u32 open_len(struct rec *r)
{
	struct opened *o = (struct opened *)(r + 1);
	__u32 path = o->path, given = o->given;
	opaque(path);
	opaque(given);
	if (path > STR_MAX)
		path = STR_MAX;
	if (given > STR_MAX)
		given = STR_MAX;
	return OPEN_HEAD + path + given;
}

/* shared tells whether others have the current task's table of descriptors too. Where not, nobody else can make it so meanwhile. */
static inline_always bool shared(struct task_struct *t)
{
	struct files_struct *files = get(t, files);
	return files && get(files, count.counter) > 1;
}

/*
 * misread is asked after a file was read into the record r: in a table that others share, it may have been closed meanwhile and opened
 * as another one, even in the same place.
 */
static inline_always bool misread(struct task_struct *t, int fd, struct file *f, struct key *k, struct rec *r)
{
	struct opened *o = (struct opened *)(r + 1);
	struct inode *in = get(f, f_inode);
	return fd_file(t, fd) != f || k->dentry != (__u64)get(f, f_path.dentry) || k->mnt != (__u64)get(f, f_path.mnt) || !in ||
	       k->inode != (__u64)in || o->ino != get(in, i_ino) || k->fmode != get(f, f_mode);
}

/* known_entry returns the entry that holds the file behind fd, if the descriptor is known to be of it. */
static inline_always struct entry *known_entry(struct cache *c, int fd, struct file *f)
{
	struct fd_ref *r = &c->fd[fd & (FDS - 1)];
	__u32 i = r->slot & (ENTRIES - 1);
	struct entry *e = &c->e[i];
	return r->fd == fd && r->file == (__u64)f && c->oid[i] && c->oid[i] == r->oid && e->key.inode == (__u64)get(f, f_inode) ? e : 0;
}

/* gone counts a descriptor that another thread closed while a call used it, so that what went through it is told of no file. */
noinline_fn int gone(void)
{
	struct stats *st = stats_of(CALM);
	if (st)
		st->gone++;
	return -1;
}

/* gone_slot is file_slot for a descriptor that was closed meanwhile: what it led to is known where this task used it before. */
static inline_always int gone_slot(int fd)
{
	struct cache *c = my_cache();
	if (!c)
		return gone();
	struct fd_ref *r = &c->fd[fd & (FDS - 1)];
	__u32 i = r->slot & (ENTRIES - 1);
	return r->file && r->fd == fd && c->oid[i] == r->oid ? (int)i : gone();
}

/*
 * new_entry gives a file that this task did not open (inherited, received) an entry, and a K_FILE record that names
 * it; -1 where it is gone.
 */
static inline_always int new_entry(struct scratch *s, struct task_struct *t, struct cache *cache, int fd, struct file *f, struct key *k)
{
	int slot = entry_slot(cache, k);
	flush_slot(cache, slot);
	struct rec *r = start_open(s, K_FILE, SRC_PART, 0, k, slot, 0);
	if (!r || (shared(t) && misread(t, fd, f, k, r)))
		return gone();
	if (!send(r, open_len(r), false))
		lost(SRC_PART, 1);
	entry_fill(cache, slot, k, r, 0);
	return slot;
}

/* file_slot returns the slot of the entry for the file behind fd, or -1. */
noinline_fn int file_slot(struct cache *cache, int fd)
{
	GLOBAL_FN(-1);
	struct file *f = fd_file(t, fd);
	if (!f || !cache)
		return -1;
	if (known_entry(cache, fd, f))
		return cache->fd[fd & (FDS - 1)].slot & (ENTRIES - 1);
	struct key k;
	key_of(&k, f);
	int found = entry_find(cache, &k, 0, 0);
	if (found < 0)
		found = new_entry(s, t, cache, fd, f, &k);
	if (found < 0)
		return -1;
	__u32 i = found & (ENTRIES - 1);
	touch_entry(cache, i);
	bind_fd(cache, fd, f, i);
	return i;
}

/* used_slot is file_slot for a call that used the file; -1 also for what is no file. */
noinline_fn int used_slot(int fd)
{
	struct file *f = fd_file(current(), fd);
	if (!f)
		return gone_slot(fd);
	__u16 type = get(get(f, f_inode), i_mode) & S_IFMT;
	if (type != S_IFREG && type != S_IFBLK && type != S_IFCHR)
		return -1;
	struct cache *c = my_cache();
	if (!c) {
		need_cache();
		c = my_cache();
	}
	return file_slot(c, fd);
}

/* moved adds what a call read from, or wrote to, the file behind fd. */
static inline_always int moved(int fd, __u64 rd, __u64 wr)
{
	int slot = used_slot(fd);
	opaque(slot);
	struct cache *c = slot < 0 ? 0 : my_cache();
	if (!c)
		return 0;
	struct entry *e = &c->e[slot & (ENTRIES - 1)];
	e->rd += rd;
	e->wr += wr;
	return 0;
}

/* closed counts the end of a descriptor through which something went. */
static inline_always void closed(struct cache *c, int fd)
{
	struct fd_ref *r = &c->fd[fd & (FDS - 1)];
	if (!r->file || r->fd != fd)
		return;
	r->file = 0;
	__u32 i = r->slot & (ENTRIES - 1);
	struct entry *e = &c->e[i];
	if (c->oid[i] != r->oid || !(e->rd || e->wr || e->mapped))
		return;
	seen(SRC_CLOSE, 1);
	e->last_close = bpf_ktime_get_boot_ns();
	if (!e->closes++)
		e->first_close = e->last_close;
}

/* on_descriptor handles the calls that only use a descriptor: reading and writing n bytes, and closing. */
static inline_always int on_descriptor(struct task_struct *t, __u8 act, int fd, __u64 n)
{
	__u64 rd = act == A_READ ? n : 0, wr = act == A_WRITE ? n : 0;
	struct cache *c = my_cache();
	if (c && act == A_CLOSE) {
		closed(c, fd);
		return 0;
	}
	if (act == A_CLOSE)
		return 0;
	struct file *f = c ? fd_file(t, fd) : 0;
	struct entry *e = f ? known_entry(c, fd, f) : 0;
	if (!e)
		return moved(fd, rd, wr);
	e->rd += rd;
	e->wr += wr;
	return 0;
}

#endif
