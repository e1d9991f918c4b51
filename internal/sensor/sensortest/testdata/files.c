// How files are named and reached.
#include "trig.h"
#include <linux/io_uring.h>
#include <sys/fsuid.h>

static void dirfd_(int c, char **v) {
	mkdir("other", 0755);
	touch("other/f");
	touch("f");
	int d = must("dir", open("other", O_RDONLY | O_DIRECTORY));
	out("open", openat(d, "f", O_RDONLY));
}
static void dirfd_up(int c, char **v) {
	mkdir("a", 0755);
	mkdir("a/b", 0755);
	touch("a/f");
	int d = must("dir", open("a/b", O_PATH | O_DIRECTORY));
	out("open", openat(d, "../f", O_RDONLY));
}
static void dirfd_moved(int c, char **v) {
	mkdir("before", 0755);
	touch("before/f");
	int d = must("dir", open("before", O_RDONLY | O_DIRECTORY));
	must("rename", rename("before", "after"));
	out("open", openat(d, "f", O_RDONLY));
}
static void chdir_(int c, char **v) {
	mkdir("in", 0755);
	touch("in/f");
	must("chdir", chdir("in"));
	out("open", open("f", O_RDONLY));
	int d = must("dir", open("..", O_RDONLY));
	must("fchdir", fchdir(d));
	out("open", open("in/./f", O_RDONLY));
}
static void selfroot(int c, char **v) {
	char cwd[4096], p[8192];
	fill("key", "secret");
	getcwd(cwd, sizeof cwd);
	snprintf(p, sizeof p, "/proc/self/root%s/key", cwd);
	say("given", "%s", p);
	out("open", open(p, O_RDONLY));
}
static void selfcwd(int c, char **v) {
	touch("key");
	out("open", open("/proc/self/cwd/key", O_RDONLY));
}
static void dotdot(int c, char **v) {
	mkdir("a", 0755);
	mkdir("a/b", 0755);
	touch("a/f");
	touch("f");
	symlink("a/b", "l");
	out("open", open("l/../f", O_RDONLY)); // a/f, not f
}
static void symlinks(int c, char **v) {
	touch("target");
	symlink("target", "l1");
	symlink("l1", "l2");
	out("open", open("l2", O_RDONLY));
	out("nofollow", open("l2", O_RDONLY | O_NOFOLLOW));
	symlink("loop", "loop");
	out("loop", open("loop", O_RDONLY));
}
static void reopen(int c, char **v) {
	char p[64];
	fill("f", "x");
	int fd = must("opath", open("f", O_PATH));
	snprintf(p, sizeof p, "/proc/self/fd/%d", fd);
	out("open", open(p, O_RDWR));
}
static void viafd(int c, char **v) {
	char a[64], b[64];
	mkdir("in", 0755);
	int fd = must("dir", open("in", O_PATH | O_DIRECTORY));
	snprintf(a, sizeof a, "/proc/self/fd/%d/a", fd);
	snprintf(b, sizeof b, "/proc/self/fd/%d/./b", fd);
	out("none", open(a, O_RDONLY));
	fill(a, "x");
	out("rename", rename(a, b));
	snprintf(a, sizeof a, "/proc/self/fd/%d/sub", fd);
	out("mkdir", mkdir(a, 0755));
	out("unlink", unlink(b));
}
static void deleted(int c, char **v) {
	char p[64];
	int fd = must("open", open("gone", O_CREAT | O_RDWR, 0600));
	unlink("gone");
	snprintf(p, sizeof p, "/proc/self/fd/%d", fd);
	out("open", open(p, O_RDONLY));
	touch("honest (deleted)");
	out("honest", open("honest (deleted)", O_RDONLY));
}
static void openat2_(int c, char **v) {
	mkdir("in", 0755);
	touch("in/f");
	int d = must("dir", open("in", O_RDONLY | O_DIRECTORY));
	struct open_how how = {.flags = O_RDONLY, .resolve = RESOLVE_IN_ROOT};
	out("inroot", syscall(SYS_openat2, d, "/../f", &how, sizeof how));
	how.resolve = RESOLVE_BENEATH;
	out("beneath", syscall(SYS_openat2, d, "../in/f", &how, sizeof how)); // EXDEV
}
static void tmpfile_(int c, char **v) {
	int fd = out("open", open(".", O_TMPFILE | O_RDWR, 0600));
	char p[64];
	snprintf(p, sizeof p, "/proc/self/fd/%d", fd);
	out("link", linkat(AT_FDCWD, p, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
}
static void opath(int c, char **v) {
	touch("f");
	out("open", open("f", O_PATH));
}
static void handle(int c, char **v) {
	struct {
		struct file_handle h;
		char room[128];
	} fh = {.h.handle_bytes = 128};
	int mid;
	fill("f", "secret");
	int d = must("dir", open(".", O_RDONLY | O_DIRECTORY));
	must("name_to_handle_at", name_to_handle_at(AT_FDCWD, "f", &fh.h, &mid, 0));
	out("open", open_by_handle_at(d, &fh.h, O_RDONLY));
}
static void inode_flags(int c, char **v) {
	fill("f", "x");
	int fd = must("open", open("f", O_RDWR)), flags = 0x80; // FS_NOATIME_FL
	out("setflags", ioctl(fd, 0x40086602 /* FS_IOC_SETFLAGS */, &flags));
	out("fallocate", fallocate(fd, 0, 10, 20));
	uint64_t attr[3] = {0x40}; // FS_XFLAG_NOATIME
	out("file_setattr", syscall(469, AT_FDCWD, "f", attr, sizeof attr, 0));
}
static void memfd(int c, char **v) {
	out("create", syscall(SYS_memfd_create, "innocent", 0));
}
static void names(int c, char **v) {
	static const char *odd[] = {"new\nline", "comma,name", "\xff\xfe", "quote\"'\\", "\x1b[31mred", "tab\tname",
		"  spaces  ", "=", "-rf", "\\x41", "\xe2\x80\xae" "txt.exe", 0};
	for (const char **p = odd; *p; p++) out("open", open(*p, O_CREAT | O_WRONLY, 0600));
	char longest[256];
	memset(longest, 'n', 255);
	longest[255] = 0;
	out("open", open(longest, O_CREAT | O_WRONLY, 0600));
	char toolong[300];
	memset(toolong, 'm', 299);
	toolong[299] = 0;
	out("toolong", open(toolong, O_CREAT | O_WRONLY, 0600));
}
static void deep(int c, char **v) {
	char n[201];
	int home = must("home", open(".", O_RDONLY | O_DIRECTORY)); // so that the clean-up can find its way
	for (int i = 0; i < 30; i++) {
		memset(n, 'a' + i % 26, 200);
		n[200] = 0;
		must("mkdir", mkdir(n, 0755));
		must("chdir", chdir(n));
	}
	out("open", open("deepest", O_CREAT | O_WRONLY, 0600));
	out("rename", rename("deepest", "moved"));
	char *argv[] = {"true", 0};
	if (!fork()) execv("/bin/true", argv), _exit(9);
	wait(0);
}
static void int80(int c, char **v) {
	touch("f32");
	char *lo = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	strcpy(lo, "f32");
	long r;
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(5), "b"(lo), "c"(O_RDONLY), "d"(0) : "memory", "r8", "r9", "r10", "r11");
	say("open", "%ld", r < 0 ? -r : 0);
	strcpy(lo, "f32new");
	strcpy(lo + 64, "f32");
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(38), "b"(lo + 64), "c"(lo), "d"(0) : "memory", "r8", "r9", "r10", "r11");
	say("rename", "%ld", r < 0 ? -r : 0);
}
static void x32(int c, char **v) {
	touch("fx32");
	out("open", syscall(0x40000000 | SYS_open, "fx32", O_RDONLY, 0));
}

// io_uring by hand, so that no library is needed.
struct ring {
	int fd;
	unsigned *sqtail, *sqarr, *cqhead, *cqtail;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
};
static int ring_open(struct ring *r) {
	struct io_uring_params p = {0};
	r->fd = syscall(SYS_io_uring_setup, 4, &p);
	if (r->fd < 0) return -1;
	size_t sq = p.sq_off.array + p.sq_entries * 4, cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
	char *s = mmap(0, sq, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
	char *q = mmap(0, cq, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_CQ_RING);
	r->sqes = mmap(0, p.sq_entries * sizeof *r->sqes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQES);
	r->sqtail = (unsigned *)(s + p.sq_off.tail);
	r->sqarr = (unsigned *)(s + p.sq_off.array);
	r->cqhead = (unsigned *)(q + p.cq_off.head);
	r->cqtail = (unsigned *)(q + p.cq_off.tail);
	r->cqes = (struct io_uring_cqe *)(q + p.cq_off.cqes);
	return 0;
}
static int ring_run(struct ring *r, struct io_uring_sqe e) {
	r->sqes[0] = e;
	r->sqarr[*r->sqtail & 3] = 0;
	__atomic_store_n(r->sqtail, *r->sqtail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) < 0) return -errno;
	unsigned h = *r->cqhead;
	int res = r->cqes[h & 7].res;
	__atomic_store_n(r->cqhead, h + 1, __ATOMIC_RELEASE);
	return res;
}
static void uring(int c, char **v) {
	struct ring r;
	mkdir("in", 0755);
	fill("in/key", "secret");
	int d = must("dir", open("in", O_RDONLY | O_DIRECTORY));
	if (out("setup", ring_open(&r)) < 0) return;
	int res = ring_run(&r, (struct io_uring_sqe){.opcode = IORING_OP_OPENAT, .fd = d, .addr = (uintptr_t)"key", .open_flags = O_RDONLY});
	say("open", "%d", res < 0 ? -res : 0);
}
static void uring_connect(int c, char **v) {
	struct ring r;
	struct sockaddr_in a = in4("127.0.0.1", atoi(v[0]));
	int s = must("socket", socket(AF_INET, SOCK_STREAM, 0));
	if (out("setup", ring_open(&r)) < 0) return;
	int res = ring_run(&r, (struct io_uring_sqe){.opcode = IORING_OP_CONNECT, .fd = s, .addr = (uintptr_t)&a, .off = sizeof a});
	say("connect", "%d", res < 0 ? -res : 0);
}
static void uring_unlink(int c, char **v) {
	struct ring r;
	touch("victim");
	if (out("setup", ring_open(&r)) < 0) return;
	int res = ring_run(&r, (struct io_uring_sqe){.opcode = IORING_OP_UNLINKAT, .fd = AT_FDCWD, .addr = (uintptr_t)"victim"});
	say("unlink", "%d", res < 0 ? -res : 0);
}

static void outcomes(int c, char **v) {
	touch("plain");
	mkdir("adir", 0755);
	touch("locked");
	chmod("locked", 0);
	if (geteuid() == 0) { // root opens everything: give the locked file a reader without power
		setfsgid(65534);
		setfsuid(65534);
	}
	out("eacces", open("locked", O_RDONLY));
	out("enoent", open("missing", O_RDONLY));
	out("enoentdir", open("missing/x", O_RDONLY));
	out("enotdir", open("plain/x", O_RDONLY));
	out("eisdir", open("adir", O_WRONLY));
	out("eexist", open("plain", O_CREAT | O_EXCL | O_WRONLY, 0600));
	out("efault", open((char *)8, O_RDONLY));
	out("ebadf", openat(999, "relative", O_RDONLY));
}
static void emfile(int c, char **v) {
	fill("f", "x");
	for (int i = 3; i < 64; i++) close(i);
	struct rlimit_ { unsigned long a, b; } rl = {3, 3};
	must("prlimit", syscall(SYS_prlimit64, 0, 7, &rl, 0));
	out("open", open("f", O_RDONLY));
}

static void on_alarm(int n) {}
static void interrupted(int c, char **v) { // a call that a signal breaks into: restarted it is one call
	struct itimerval soon = {.it_value = {0, 50000}};
	struct sigaction sa = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	mkfifo("fifo", 0600);
	pid_t p = fork();
	if (p == 0) {
		usleep(200000);
		open("fifo", O_WRONLY);
		_exit(0);
	}
	sigaction(SIGALRM, &sa, 0);
	setitimer(ITIMER_REAL, &soon, 0);
	out("restarted", open("fifo", O_RDONLY));
	reap(p);
	sa.sa_flags = 0;
	sigaction(SIGALRM, &sa, 0);
	mkfifo("fifo2", 0600);
	setitimer(ITIMER_REAL, &soon, 0);
	out("eintr", open("fifo2", O_RDONLY));
	touch("after");
}

static void later(int c, char **v) { // the same again after more than a second
	char b[4];
	fill("f", "0123456789");
	for (int i = 0; i < 4; i++) {
		int fd = must("open", open("f", O_RDONLY));
		must("read", read(fd, b, i + 1));
		close(fd);
		if (i % 2) usleep(1200000);
	}
}

static const struct act acts[] = {{"later", later}, {"dirfd", dirfd_}, {"dirfd-up", dirfd_up}, {"dirfd-moved", dirfd_moved}, {"chdir", chdir_},
	{"selfroot", selfroot}, {"selfcwd", selfcwd}, {"dotdot", dotdot}, {"symlinks", symlinks}, {"reopen", reopen}, {"viafd", viafd},
	{"deleted", deleted}, {"openat2", openat2_}, {"tmpfile", tmpfile_}, {"opath", opath}, {"handle", handle}, {"memfd", memfd}, {"inode-flags", inode_flags},
	{"names", names}, {"deep", deep}, {"int80", int80}, {"x32", x32}, {"uring", uring}, {"uring-connect", uring_connect},
	{"uring-unlink", uring_unlink}, {"outcomes", outcomes}, {"emfile", emfile}, {"interrupted", interrupted}, {0}};
int main(int argc, char **argv) { return play(acts, argc, argv); }
