// How the network is reached. Every port that is spoken to belongs to the test.
#include "trig.h"
#include <poll.h>

static int tcp(void) { return must("socket", socket(AF_INET, SOCK_STREAM, 0)); }
static int udp(void) { return must("socket", socket(AF_INET, SOCK_DGRAM, 0)); }

static void connect_(int c, char **v) {
	struct sockaddr_in a = in4("127.0.0.1", atoi(v[0]));
	int s = tcp();
	out("connect", connect(s, (void *)&a, sizeof a));
	socklen_t l = sizeof a;
	getsockname(s, (void *)&a, &l);
	say("local", "%d", ntohs(a.sin_port));
	must("write", write(s, "hello", 5));
	char b[16];
	say("got", "%ld", (long)read(s, b, sizeof b));
}
static void connect6(int c, char **v) {
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(v[0])), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int s = must("socket", socket(AF_INET6, SOCK_STREAM, 0));
	out("connect", connect(s, (void *)&a, sizeof a));
}
static void mapped(int c, char **v) { // IPv4 dressed as IPv6
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(v[0]))};
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &a.sin6_addr);
	int s = must("socket", socket(AF_INET6, SOCK_STREAM, 0));
	out("connect", connect(s, (void *)&a, sizeof a));
}
static void refused(int c, char **v) {
	struct sockaddr_in a = in4("127.0.0.1", 1);
	out("connect", connect(tcp(), (void *)&a, sizeof a));
}
static void inprogress(int c, char **v) {
	struct sockaddr_in a = in4("127.0.0.1", atoi(v[0]));
	int s = must("socket", socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	out("connect", connect(s, (void *)&a, sizeof a));
	struct pollfd p = {s, POLLOUT, 0};
	poll(&p, 1, 1000);
}
static void sendto_(int c, char **v) {
	struct sockaddr_in a = in4("127.0.0.1", atoi(v[0]));
	out("sendto", sendto(udp(), "datagram", 8, 0, (void *)&a, sizeof a));
}
static void sendmsg_(int c, char **v) {
	struct sockaddr_in a = in4("127.0.0.1", atoi(v[0]));
	struct iovec iv = {"datagram", 8};
	struct msghdr m = {.msg_name = &a, .msg_namelen = sizeof a, .msg_iov = &iv, .msg_iovlen = 1};
	out("sendmsg", sendmsg(udp(), &m, 0));
}
static void sendmmsg_(int c, char **v) {
	struct sockaddr_in a[3];
	struct mmsghdr m[3] = {0};
	struct iovec iv = {"datagram", 8};
	char ip[16];
	for (int i = 0; i < 3; i++) {
		snprintf(ip, sizeof ip, "127.0.0.%d", i + 11);
		a[i] = in4(ip, 9);
		m[i].msg_hdr = (struct msghdr){.msg_name = &a[i], .msg_namelen = sizeof a[i], .msg_iov = &iv, .msg_iovlen = 1};
	}
	say("sent", "%d", sendmmsg(udp(), m, 3, 0));
}
static void raw(int c, char **v) {
	struct sockaddr_in a = in4("127.0.0.1", 0);
	int s = out("socket", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
	if (s >= 0) out("sendto", sendto(s, "\x08\0\xf7\xff\0\0\0\0", 8, 0, (void *)&a, sizeof a));
}
static void udpconnect(int c, char **v) {
	struct sockaddr_in a = in4("127.0.0.1", atoi(v[0]));
	int s = udp();
	out("connect", connect(s, (void *)&a, sizeof a));
	must("send", send(s, "datagram", 8, 0));
}
static void fastopen(int c, char **v) {
	struct sockaddr_in a = in4("127.0.0.1", atoi(v[0]));
	int s = tcp();
	out("sendto", sendto(s, "hello", 5, MSG_FASTOPEN, (void *)&a, sizeof a));
	char b[16];
	read(s, b, sizeof b);
}
static void server(int c, char **v) {
	struct sockaddr_in a = in4("127.0.0.1", 0), peer;
	int s = tcp();
	socklen_t l = sizeof a;
	out("bind", bind(s, (void *)&a, sizeof a));
	getsockname(s, (void *)&a, &l);
	say("port", "%d", ntohs(a.sin_port));
	out("listen", listen(s, 5));
	pid_t p = fork();
	if (p == 0) {
		int k = tcp();
		must("connect", connect(k, (void *)&a, sizeof a));
		_exit(0);
	}
	l = sizeof peer;
	out("accept", accept4(s, (void *)&peer, &l, SOCK_CLOEXEC));
	say("peer", "%d", ntohs(peer.sin_port));
	reap(p);
}
static void unix_(int c, char **v) {
	struct sockaddr_un u = {.sun_family = AF_UNIX, .sun_path = "sock"};
	int s = must("socket", socket(AF_UNIX, SOCK_STREAM, 0)), k = socket(AF_UNIX, SOCK_STREAM, 0);
	out("bind", bind(s, (void *)&u, sizeof u));
	must("listen", listen(s, 5));
	must("symlink", symlink("sock", "docker.sock"));
	out("connect", connect(k, (void *)&u, sizeof u));
	strcpy(u.sun_path, "docker.sock");
	out("link", connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, sizeof u));
	strcpy(u.sun_path, "none.sock");
	out("missing", connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, sizeof u));
}
static void abstract(int c, char **v) {
	struct sockaddr_un u = {.sun_family = AF_UNIX};
	int n = snprintf(u.sun_path + 1, 100, "bodycam-%d", getpid());
	u.sun_path[1 + n] = 0; // a NUL within the name
	u.sun_path[2 + n] = 'x';
	socklen_t l = offsetof(struct sockaddr_un, sun_path) + n + 3;
	int s = must("socket", socket(AF_UNIX, SOCK_STREAM, 0)), k = socket(AF_UNIX, SOCK_STREAM, 0);
	must("bind", bind(s, (void *)&u, l));
	must("listen", listen(s, 5));
	out("connect", connect(k, (void *)&u, l));
	int d = socket(AF_UNIX, SOCK_DGRAM, 0);
	u.sun_path[1] = 'B';
	must("bind", bind(d, (void *)&u, l));
	out("sendto", sendto(socket(AF_UNIX, SOCK_DGRAM, 0), "x", 1, 0, (void *)&u, l));
}
static void passfd(int c, char **v) {
	int sv[2];
	fill("key", "secret");
	must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
	pid_t p = fork();
	if (p == 0) {
		char room[CMSG_SPACE(4)], b[8];
		struct iovec iv = {b, 8};
		struct msghdr m = {.msg_iov = &iv, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
		out("recvmsg", recvmsg(sv[1], &m, 0));
		_exit(0);
	}
	int fd = must("open", open("key", O_RDONLY));
	char room[CMSG_SPACE(4)] = {0};
	struct iovec iv = {"x", 1};
	struct msghdr m = {.msg_iov = &iv, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(4);
	memcpy(CMSG_DATA(h), &fd, 4);
	out("sendmsg", sendmsg(sv[0], &m, 0));
	reap(p);
}

static int query(char *q, int id, const char *name) {
	int n = 12;
	memcpy(q, "\0\0\1\0\0\1\0\0\0\0\0\0", 12);
	q[0] = id >> 8;
	q[1] = id;
	while (*name) {
		const char *dot = strchrnul(name, '.');
		q[n++] = dot - name;
		memcpy(q + n, name, dot - name);
		n += dot - name;
		name = *dot ? dot + 1 : dot;
	}
	memcpy(q + n, "\0\0\1\0\1", 5);
	return n + 5;
}
static void answer(int s) {
	char b[512];
	struct timeval tv = {1, 0};
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
	say("answer", "%ld", (long)recv(s, b, sizeof b, 0));
}
static void dns_sendto(int c, char **v) {
	char q[300];
	struct sockaddr_in a = in4(v[0], 53);
	int s = udp(), n = query(q, 1, "sendto.example.test");
	out("sendto", sendto(s, q, n, 0, (void *)&a, sizeof a));
	answer(s);
}
static void dns_connected(int c, char **v) {
	char q[300];
	struct sockaddr_in a = in4(v[0], 53);
	int s = udp();
	must("connect", connect(s, (void *)&a, sizeof a));
	out("send", send(s, q, query(q, 2, "send.example.test"), 0));
	answer(s);
	out("write", write(s, q, query(q, 3, "write.example.test")));
	answer(s);
	char q2[300];
	struct iovec iv[2] = {{q, 12}, {q + 12, query(q, 4, "sendmsg.example.test") - 12}};
	struct msghdr m = {.msg_iov = iv, .msg_iovlen = 2};
	out("sendmsg", sendmsg(s, &m, 0));
	answer(s);
	struct iovec iv2[2] = {{q, query(q, 5, "mmsg-a.example.test")}, {q2, query(q2, 6, "mmsg-b.example.test")}};
	struct mmsghdr mm[2] = {{.msg_hdr = {.msg_iov = &iv2[0], .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &iv2[1], .msg_iovlen = 1}}};
	say("sendmmsg", "%d", sendmmsg(s, mm, 2, 0));
	answer(s);
	answer(s);
}
static void dns_tcp(int c, char **v) {
	char q[300];
	struct sockaddr_in a = in4(v[0], 53);
	int s = tcp(), n = query(q + 2, 7, "tcp.example.test");
	q[0] = n >> 8;
	q[1] = n;
	must("connect", connect(s, (void *)&a, sizeof a));
	out("write", write(s, q, n + 2));
	answer(s);
}
static void dns_twonames(int c, char **v) {
	char q[300];
	struct sockaddr_in a = in4(v[0], 53);
	int s = udp();
	sendto(s, q, query(q, 8, "one.example.test"), 0, (void *)&a, sizeof a);
	answer(s);
	sendto(s, q, query(q, 9, "two.example.test"), 0, (void *)&a, sizeof a);
	answer(s);
	a = in4("127.0.0.1", atoi(v[1]));
	out("connect", connect(tcp(), (void *)&a, sizeof a));
}
static void dns_hostile(int c, char **v) { // pointer loops, cut names, garbage: no name, no crash
	struct sockaddr_in a = in4(v[0], 53);
	int s = udp();
	static const char loop[] = "\0\1\1\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1", cut[] = "\0\1\1\0\0\1\0\0\0\0\0\0\77abc";
	out("loop", sendto(s, loop, sizeof loop - 1, 0, (void *)&a, sizeof a));
	out("cut", sendto(s, cut, sizeof cut - 1, 0, (void *)&a, sizeof a));
	out("short", sendto(s, "\1", 1, 0, (void *)&a, sizeof a));
	char q[300];
	out("odd", sendto(s, q, query(q, 10, "nul\1\xff\n.example.test"), 0, (void *)&a, sizeof a));
}
static void badaddr(int c, char **v) {
	struct sockaddr_in a = in4("127.0.0.1", 9);
	int s = tcp();
	out("short", connect(s, (void *)&a, 3));
	out("fault", connect(s, (void *)8, sizeof a));
	out("notsock", connect(0, (void *)&a, sizeof a));
	out("badf", connect(999, (void *)&a, sizeof a));
}
static void socketcall(int c, char **v) { // i386's one door to all socket calls
	struct sockaddr_in *a = mmap((void *)0x20000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	unsigned *args = (void *)0x20000800;
	*a = in4("127.0.0.1", atoi(v[0]));
	args[0] = tcp();
	args[1] = (unsigned)(uintptr_t)a;
	args[2] = sizeof *a;
	long r;
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(102), "b"(3), "c"(args) : "memory", "r8", "r9", "r10", "r11");
	say("connect", "%ld", r < 0 ? -r : 0);
}

static const struct act acts[] = {{"connect", connect_}, {"connect6", connect6}, {"mapped", mapped}, {"refused", refused},
	{"inprogress", inprogress}, {"sendto", sendto_}, {"sendmsg", sendmsg_}, {"sendmmsg", sendmmsg_}, {"raw", raw}, {"udpconnect", udpconnect},
	{"fastopen", fastopen}, {"server", server}, {"unix", unix_}, {"abstract", abstract}, {"passfd", passfd}, {"dns-sendto", dns_sendto},
	{"dns-connected", dns_connected}, {"dns-tcp", dns_tcp}, {"dns-twonames", dns_twonames}, {"dns-hostile", dns_hostile},
	{"badaddr", badaddr}, {"socketcall", socketcall}, {0}};
int main(int argc, char **argv) { return play(acts, argc, argv); }
