// How processes come, go and hide.
#include "trig.h"
#include <sys/ioctl.h>

static void storm(int c, char **v) {
	int n = atoi(v[0]), bad = 0;
	for (int i = 0; i < n; i++) {
		pid_t p = fork();
		if (p == 0) {
			execl("/bin/true", "true", (char *)0);
			_exit(1);
		}
		bad += reap(p) != 0;
	}
	say("bad", "%d", bad);
}
static void orphan(int c, char **v) {
	pid_t p = fork();
	if (p == 0) {
		pid_t q = fork();
		if (q == 0) {
			while (getppid() == p) usleep(1000);
			usleep(50000);
			touch("from-orphan");
			_exit(7);
		}
		say("grandchild", "%d", q);
		_exit(0);
	}
	say("child", "%d", p);
	reap(p);
}
static void daemon_(int c, char **v) { // outlives the program
	pid_t p = fork();
	if (p == 0) {
		setsid();
		pid_t q = fork();
		if (q) _exit(0);
		say("daemon", "%d", getpid());
		close(0);
		close(1);
		close(2);
		usleep(300000);
		touch("from-daemon");
		_exit(0);
	}
	reap(p);
}
static void tree(int c, char **v) {
	int n = atoi(v[0]);
	if (n == 0) {
		touch("leaf");
		return;
	}
	pid_t p = fork();
	if (p == 0) {
		char *a[] = {0};
		char next[16];
		snprintf(next, sizeof next, "%d", n - 1);
		tree(1, (char *[]){next});
		_exit(0);
	}
	say("depth", "%d", n);
	reap(p);
}
static void *topen(void *a) {
	say("tid", "%ld", syscall(SYS_gettid));
	out("open", open("from-thread", O_CREAT | O_WRONLY, 0600));
	return 0;
}
static void threads(int c, char **v) {
	pthread_t t;
	pthread_create(&t, 0, topen, 0);
	pthread_join(t, 0);
}
static void *outlive(void *a) {
	usleep(100000);
	touch("after-leader");
	_exit(5);
}
static void leaderless(int c, char **v) {
	pid_t p = fork();
	if (p == 0) {
		pthread_t t;
		pthread_create(&t, 0, outlive, 0);
		syscall(SYS_exit, 0); // the leader alone
	}
	say("child", "%d", p);
	say("status", "%d", reap(p));
}
static void clone3_(int c, char **v) {
	struct clone_args a = {.exit_signal = SIGCHLD};
	long p = syscall(SYS_clone3, &a, sizeof a);
	if (p == 0) {
		touch("from-clone3");
		_exit(0);
	}
	out("clone3", p);
	if (p > 0) {
		say("child", "%ld", p);
		reap(p);
	}
}
static void untraced(int c, char **v) { // asks not to be followed
	long p = syscall(SYS_clone, 0x00800000 /* CLONE_UNTRACED */ | SIGCHLD, 0, 0, 0, 0);
	if (p == 0) {
		touch("from-untraced");
		_exit(0);
	}
	out("clone", p);
	if (p > 0) reap(p);
}
static void untraced3(int c, char **v) {
	struct clone_args a = {.flags = 0x00800000, .exit_signal = SIGCHLD};
	long p = syscall(SYS_clone3, &a, sizeof a);
	if (p == 0) {
		int fd = open("from-untraced", O_CREAT | O_WRONLY, 0600);
		_exit(fd < 0);
	}
	out("clone3", p);
	if (p > 0) say("status", "%d", reap(p));
}
static void cloneparent(int c, char **v) { // the child seems to be its grandparent's
	pid_t p = fork();
	if (p == 0) {
		long q = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
		if (q == 0) _exit(0);
		say("sibling", "%ld", q);
		_exit(0);
	}
	say("child", "%d", p);
	while (wait(0) > 0);
}
static void reuse(int c, char **v) { // two processes with one pid
	pid_t p = fork();
	if (p == 0) {
		touch("first");
		_exit(1);
	}
	say("child", "%d", p);
	reap(p);
	usleep(30000);
	pid_t set[1] = {p};
	struct clone_args a = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)set, .set_tid_size = 1};
	long q = syscall(SYS_clone3, &a, sizeof a);
	if (q == 0) {
		touch("second");
		_exit(2);
	}
	out("again", q);
	if (q > 0) reap(q);
}
static void killed(int c, char **v) {
	pid_t p = fork();
	if (p == 0)
		for (;;) pause();
	say("child", "%d", p);
	out("kill", kill(p, SIGKILL));
	reap(p);
}
static void selfsignal(int c, char **v) {
	pid_t p = fork();
	if (p == 0) {
		*(volatile int *)0 = 0;
		_exit(0);
	}
	say("child", "%d", p);
	reap(p);
}
static void stopped(int c, char **v) { // job control must go on working
	pid_t p = fork();
	int st;
	if (p == 0) {
		raise(SIGSTOP);
		touch("continued");
		_exit(3);
	}
	must("wait", waitpid(p, &st, WUNTRACED));
	say("stopped", "%d", WIFSTOPPED(st));
	kill(p, SIGCONT);
	say("status", "%d", reap(p));
}
static void recorder(int c, char **v) { // harmless, but aimed at the recorder
	out("kill", kill(atoi(v[0]), SIGURG));
}
static void tracer(int c, char **v) {
	pid_t p = fork();
	if (p == 0)
		for (;;) pause();
	say("child", "%d", p);
	out("seize", ptrace(PTRACE_SEIZE, p, 0, 0));
	char b[8] = "bytes";
	static char target[8];
	struct iovec l = {b, 5}, r = {target, 5};
	out("writev", process_vm_writev(p, &l, 1, &r, 1, 0));
	out("readv", process_vm_readv(p, &l, 1, &r, 1, 0));
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/mem", p);
	out("mem", open(path, O_RDWR));
	kill(p, SIGKILL);
	reap(p);
}
static void traceme(int c, char **v) {
	pid_t p = fork();
	if (p == 0) {
		out("traceme", ptrace(PTRACE_TRACEME, 0, 0, 0));
		_exit(0);
	}
	say("child", "%d", p);
	int st;
	while (waitpid(p, &st, 0) == p && !WIFEXITED(st) && !WIFSIGNALED(st)) ptrace(PTRACE_CONT, p, 0, 0);
}
static void setuid_(int c, char **v) {
	pid_t p = fork();
	if (p == 0) {
		out("setresgid", setresgid(4321, 4321, 4321));
		out("setresuid", setresuid(1234, 1234, 1234));
		out("open", open("as-other", O_RDONLY));
		_exit(0);
	}
	say("child", "%d", p);
	reap(p);
}
static void folds_setuid(int c, char **v) { // the same opens before and after
	touch("f");
	pid_t p = fork();
	if (p == 0) {
		for (int i = 0; i < 3; i++) close(must("open", open("f", O_RDONLY)));
		out("setresgid", setresgid(4321, 4321, 4321));
		for (int i = 0; i < 2; i++) close(must("open", open("f", O_RDONLY)));
		out("setresuid", setresuid(1234, 1234, 1234));
		for (int i = 0; i < 4; i++) close(must("open", open("f", O_RDONLY)));
		_exit(0);
	}
	say("child", "%d", p);
	reap(p);
}
static void dumpable(int c, char **v) {
	pid_t p = fork();
	if (p == 0) {
		out("prctl", prctl(PR_SET_DUMPABLE, 0));
		out("open", open("hidden", O_CREAT | O_WRONLY, 0600));
		out("rename", rename("hidden", "hidden2"));
		_exit(0);
	}
	say("child", "%d", p);
	reap(p);
}
static void comm(int c, char **v) {
	prctl(PR_SET_NAME, "kworker/0:1");
	out("open", open("by-kworker", O_CREAT | O_WRONLY, 0600));
}
static void pidfd(int c, char **v) {
	fill("key", "secret");
	int fd = must("open", open("key", O_RDONLY));
	pid_t p = fork();
	if (p == 0)
		for (;;) pause();
	close(fd);
	int pf = must("pidfd_open", syscall(SYS_pidfd_open, p, 0));
	say("child", "%d", p);
	out("getfd", syscall(SYS_pidfd_getfd, pf, fd, 0));
	out("signal", syscall(SYS_pidfd_send_signal, pf, SIGKILL, 0, 0));
	reap(p);
}
static void closerange(int c, char **v) {
	fill("f", "x");
	int fd = must("open", open("f", O_RDONLY));
	int d = must("dup2", dup2(fd, 20));
	(void)d;
	out("close_range", syscall(SYS_close_range, 3, 30, 0));
	out("open", open("f", O_RDONLY));
}
static void preload(int c, char **v) { say("preloaded", "%s", getenv("LD_PRELOAD") ? "yes" : "no"); }
static volatile int listener = -1;
static void *wave(void *a) { // answers every notification with "go on": past a tracer whose filter is the elder
	uint64_t n[10], r[3];
	while (listener < 0) usleep(100);
	for (;;) {
		memset(n, 0, sizeof n);
		if (ioctl(listener, 0xc0502100, n)) return 0;
		r[0] = n[0];
		r[1] = 0;
		r[2] = (uint64_t)1 << 32; // error 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE
		ioctl(listener, 0xc0182101, r);
	}
}
static void seccomp_hide(int c, char **v) {
	struct f { unsigned short code; unsigned char jt, jf; unsigned int k; } prog[] = {
		{0x20, 0, 0, 0}, {0x15, 0, 1, SYS_openat}, {6, 0, 0, 0x7fc00000}, {6, 0, 0, 0x7fff0000}};
	struct { unsigned short n; struct f *p; } fp = {4, prog};
	pthread_t t;
	pthread_create(&t, 0, wave, 0);
	must("nnp", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	int l = out("listener", syscall(SYS_seccomp, 1, 8 /* NEW_LISTENER */, &fp));
	listener = l;
	out("open", open("past-listener", O_CREAT | O_WRONLY, 0600));
	_exit(0);
}

static void ipc(int c, char **v) {
	struct { long type; char text[8]; } m = {1, "secret"};
	int msg = out("msgget", syscall(SYS_msgget, 0, 0600)); // IPC_PRIVATE
	say("msg", "%d", msg);
	out("msgsnd", syscall(SYS_msgsnd, msg, &m, 7, 0));
	out("msgrcv", syscall(SYS_msgrcv, msg, &m, 8, 0, 0));
	syscall(SYS_msgctl, msg, 0, 0);
	int sem = out("semget", syscall(SYS_semget, 0, 1, 0600));
	say("sem", "%d", sem);
	short op[3] = {0, 1, 0};
	out("semop", syscall(SYS_semop, sem, op, 1));
	syscall(SYS_semctl, sem, 0, 0);
	int q = out("mq_open", syscall(SYS_mq_open, "sensortest", O_CREAT | O_RDWR, 0600, 0));
	char buf[8192];
	out("mq_send", syscall(SYS_mq_timedsend, q, "hello", 5, 0, 0));
	out("mq_receive", syscall(SYS_mq_timedreceive, q, buf, sizeof buf, 0, 0));
	out("mq_unlink", syscall(SYS_mq_unlink, "sensortest"));
	int shm = out("shmget", syscall(SYS_shmget, 0x5eed, 4096, 0600 | 01000 /* IPC_CREAT */));
	say("shm", "%d", shm);
	out("shmat", syscall(SYS_shmat, shm, 0, 0));
	syscall(SYS_shmctl, shm, 0 /* IPC_RMID */, 0);
}
static void refused(int c, char **v) {
	out("swapon", syscall(SYS_swapon, "/nowhere", 0));
	out("quotactl", syscall(SYS_quotactl, 0xffffff, "/nowhere", 0, 0));
	out("x32", syscall(0x40000000 | SYS_getpid));
	char line[8] = "x";
	out("tiocsti", ioctl(1, 0x5412, line)); // stdout is a pipe
}
static void sockets(int c, char **v) {
	out("raw", socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, 1));
	out("packet", socket(AF_PACKET, SOCK_DGRAM, 0x300));
	out("nothing", socket(45, SOCK_STREAM, 0));
	out("netlink", socket(AF_NETLINK, SOCK_RAW, 0));
	out("stream", socket(AF_INET, SOCK_STREAM, 0));
}

static const struct act acts[] = {{"storm", storm}, {"orphan", orphan}, {"daemon", daemon_}, {"tree", tree}, {"threads", threads},
	{"leaderless", leaderless}, {"clone3", clone3_}, {"untraced", untraced}, {"untraced3", untraced3}, {"cloneparent", cloneparent},
	{"reuse", reuse}, {"killed", killed}, {"selfsignal", selfsignal}, {"stopped", stopped}, {"recorder", recorder}, {"tracer", tracer},
	{"traceme", traceme}, {"setuid", setuid_}, {"folds-setuid", folds_setuid}, {"dumpable", dumpable}, {"comm", comm}, {"pidfd", pidfd}, {"closerange", closerange},
	{"preload", preload}, {"seccomp-hide", seccomp_hide}, {"ipc", ipc}, {"sockets", sockets}, {"refused", refused}, {0}};
int main(int argc, char **argv) { return play(acts, argc, argv); }
