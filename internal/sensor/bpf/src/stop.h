/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * At the end: iterators that send what is still gathered: for sockets while the hooks of their ends are still in place, for tasks when
 * no hook is.
 */
#ifndef BODYCAM_STOP_H
#define BODYCAM_STOP_H

#include "cache.h"
#include "net.h"

SEC("iter/bpf_map_elem")
int flush_caches(struct bpf_iter__bpf_map_elem *ctx)
{
	struct cache *c = ctx->value;
	if (c && c->task)
		flush_all(c);
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int flush_socks(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;
	struct sock_info *i = ctx->value;
	if (!sk || !i || i->told)
		return 0;
	struct net n = {};
	from_sock(&n, sk);
	if (n.proto == PROTO_TCP) {
		if (!connected(get(sk, __sk_common.skc_state)))
			return 0;
		tcp_bytes(&n, sk);
	} else {
		if (!(i->rd || i->wr))
			return 0;
		n.rd = i->rd;
		n.wr = i->wr;
	}
	return put_flow(i, &n);
}

#endif
