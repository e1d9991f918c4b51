/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The BPF helpers that the sensor calls, by their numbers in the kernel's user ABI, and the usual macros. */
#ifndef BODYCAM_HELPERS_H
#define BODYCAM_HELPERS_H

#include "kernel.h"

#define SEC(name) __attribute__((section(name), used))
#define inline_always inline __attribute__((always_inline))
#define noinline_fn __attribute__((noinline))
#ifdef OLD /* calls nest eight deep at most, and a callback is one more */
#define inline_old static inline_always
#define static_old inline_old
#else
#define inline_old noinline_fn
#define static_old static noinline_fn
#endif
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define kfunc extern __attribute__((section(".ksyms"), weak))

enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_PERCPU_ARRAY = 6, MAP_CGROUP_ARRAY = 8, MAP_LRU_HASH = 9, MAP_SK_STORAGE = 24, MAP_RINGBUF = 27 };
enum { F_NO_PREALLOC = 1, F_CLONE = 1 << 9 };
enum { STORAGE_CREATE = 1, NO_EXIST = 1 };
enum { RB_NO_WAKEUP = 1, RB_FORCE_WAKEUP = 2, RB_AVAIL_DATA = 0 };

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static __u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static __u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*bpf_skb_load_bytes)(const void *skb, __u32 off, void *to, __u32 len) = (void *)26;
static __u64 (*bpf_get_current_task)(void) = (void *)35;
static long (*bpf_current_task_under_cgroup)(void *map, __u32 index) = (void *)37;
static __u64 (*bpf_get_socket_cookie)(void *ctx) = (void *)46;
static struct bpf_sock *(*bpf_sk_fullsock)(struct bpf_sock *sk) = (void *)95;
static void *(*bpf_sk_storage_get)(void *map, void *sk, void *value, __u64 flags) = (void *)107;
static long (*bpf_send_signal)(__u32 sig) = (void *)109;
static long (*bpf_probe_read_user)(void *to, __u32 size, const void *from) = (void *)112;
static long (*bpf_probe_read_kernel)(void *to, __u32 size, const void *from) = (void *)113;
static long (*bpf_probe_read_user_str)(void *to, __u32 size, const void *from) = (void *)114;
static long (*bpf_probe_read_kernel_str)(void *to, __u32 size, const void *from) = (void *)115;
static __u64 (*bpf_ktime_get_boot_ns)(void) = (void *)125;
static long (*bpf_ringbuf_output)(void *ring, void *data, __u64 size, __u64 flags) = (void *)130;
static void *(*bpf_ringbuf_reserve)(void *ring, __u64 size, __u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *data, __u64 flags) = (void *)132;
static __u64 (*bpf_ringbuf_query)(void *ring, __u64 what) = (void *)134;
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;

static long (*bpf_find_vma)(struct task_struct *t, __u64 addr, void *callback, void *ctx, __u64 flags) = (void *)180;

/* opaque hides a value's known range from the compiler, so that the check that follows stays in the program. */
#define opaque(x) asm volatile("" : "+r"(x))

/*
 * The object is compiled twice. The first one reads the kernel's memory through typed pointers and counts with the kernel's iterators, which
 * takes functions that came with Linux 6.4. OLD does the same with helpers, for 5.17 and later: a call for each member that is read.
 */
#ifndef OLD

kfunc int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end);
kfunc int *bpf_iter_num_next(struct bpf_iter_num *it);
kfunc void bpf_iter_num_destroy(struct bpf_iter_num *it);
kfunc void *bpf_rdonly_cast(const void *obj, __u32 btf_id);
kfunc void *bpf_cast_to_kern_ctx(void *ctx);

/* as makes an untyped kernel address readable as a T; a read through a bad address gives 0. */
#define as(T, p) ((T *)bpf_rdonly_cast((const void *)(p), __builtin_btf_type_id(*(T *)0, 1)))

/* get reads a member of a kernel object. Whatever lies in the kernel's own memory is read by it. */
#define get(p, member) ((p)->member)

#define kernel_ctx(p) bpf_cast_to_kern_ctx(p)

/* repeat calls body, which is inlined, with 0 to n - 1 and ctx until it returns something else than 0. */
#define repeat(n, body, ctx)                                                                                           \
	do {                                                                                                           \
		struct bpf_iter_num it_;                                                                               \
		int *i_;                                                                                               \
		bpf_iter_num_new(&it_, 0, n);                                                                          \
		while ((i_ = bpf_iter_num_next(&it_)))                                                                 \
			if (body(*i_, ctx))                                                                            \
				break;                                                                                 \
		bpf_iter_num_destroy(&it_);                                                                            \
	} while (0)

#else

static long (*bpf_loop)(__u32 n, void *body, void *ctx, __u64 flags) = (void *)181;

#define as(T, p) ((T *)(p))

#define get(p, member)                                                                                                 \
	({                                                                                                             \
		typeof((p)->member) got_ = 0;                                                                          \
		bpf_probe_read_kernel(&got_, sizeof(got_), &(p)->member);                                              \
		got_;                                                                                                  \
	})

/* kernel_ctx is the address of the kernel's own object behind a context. That is its value, but the verifier lets nobody use it so. */
static inline_always void *kernel_ctx(void *p)
{
	void *at = 0;
	bpf_probe_read_kernel(&at, sizeof(at), &p);
	return at;
}

#define repeat(n, body, ctx) bpf_loop(n, body, ctx, 0)

/* Short loops are looked at once for each time round. */
static inline_always int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end)
{
	it->next = start;
	it->end = end;
	return 0;
}

static inline_always int *bpf_iter_num_next(struct bpf_iter_num *it)
{
	int next = it->next;
	opaque(next); /* or the compiler compares something that bounds nothing */
	if (next >= it->end)
		return 0;
	it->now = next;
	it->next = next + 1;
	return &it->now;
}

static inline_always void bpf_iter_num_destroy(struct bpf_iter_num *it)
{
}

#endif

#define field_offset(T, member) __builtin_preserve_field_info(((T *)0)->member, 0)
/* offset_where is field_offset for a member that not every kernel has: it stays in the branch in which it is asked for. */
#define offset_where(T, member)                                                                                        \
	({                                                                                                             \
		__u64 off_ = field_offset(T, member);                                                                  \
		opaque(off_);                                                                                          \
		off_;                                                                                                  \
	})

/* member reads a pointer that not every kernel has, also of objects whose type a module brings: no pointer can be cast to such a type. */
#define member(T, object, name)                                                                                        \
	({                                                                                                             \
		__u64 at_ = 0;                                                                                         \
		bpf_probe_read_kernel(&at_, sizeof(at_), (void *)(object) + offset_where(T, name));                    \
		at_;                                                                                                   \
	})

#define field_exists(T, member) __builtin_preserve_field_info(((T *)0)->member, 2)
#define type_size(T) __builtin_preserve_type_info(*(typeof(T) *)0, 1)
#define enum_value_exists(T, name) __builtin_preserve_enum_value(*(typeof(T) *)name, 0)
#define enum_value(T, name) __builtin_preserve_enum_value(*(typeof(T) *)name, 1)

/*
 * The current task, and what a hook hands over, are read through such a pointer too: while loading, the kernel
 * searches all its types by name for each pointer that is followed from a trusted one, which takes milliseconds.
 */
#define untrusted(T, p) as(T, p)

/* word reads eight bytes of kernel memory, without a call; a bad address gives 0. */
#define word(p) get(as(struct qstr, p), hash_len)

/* store_word stores eight bytes at any address; the compiler would make eight stores of it. */
#define store_word(p, w) asm volatile("*(u64 *)(%0 + 0) = %1" : : "r"(p), "r"(w) : "memory")

#define memzero(p, n) __builtin_memset(p, 0, n)
#define ntohs(x) __builtin_bswap16(x)

#endif
