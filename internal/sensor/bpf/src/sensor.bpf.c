/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tp back end of bodycam's sensor: raw tracepoints and cgroup programs, which also a kernel that refuses kprobes,
 * fentry and LSM programs takes. See the Go package for what each hook sees and misses.
 */
#include "cache.h"
#include "calls.h"
#include "life.h"
#include "net.h"
#include "syscalls.h"
#include "stop.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Keeps types that only constants use in the object's type information: the Go side is made from that. */
const struct {
	enum act act;
	enum kind kind;
	enum source source;
	enum netop netop;
	enum follow follow;
	struct body body;
	struct opened opened;
	struct flush flush;
	struct mapped mapped;
	struct executed executed;
	struct piece piece;
	struct life life;
} types_for_go = {};
