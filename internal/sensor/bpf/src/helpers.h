/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The BPF helpers that the sensor calls, by their numbers in the kernel's user ABI, and the usual macros. */
#ifndef BODYCAM_HELPERS_H
#define BODYCAM_HELPERS_H

#include "kernel.h"

#define SEC(name) __attribute__((section(name), used))
#define inline_always inline __attribute__((always_inline))
#define noinline_fn __attribute__((noinline))
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

kfunc int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end);
kfunc int *bpf_iter_num_next(struct bpf_iter_num *it);
kfunc void bpf_iter_num_destroy(struct bpf_iter_num *it);
kfunc void *bpf_rdonly_cast(const void *obj, __u32 btf_id);
kfunc void *bpf_cast_to_kern_ctx(void *ctx);
kfunc struct task_struct *bpf_task_from_vpid(__s32 vpid);
kfunc struct task_struct *bpf_task_from_pid(__s32 pid);
kfunc void bpf_task_release(struct task_struct *t);

/* as makes an untyped kernel address readable as a T; a read through a bad address gives 0. */
#define as(T, p) ((T *)bpf_rdonly_cast((const void *)(p), __builtin_btf_type_id(*(T *)0, 1)))
#define field_offset(T, member) __builtin_preserve_field_info(((T *)0)->member, 0)
#define field_exists(T, member) __builtin_preserve_field_info(((T *)0)->member, 2)
#define enum_value_exists(T, name) __builtin_preserve_enum_value(*(typeof(T) *)name, 0)
#define enum_value(T, name) __builtin_preserve_enum_value(*(typeof(T) *)name, 1)
#define ksym_exists(sym) (&(sym) != (void *)0)

/*
 * The current task, and what a hook hands over, are read through such a pointer too: while loading, the kernel
 * searches all its types by name for each pointer that is followed from a trusted one, which takes milliseconds.
 */
#define untrusted(T, p) as(T, p)

/* word reads eight bytes of kernel memory, without a call; a bad address gives 0. */
#define word(p) (as(struct qstr, p)->hash_len)

/* store_word stores eight bytes at any address; the compiler would make eight stores of it. */
#define store_word(p, w) asm volatile("*(u64 *)(%0 + 0) = %1" : : "r"(p), "r"(w) : "memory")

/* opaque hides a value's known range from the compiler, so that the check that follows stays in the program. */
#define opaque(x) asm volatile("" : "+r"(x))

#define memzero(p, n) __builtin_memset(p, 0, n)
#define ntohs(x) __builtin_bswap16(x)

#endif
