/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sockets. The cgroup programs see the kernel's copy of an address but not the outcome; the end of the system call
 * sees the outcome but only the program's copy of the address. So the first leave the address in `pending` for the
 * second, and one attempt is one record.
 */
#ifndef BODYCAM_NET_H
#define BODYCAM_NET_H

#include "resolve.h"

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define AF_NETLINK 16
#define PROTO_TCP 6
#define PROTO_UDP 17
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_SYN_RECV 3
#define TCP_CLOSE 7
#define TCP_LISTEN 10
#define TCP_NEW_SYN_RECV 12
#define SOCK_DONE 1
#define DNS_PORT 53
#define SMALL_PACKET 512
#define LARGE_PACKET 4096
#define MAX_FDS 16

struct sock_info { /* what is known of a socket until its end */
	struct rec owner;
	__u64 rd, wr;
	__u32 told, pad;
};

struct pending {
	struct rec rec;
	struct net net;
};

struct {
	__uint(type, MAP_SK_STORAGE);
	__uint(map_flags, F_NO_PREALLOC | F_CLONE);
	__type(key, int);
	__type(value, struct sock_info);
} socks SEC(".maps");

struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct pending);
} pendings SEC(".maps");

static const struct pending no_pending = {};
#define NET_LEN (sizeof(struct rec) + sizeof(struct net))

/* send_net sends a finished record from any context. What can't be sent is counted as lost. */
static noinline_fn int send_net(const struct rec *r, const struct net *n)
{
	__u64 waiting = bpf_ringbuf_query(&ring, RB_AVAIL_DATA);
	struct rec *p = bpf_ringbuf_reserve(&ring, NET_LEN, 0);
	if (!p) {
		gap_anytime();
		lost_anytime(r->source);
		return 0;
	}
	__builtin_memcpy(p, r, sizeof(*r));
	__builtin_memcpy(p + 1, n, sizeof(*n));
	number_anytime(p);
	bpf_ringbuf_submit(p, wake_flag(waiting));
	return 0;
}

static inline_always void set_ip4(__u8 *to, __u32 ip)
{
	__builtin_memcpy(to, &ip, 4);
}

/* from_sock copies what the kernel's socket says of both ends. */
static inline_always void from_sock(struct net *n, struct sock *sk)
{
	n->family = get(sk, __sk_common.skc_family);
	n->socktype = get(sk, sk_type);
	n->proto = get(sk, sk_protocol);
	n->cookie = get(sk, __sk_common.skc_cookie.counter);
	if (n->family == AF_INET) {
		set_ip4(n->laddr, get(sk, __sk_common.skc_rcv_saddr));
		set_ip4(n->raddr, get(sk, __sk_common.skc_daddr));
	} else if (n->family == AF_INET6) {
		for (int i = 0; i < 4; i++) {
			set_ip4(n->laddr + 4 * i, get(sk, __sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[i]));
			set_ip4(n->raddr + 4 * i, get(sk, __sk_common.skc_v6_daddr.in6_u.u6_addr32[i]));
		}
	} else {
		return;
	}
	n->lport = get(sk, __sk_common.skc_num);
	if (!n->lport)
		n->lport = ntohs(get(as(struct inet_sock, sk), inet_sport));
	n->rport = ntohs(get(sk, __sk_common.skc_dport));
}

/* from_user copies an address from the program's memory: to the local end for bind, else to the remote end. */
static noinline_fn int from_user(struct net *n, __u64 addr, __u32 len, int local)
{
	struct {
		__u16 family, port;
		__u32 ip4;
		__u8 ip6[16];
	} a = {};
	if (!addr || len < 2)
		return 0;
	bpf_probe_read_user(&a, sizeof(a.family) + 6, (void *)addr);
	if (!n->family)
		n->family = a.family;
	__u8 *to = local ? n->laddr : n->raddr;
	if (a.family == AF_INET) {
		set_ip4(to, a.ip4);
	} else if (a.family == AF_INET6) {
		bpf_probe_read_user(to, 16, (void *)(addr + 8));
	} else if (a.family == AF_UNIX) {
		__u32 m = len - 2;
		opaque(m);
		if (m > 108)
			m = 108;
		bpf_probe_read_user(n->upath, m, (void *)(addr + 2));
		n->ulen = m;
		return 0;
	} else {
		return 0;
	}
	if (local)
		n->lport = ntohs(a.port);
	else
		n->rport = ntohs(a.port);
	return 0;
}

static inline_always struct sock *fd_sock(struct task_struct *t, int fd)
{
	struct file *f = fd_file(t, fd);
	if (!f || (get(get(f, f_inode), i_mode) & 0170000) != 0140000)
		return 0;
	struct socket *so = as(struct socket, get(f, private_data));
	if (!so || !get(so, sk))
		return 0;
	return as(struct sock, get(so, sk));
}

/* put_net sends s->net, and for a unix socket the canonical path of the peer. */
noinline_fn int put_net(int fd)
{
	GLOBAL_FN(0);
	struct sock *sk = fd_sock(t, fd);
	struct rec *r = out_rec(s);
	struct net *n = (struct net *)(s->out + sizeof(*r));
	head(r, K_NET, interrupted(s->ret) ? SRC_PART : SRC_NET, 0);
	r->nr = s->nr;
	r->abi = s->abi;
	__u32 end = NET_LEN;
	s->walk = 0;
	if (s->net.family == AF_UNIX && sk) {
		struct unix_sock *u = as(struct unix_sock, sk);
		if (s->net.op != NET_BIND && s->net.op != NET_LISTEN && s->net.op != NET_ACCEPT)
			u = get(u, peer) ? as(struct unix_sock, get(u, peer)) : 0;
		if (u && get(u, path.dentry)) {
			s->net.plen = walk(s, &u->path, end);
			end += s->net.plen;
		}
		s->net.walk = s->walk;
	}
	__builtin_memcpy(n, &s->net, sizeof(*n));
	put_unit(end);
	return 0;
}

/* take_pending moves what a cgroup program left for this thread into s->net. */
static inline_always bool take_pending(struct scratch *s)
{
	__u64 key = bpf_get_current_pid_tgid();
	struct pending *p = bpf_map_lookup_elem(&pendings, &key);
	if (!p)
		return false;
	__builtin_memcpy(&s->net, &p->net, sizeof(s->net));
	bpf_map_delete_elem(&pendings, &key);
	return true;
}

static inline_always void unix_name(struct net *n, struct sock *sk)
{
	struct unix_address *a = as(struct unix_address, get(as(struct unix_sock, sk), addr));
	if (!a)
		return;
	__u32 m = get(a, len) - 2;
	opaque(m);
	if (m > 108)
		m = 108;
	bpf_probe_read_kernel(n->upath, m, &a->name[0].sun_path[0]);
	n->ulen = m;
}

/* fixed_address tells that an address in the program's memory is the one that the kernel read: nobody else can have written to it. */
static inline_always bool fixed_address(struct scratch *s, __u64 addr, __u32 len)
{
	s->dfd = AT_FDCWD;
	s->depth = 0;
	return addr && certain(addr, len);
}

/* on_address reports connect, bind, listen and accept. */
noinline_fn int on_address(int op, int fd)
{
	GLOBAL_FN(0);
	struct net *n = &s->net;
	bool have = op == NET_CONNECT && take_pending(s);
	struct sock *sk = fd_sock(t, fd);
	if (!have) {
		memzero(n, sizeof(*n));
		if (sk)
			from_sock(n, sk);
		if (op == NET_CONNECT || op == NET_BIND) {
			if (s->ret || n->family == AF_UNIX)
				from_user(n, s->arg[1], s->arg[2], op == NET_BIND);
			n->verified = n->family == AF_UNIX ? fixed_address(s, s->arg[1], s->arg[2]) : !s->ret;
		} else {
			n->verified = 1;
			if (sk && n->family == AF_UNIX)
				unix_name(n, sk);
		}
	} else if (sk && n->family != AF_UNIX) { /* the local end is known only now */
		struct sock_common *c = &sk->__sk_common;
		n->lport = get(c, skc_num);
		if (n->family == AF_INET)
			set_ip4(n->laddr, get(c, skc_rcv_saddr));
		else
			for (int i = 0; i < 4; i++)
				set_ip4(n->laddr + 4 * i, get(c, skc_v6_rcv_saddr.in6_u.u6_addr32[i]));
	}
	n->op = op;
	n->ret = s->ret;
	return put_net(fd);
}

/* on_send reports datagrams with an address, and connections made by sending. */
noinline_fn int on_send(int fd, __u64 addr, __u64 len)
{
	GLOBAL_FN(0);
	struct net *n = &s->net;
	bool have = take_pending(s);
	if (!have && (!addr || len < 2))
		return 0;
	struct sock *sk = fd_sock(t, fd);
	if (!have) {
		memzero(n, sizeof(*n));
		if (sk)
			from_sock(n, sk);
		if (n->family == AF_NETLINK)
			return 0;
		from_user(n, addr, len, 0);
		n->verified = n->family == AF_UNIX && fixed_address(s, addr, len);
		n->op = NET_SEND;
	}
	n->ret = s->ret;
	return put_net(fd);
}

/* flush_pending reports what io_uring did in this thread; its result is not known. */
noinline_fn int flush_pending(void)
{
	GLOBAL_FN(0);
	if (!take_pending(s))
		return 0;
	s->net.ret = 0;
	s->net.flags = 1;
	return put_net(-1);
}

struct control {
	__u64 name, namelen, ctl, ctllen;
};

/* read_msghdr reads the parts of a struct msghdr that matter, in either width. */
static inline_always void read_msghdr(struct scratch *s, __u64 at, struct control *c)
{
	if (s->abi == 1) {
		__u64 w[6] = {};
		bpf_probe_read_user(w, sizeof(w), (void *)at);
		c->name = w[0];
		c->namelen = (__u32)w[1];
		c->ctl = w[4];
		c->ctllen = w[5];
	} else {
		__u32 w[6] = {};
		bpf_probe_read_user(w, sizeof(w), (void *)at);
		c->name = w[0];
		c->namelen = w[1];
		c->ctl = w[4];
		c->ctllen = w[5];
	}
}

noinline_fn int put_passed(int fd, int received)
{
	GLOBAL_FN(0);
	struct file *f = fd_file(t, fd);
	if (!f)
		return 0;
	struct body *b = begin(s, K_PASSFD, SRC_PASSFD, 0);
	out_rec(s)->nr = s->nr;
	out_rec(s)->abi = s->abi;
	b->arg[0] = received;
	body_of_file(b, f);
	s->walk = 0;
	b->len[1] = walk(s, &f->f_path, HEAD);
	b->walk = s->walk | WALK_OBJECT;
	put_unit(HEAD + b->len[1]);
	return 0;
}

/* on_control reports each descriptor in the SCM_RIGHTS messages of a control buffer. */
noinline_fn int on_control(__u64 at, __u64 len, int received)
{
	GLOBAL_FN(0);
	__u64 end = at + len, fds = 0, fds_end = 0;
	struct bpf_iter_num it;
	bool wide = s->abi == 1;
	__u64 hdr = wide ? 16 : 12, align = wide ? 7 : 3;
	bpf_iter_num_new(&it, 0, 4 * MAX_FDS);
	while (bpf_iter_num_next(&it)) {
		if (fds < fds_end) {
			int fd = -1;
			bpf_probe_read_user(&fd, 4, (void *)fds);
			fds += 4;
			put_passed(fd, received);
			continue;
		}
		if (at + hdr > end)
			break;
		__u32 w[4] = {};
		bpf_probe_read_user(w, sizeof(w), (void *)at);
		__u64 clen = w[0];
		__u32 level = wide ? w[2] : w[1], type = wide ? w[3] : w[2];
		if (clen < hdr)
			break;
		if (level == 1 && type == 1) {
			fds = at + hdr;
			fds_end = at + clen < end ? at + clen : end;
		}
		at += (clen + align) & ~align;
	}
	bpf_iter_num_destroy(&it);
	return 0;
}

noinline_fn int on_sendmsg(int fd, __u64 msg)
{
	GLOBAL_FN(0);
	struct control m = {};
	read_msghdr(s, msg, &m);
	on_send(fd, m.name, m.namelen);
	if (s->ret >= 0 && m.ctllen >= 16)
		on_control(m.ctl, m.ctllen, 0);
	return 0;
}

noinline_fn int on_recvmsg(int fd, __u64 msg)
{
	GLOBAL_FN(0);
	struct sock *sk = fd_sock(t, fd);
	if (!sk || get(sk, __sk_common.skc_family) != AF_UNIX)
		return 0;
	struct control m = {};
	read_msghdr(s, msg, &m);
	if (m.ctllen >= 16)
		on_control(m.ctl, m.ctllen, 1);
	return 0;
}

/*
 * new_pending makes room for an address. One that is still there belongs to an earlier message of the same sendmmsg,
 * which has gone out by now. A kernel worker returns from no system call: its address is sent at once.
 */
static inline_always struct pending *new_pending(__u64 *key)
{
	*key = bpf_get_current_pid_tgid();
	struct pending *p = bpf_map_lookup_elem(&pendings, key);
	if (p) {
		p->net.flags = p->rec.flags & REC_WORKER ? 1 : 2;
		seen_anytime(SRC_NET);
		send_net(&p->rec, &p->net);
		memzero(&p->net, sizeof(p->net));
	} else {
		if (bpf_map_update_elem(&pendings, key, &no_pending, 0)) {
			seen_anytime(SRC_NET);
			lost_anytime(SRC_NET);
			return 0;
		}
		p = bpf_map_lookup_elem(&pendings, key);
		if (!p)
			return 0;
	}
	head(&p->rec, K_NET, SRC_NET, 0);
	p->net.verified = 1;
	return p;
}

static inline_always void done_pending(struct pending *p, __u64 *key)
{
	if (!(p->rec.flags & REC_WORKER))
		return;
	p->net.flags = 1;
	seen_anytime(SRC_NET);
	send_net(&p->rec, &p->net);
	bpf_map_delete_elem(&pendings, key);
}

static inline_always int note_ip(struct bpf_sock_addr *c, __u16 op, bool v6)
{
	__u64 key;
	__u64 cookie = bpf_get_socket_cookie(c);
	struct pending *p = new_pending(&key);
	if (!p)
		return 1;
	p->net.op = op;
	p->net.family = v6 ? AF_INET6 : AF_INET;
	p->net.socktype = c->type;
	p->net.proto = c->protocol;
	p->net.cookie = cookie;
	p->net.rport = ntohs((__u16)c->user_port);
	if (v6) {
		set_ip4(p->net.raddr, c->user_ip6[0]);
		set_ip4(p->net.raddr + 4, c->user_ip6[1]);
		set_ip4(p->net.raddr + 8, c->user_ip6[2]);
		set_ip4(p->net.raddr + 12, c->user_ip6[3]);
	} else {
		set_ip4(p->net.raddr, c->user_ip4);
	}
	done_pending(p, &key);
	return 1;
}

static inline_always int note_unix(struct bpf_sock_addr *c, __u16 op)
{
	__u64 key;
	struct bpf_sock_addr_kern *k = kernel_ctx(c);
	struct pending *p = new_pending(&key);
	if (!p)
		return 1;
	p->net.op = op;
	p->net.family = AF_UNIX;
	p->net.socktype = c->type;
	__u32 n = get(k, uaddrlen);
	n = n > 2 ? n - 2 : 0;
	opaque(n);
	if (n > 108)
		n = 108;
	struct sockaddr_un *un = as(struct sockaddr_un, get(k, uaddr));
	bpf_probe_read_kernel(p->net.upath, n, &un->sun_path[0]);
	p->net.ulen = n;
	done_pending(p, &key);
	return 1;
}

SEC("cgroup/connect4")
int on_connect4(struct bpf_sock_addr *c)
{
	return note_ip(c, NET_CONNECT, false);
}

SEC("cgroup/connect6")
int on_connect6(struct bpf_sock_addr *c)
{
	return note_ip(c, NET_CONNECT, true);
}

SEC("cgroup/sendmsg4")
int on_sendmsg4(struct bpf_sock_addr *c)
{
	return note_ip(c, NET_SEND, false);
}

SEC("cgroup/sendmsg6")
int on_sendmsg6(struct bpf_sock_addr *c)
{
	return note_ip(c, NET_SEND, true);
}

SEC("cgroup/connect_unix")
int on_connect_unix(struct bpf_sock_addr *c)
{
	return note_unix(c, NET_CONNECT);
}

SEC("cgroup/sendmsg_unix")
int on_sendmsg_unix(struct bpf_sock_addr *c)
{
	return note_unix(c, NET_SEND);
}

/* Who made a socket is asked again at its end, when nobody may be current. */
SEC("cgroup/sock_create")
int on_sock_create(struct bpf_sock *sk)
{
	struct sock_info *i = bpf_sk_storage_get(&socks, sk, 0, STORAGE_CREATE);
	if (i)
		head(&i->owner, K_FLOW, SRC_FLOW, 0);
	return 1;
}

/* put_flow sends what a socket moved, once: at its end, or when the sensor stops, whichever is first. */
static noinline_fn int put_flow(struct sock_info *i, struct net *n)
{
	if (__sync_lock_test_and_set(&i->told, 1))
		return 0;
	i->owner.time = bpf_ktime_get_boot_ns();
	seen_anytime(SRC_FLOW);
	send_net(&i->owner, n);
	return 0;
}

static inline_always void tcp_bytes(struct net *n, struct sock *sk)
{
	struct tcp_sock *tp = as(struct tcp_sock, sk);
	n->wr = get(tp, bytes_sent) - get(tp, bytes_retrans);
	n->rd = get(tp, bytes_received);
	if (n->rd && (get(sk, __sk_common.skc_flags) >> SOCK_DONE) & 1)
		n->rd--; /* the end of the stream counts as a byte */
}

/* connected tells of a state that only a connection has. */
static inline_always bool connected(int state)
{
	return state != TCP_SYN_SENT && state != TCP_SYN_RECV && state != TCP_CLOSE && state != TCP_LISTEN && state != TCP_NEW_SYN_RECV;
}

/*
 * The outcome of connection attempts, and the end of connections. It runs in any context, and the kernel leaves it out where an
 * interrupt needs it while it runs on the same processor. So nothing that it does depends on an earlier run of it.
 */
SEC("tp_btf/inet_sock_set_state")
int on_state(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	int from = ctx[1], to = ctx[2];
	bool attempt = from == TCP_SYN_SENT && (to == TCP_CLOSE || to == TCP_ESTABLISHED);
	bool anew = to == TCP_SYN_SENT || to == TCP_LISTEN; /* perhaps of a socket whose connection was given up and told */
	if (!attempt && !anew && !(to == TCP_CLOSE && connected(from)))
		return 0;
	if (get(sk, sk_protocol) != PROTO_TCP)
		return 0;
	struct sock_info *i = bpf_sk_storage_get(&socks, sk, 0, 0);
	if (!i)
		return 0;
	if (anew) {
		i->told = 0;
		return 0;
	}
	struct net n = {};
	from_sock(&n, sk);
	if (attempt) {
		struct rec r = i->owner;
		r.kind = K_STATE;
		r.source = SRC_PART;
		r.time = bpf_ktime_get_boot_ns();
		n.ret = to == TCP_ESTABLISHED ? 0 : get(sk, sk_err) ? -get(sk, sk_err) : -1000;
		send_net(&r, &n);
		return 0;
	}
	tcp_bytes(&n, sk);
	return put_flow(i, &n);
}

/* A socket without a connection ends here. */
SEC("cgroup/sock_release")
int on_sock_release(struct bpf_sock *sk)
{
	if (sk->protocol == PROTO_TCP)
		return 1;
	struct sock_info *i = bpf_sk_storage_get(&socks, sk, 0, 0);
	if (!i || !(i->rd || i->wr))
		return 1;
	struct net n = {};
	from_sock(&n, kernel_ctx(sk));
	n.cookie = bpf_get_socket_cookie(sk);
	n.rd = i->rd;
	n.wr = i->wr;
	put_flow(i, &n);
	return 1;
}

struct small_packet {
	struct rec rec;
	struct net net;
	char data[SMALL_PACKET];
};

struct large_packet {
	struct rec rec;
	struct net net;
	char data[LARGE_PACKET];
};

static inline_always void packet_head(struct rec *r, struct sock_info *i)
{
	__builtin_memcpy(r, &i->owner, sizeof(*r));
	r->kind = K_DNS;
	r->source = SRC_PART; /* whether it asks a name is for the reader to tell */
	r->time = bpf_ktime_get_boot_ns();
	number_anytime(r);
}

#define PUT_PACKET(type, max)                                                                                          \
	do {                                                                                                           \
		__u64 waiting = bpf_ringbuf_query(&ring, RB_AVAIL_DATA);                                                \
		type *p = bpf_ringbuf_reserve(&ring, sizeof(type), 0);                                                 \
		if (!p) {                                                                                              \
			gap_anytime();                                                                                 \
			lost_anytime(SRC_PART);                                                                        \
			return 0;                                                                                      \
		}                                                                                                      \
		packet_head(&p->rec, i);                                                                               \
		__builtin_memcpy(&p->net, n, sizeof(*n));                                                              \
		opaque(len);                                                                                           \
		if (len > (max))                                                                                       \
			len = (max);                                                                                   \
		opaque(len);                                                                                           \
		if (len && bpf_skb_load_bytes(skb, off, p->data, ((len - 1) & ((max) - 1)) + 1)) /* 6.1 sees no other lower bound */ \
			len = 0;                                                                                       \
		p->net.plen = len;                                                                                     \
		bpf_ringbuf_submit(p, wake_flag(waiting));                                                             \
	} while (0)

/* put_dns sends the payload of a packet from or to the name service's port. */
static noinline_fn int put_dns(struct __sk_buff *skb, struct sock_info *i, __u32 off, const struct net *n)
{
	__u32 len = skb->len - off;
	if (len <= SMALL_PACKET)
		PUT_PACKET(struct small_packet, SMALL_PACKET);
	else
		PUT_PACKET(struct large_packet, LARGE_PACKET);
	return 0;
}

/* read_ip reads both ends and the protocol from a packet's head, and returns where its payload begins. */
static inline_always __u32 read_ip(struct __sk_buff *skb, struct net *n, bool in)
{
	__u8 first = 0, proto = 0;
	__u8 *from = in ? n->raddr : n->laddr, *to = in ? n->laddr : n->raddr;
	__u32 off = 40;
	bpf_skb_load_bytes(skb, 0, &first, 1);
	if (first >> 4 == 4) {
		n->family = AF_INET;
		off = (first & 15) * 4;
		bpf_skb_load_bytes(skb, 9, &proto, 1);
		bpf_skb_load_bytes(skb, 12, from, 4);
		bpf_skb_load_bytes(skb, 16, to, 4);
	} else {
		n->family = AF_INET6;
		bpf_skb_load_bytes(skb, 6, &proto, 1);
		bpf_skb_load_bytes(skb, 8, from, 16);
		bpf_skb_load_bytes(skb, 24, to, 16);
	}
	n->proto = proto;
	__u16 ports[2] = {};
	if (proto == PROTO_UDP || proto == PROTO_TCP)
		bpf_skb_load_bytes(skb, off, ports, sizeof(ports));
	n->rport = ntohs(ports[in ? 0 : 1]);
	n->lport = ntohs(ports[in ? 1 : 0]);
	if (proto == PROTO_UDP)
		off += 8;
	if (proto == PROTO_TCP) {
		__u8 words = 0;
		bpf_skb_load_bytes(skb, off + 12, &words, 1);
		off += (words >> 4) * 4;
	}
	return off;
}

static inline_always int on_packet(struct __sk_buff *skb, bool in)
{
	struct bpf_sock *sk = skb->sk;
	if (!sk)
		return 1;
	sk = bpf_sk_fullsock(sk);
	if (!sk || (sk->protocol == PROTO_TCP && ntohs(sk->dst_port) != DNS_PORT))
		return 1;
	struct sock_info *i = bpf_sk_storage_get(&socks, sk, 0, 0);
	if (!i)
		return 1;
	struct net n = {};
	__u32 off = read_ip(skb, &n, in);
	if (skb->len < off)
		return 1;
	if (n.proto != PROTO_TCP) { /* TCP counts its bytes itself */
		if (in)
			__sync_fetch_and_add(&i->rd, skb->len - off);
		else
			__sync_fetch_and_add(&i->wr, skb->len - off);
	}
	n.op = in ? NET_IN : NET_OUT;
	n.cookie = bpf_get_socket_cookie(skb);
	if (n.rport == DNS_PORT && skb->len > off)
		put_dns(skb, i, off, &n);
	return 1;
}

SEC("cgroup_skb/egress")
int on_egress(struct __sk_buff *skb)
{
	return on_packet(skb, false);
}

SEC("cgroup_skb/ingress")
int on_ingress(struct __sk_buff *skb)
{
	return on_packet(skb, true);
}

#endif
