/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's types, cut down to the members that the sensor reads. CO-RE finds each member by its name in the
 * running kernel's BTF when the object is loaded, so neither offsets nor the order matter here.
 */
#ifndef BODYCAM_KERNEL_H
#define BODYCAM_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed int __s32;
typedef signed long long __s64;
typedef _Bool bool;
#define true 1
#define false 0

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
	unsigned long r10, r9, r8, ax, bx, cx, dx, si, di, bp, orig_ax;
};

struct thread_info {
	__u32 status;
};

struct hlist_bl_node {
	struct hlist_bl_node **pprev;
};

struct qstr {
	union {
		struct {
			__u32 hash;
			__u32 len;
		};
		__u64 hash_len;
	};
	const unsigned char *name;
};

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct list_head {
	struct list_head *next;
};

typedef struct {
	int counter;
} atomic_t;

struct inode {
	unsigned short i_mode;
	__u32 i_generation;
	unsigned long i_ino;
	void *i_mapping;
	__s64 i_size;
	struct super_block *i_sb;
	void *i_private;
	atomic_t i_writecount;
	char *i_link;
};

struct dentry {
	__u32 d_flags;
	struct hlist_node d_sib;
	struct hlist_head d_children; /* both since 6.8 */
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
};

struct dentry___6_7 { /* a folder's names are in a circle */
	struct list_head d_child, d_subdirs;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct ns_common {
	__u32 inum;
};

struct mnt_namespace {
	struct ns_common ns;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
	struct mnt_namespace *mnt_ns;
	struct list_head mnt_mounts, mnt_child;
};

struct ovl_path {
	struct dentry *dentry;
};

struct ovl_entry {
	__u32 __numlower;
	struct ovl_path __lowerstack[1];
};

struct ovl_inode { /* of overlayfs, which may be a module */
	struct inode vfs_inode;
	struct dentry *__upperdentry;
	struct ovl_entry *oe;
};

struct ovl_inode___6_4 {
	struct ovl_path lowerpath;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

typedef struct {
	__s64 counter;
} atomic64_t;

typedef struct {
	atomic64_t refcnt;
} file_ref_t;

struct callback_head {
	struct callback_head *next;
};

struct file {
	__u32 f_mode;
	void *private_data;
	void *f_mapping;
	struct callback_head f_task_work;
	file_ref_t f_ref; /* references beyond the first, since 6.13 */
	struct inode *f_inode;
	__u32 f_flags;
	struct path f_path;
};

struct file___6_1 {
	struct callback_head f_rcuhead;
};

struct fdtable {
	__u32 max_fds;
	struct file **fd;
};

struct files_struct {
	atomic_t count;
	struct fdtable *fdt;
};

struct fs_struct {
	int users;
	struct path root, pwd;
};

struct nsproxy {
	struct mnt_namespace *mnt_ns;
};

typedef struct {
	__u32 val;
} kuid_t;

typedef struct {
	__u32 val;
} kgid_t;

struct cred {
	kuid_t uid;
	kgid_t gid;
};

struct xa_node {
	unsigned char shift;
	void *slots[64];
};

struct xarray {
	void *xa_head;
};

struct idr {
	struct xarray idr_rt;
};

struct pid_namespace {
	struct idr idr;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	__u32 level;
	struct hlist_head tasks[4];
	struct upid numbers[1];
};

struct signal_struct {
	atomic_t live;
	int group_exit_code;
	__u32 flags;
	struct pid *pids[4];
};

struct vm_area_struct {
	unsigned long vm_start, vm_end, vm_flags;
	struct file *vm_file;
};

struct mm_struct {
	atomic_t mm_users;
	unsigned long arg_start, arg_end;
};

struct task_struct {
	struct thread_info thread_info;
	__u32 flags;
	int pid, tgid, exit_code;
	__u64 start_boottime;
	struct task_struct *group_leader, *real_parent;
	struct cred *cred;
	struct signal_struct *signal;
	struct files_struct *files;
	struct fs_struct *fs;
	struct nsproxy *nsproxy;
	struct mm_struct *mm;
	struct callback_head *task_works;
	struct pid *thread_pid;
	struct hlist_node pid_links[4];
};

struct linux_binprm {
	struct file *file, *executable;
	const char *filename, *interp, *fdpath;
};

struct kernel_siginfo {
	int si_code;
};

struct filename {
	const char *name;
};

struct open_how {
	__u64 flags;
};

struct io_open {
	int dfd;
	struct filename *filename;
	struct open_how how;
};

struct delayed_filename {
	struct filename *__incomplete_filename;
};

struct io_open___7_0 {
	struct delayed_filename filename;
};

struct io_cmd_data {
	struct file *file;
};

struct io_kiocb {
	struct io_cmd_data cmd;
	__u8 opcode;
};

struct in6_addr {
	union {
		__u32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	__u32 skc_daddr, skc_rcv_saddr;
	__u16 skc_dport, skc_num, skc_family;
	unsigned char skc_state;
	struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
	unsigned long skc_flags;
};

struct sock {
	struct sock_common __sk_common;
	int sk_err;
	__u16 sk_type, sk_protocol;
};

struct inet_sock {
	__u16 inet_sport; /* kept when the socket gives up its port */
};

struct tcp_sock {
	__u64 bytes_sent, bytes_retrans, bytes_received;
};

struct socket {
	struct sock *sk;
};

struct sockaddr_un {
	unsigned short sun_family;
	char sun_path[108];
};

struct unix_address {
	int len;
	struct sockaddr_un name[0];
};

struct unix_sock {
	struct unix_address *addr;
	struct path path;
	struct sock *peer;
};

struct sockaddr {
	unsigned short sa_family;
};

struct bpf_sock_addr_kern {
	struct sockaddr *uaddr;
	__u32 uaddrlen;
};

struct bpf_iter__bpf_map_elem {
	void *key, *value;
};

struct bpf_iter__bpf_sk_storage_map {
	struct sock *sk;
	void *value;
};

#pragma clang attribute pop

/* Contexts of BPF programs: the kernel's user ABI, offsets fixed. */

struct bpf_sock {
	__u32 bound_dev_if, family, type, protocol, mark, priority, src_ip4, src_ip6[4], src_port;
	__u16 dst_port, pad;
};

struct bpf_sock_addr {
	__u32 user_family, user_ip4, user_ip6[4], user_port, family, type, protocol, msg_src_ip4, msg_src_ip6[4];
	struct bpf_sock *sk __attribute__((aligned(8)));
};

struct __sk_buff {
	__u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
	__u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end, napi_id;
	__u32 family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port;
	__u32 data_meta;
	__u64 flow_keys __attribute__((aligned(8)));
	__u64 tstamp;
	__u32 wire_len, gso_segs;
	struct bpf_sock *sk __attribute__((aligned(8)));
};

struct bpf_iter_num {
#ifndef OLD
	__u64 opaque[1];
#else
	int next, end, now;
#endif
} __attribute__((aligned(8)));

#endif
