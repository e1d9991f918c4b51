// How programs begin.
#include "trig.h"

static char self[PATH_MAX];

static void run(const char *path, char **argv) {
	pid_t p = fork();
	if (p == 0) {
		char *env[] = {"A=b", 0};
		execve(path, argv, env);
		_exit(100 + (errno & 63));
	}
	say("child", "%d", p);
	say("status", "%d", reap(p));
}
static void link_(int c, char **v) {
	must("symlink", symlink(self, "innocent"));
	run("./innocent", (char *[]){"./innocent", "end", 0});
}
static void alias(int c, char **v) { run(self, (char *[]){"innocent", "end", 0}); }
static void args(int c, char **v) { run(self, (char *[]){"", "end", "", "two words", "new\nline", "\xff\xfe", "", 0}); }
static void argc0(int c, char **v) { run(self, (char *[]){0}); }
static void many(int c, char **v) {
	int n = 100000;
	char **a = calloc(n + 3, sizeof *a);
	a[0] = "many";
	a[1] = "end";
	for (int i = 2; i < n; i++) {
		a[i] = malloc(8);
		sprintf(a[i], "%d", i);
	}
	run(self, a);
}
static void big(int c, char **v) { // 13 arguments of 130,000 bytes
	char *b = malloc(130001), *a[16] = {"big", "end"};
	memset(b, 'B', 130000);
	b[130000] = 0;
	for (int i = 2; i < 15; i++) a[i] = b;
	run(self, a);
}
static int copy_self(int to) {
	int from = must("self", open(self, O_RDONLY));
	struct stat st;
	fstat(from, &st);
	char *b = malloc(st.st_size);
	must("read", read(from, b, st.st_size));
	must("write", write(to, b, st.st_size));
	close(from);
	return to;
}
static void execfd(int fd, char **argv) {
	pid_t p = fork();
	if (p == 0) {
		char *env[] = {0};
		syscall(SYS_execveat, fd, "", argv, env, AT_EMPTY_PATH);
		_exit(100 + (errno & 63));
	}
	say("child", "%d", p);
	say("status", "%d", reap(p));
}
static void memfd(int c, char **v) {
	int fd = must("memfd", syscall(SYS_memfd_create, "payload", 1 /* MFD_CLOEXEC */));
	execfd(copy_self(fd), (char *[]){"ghost", "end", 0});
}
static void deleted(int c, char **v) {
	int w = must("create", open("vanishing", O_CREAT | O_WRONLY, 0700));
	copy_self(w);
	close(w);
	int fd = must("open", open("vanishing", O_RDONLY | O_CLOEXEC));
	unlink("vanishing");
	execfd(fd, (char *[]){"vanishing", "end", 0});
}
static void procfd(int c, char **v) {
	char p[64];
	int fd = must("open", open(self, O_RDONLY | O_CLOEXEC));
	snprintf(p, sizeof p, "/proc/self/fd/%d", fd);
	run(p, (char *[]){"viafd", "end", 0});
}
static void execveat_(int c, char **v) {
	mkdir("bin", 0755);
	int w = must("create", open("bin/prog", O_CREAT | O_WRONLY, 0700));
	copy_self(w);
	close(w);
	int d = must("dir", open("bin", O_PATH | O_CLOEXEC));
	pid_t p = fork();
	if (p == 0) {
		syscall(SYS_execveat, d, "prog", (char *[]){"prog", "end", 0}, (char *[]){0}, 0);
		_exit(1);
	}
	say("child", "%d", p);
	say("status", "%d", reap(p));
}
static void script(int c, char **v) {
	char text[PATH_MAX + 64];
	snprintf(text, sizeof text, "#!%s end -o pt\nnothing\n", self);
	fill("script", text);
	chmod("script", 0755);
	run("./script", (char *[]){"script", "arg one", 0});
	must("symlink", symlink("script", "scriptlink"));
	run("./scriptlink", (char *[]){"scriptlink", "two", 0});
}
static void script_fd(int c, char **v) {
	char text[PATH_MAX + 64];
	snprintf(text, sizeof text, "#!%s end\n", self);
	fill("script", text);
	chmod("script", 0755);
	int fd = must("open", open("script", O_RDONLY)); // not close-on-exec: the interpreter opens it through /dev/fd
	execfd(fd, (char *[]){"script", 0});
}
static void nested(int c, char **v) { // a script whose interpreter is a script
	char text[PATH_MAX + 64];
	snprintf(text, sizeof text, "#!%s end\n", self);
	fill("inner", text);
	chmod("inner", 0755);
	fill("outer", "#!./inner\n");
	chmod("outer", 0755);
	run("./outer", (char *[]){"outer", 0});
}
static void failing(int c, char **v) {
	fill("noexec", "#!/bin/sh\n");
	fill("garbage", "garbage");
	chmod("garbage", 0755);
	fill("badinterp", "#!/no/such/interpreter\n");
	chmod("badinterp", 0755);
	run("./missing", (char *[]){"missing", "x y", 0}); // ENOENT
	run("./noexec", (char *[]){"noexec", 0});          // EACCES
	run("./garbage", (char *[]){"garbage", 0});        // ENOEXEC
	run("./badinterp", (char *[]){"badinterp", 0});    // ENOENT
}
static void *texec(void *a) {
	execl(self, "from-thread", "end", (char *)0);
	return 0;
}
static void thread(int c, char **v) {
	pid_t p = fork();
	if (p == 0) {
		pthread_t t;
		pthread_create(&t, 0, texec, 0);
		for (;;) pause();
	}
	say("child", "%d", p);
	say("status", "%d", reap(p));
}
/*
 * A program opens, reads and maps a file, and goes on as another program, which does the same and uses a descriptor that stays open.
 */
static void use_file(void) {
	char b[5];
	for (int i = 0; i < 3; i++) {
		int fd = must("open", open("f", O_RDONLY | O_CLOEXEC));
		must("read", read(fd, b, 5));
		if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) must("mmap", -1);
		close(fd);
	}
}
static void *use_and_exec(void *a) {
	char b[7];
	int fd = must("open", open("f", O_RDONLY));
	must("read", read(fd, b, 7));
	must("dup2", dup2(fd, 200));
	use_file();
	execl(self, "second", "second", (char *)0);
	return 0;
}
static void second(int c, char **v) {
	char b[11];
	must("read", read(200, b, 11));
	use_file();
}
static void as_other(int in_thread) {
	char text[101] = {0};
	memset(text, 'x', 100);
	fill("f", text);
	fflush(0);
	pid_t p = fork();
	if (p == 0) {
		pthread_t t;
		if (!in_thread) use_and_exec(0);
		pthread_create(&t, 0, use_and_exec, 0);
		for (;;) pause();
	}
	say("child", "%d", p);
	say("status", "%d", reap(p));
}
static void folds(int c, char **v) { as_other(0); }
static void folds_thread(int c, char **v) { as_other(1); }
static void connects(int c, char **v) { // attempts that are in progress when another program begins
	struct sockaddr_in a = in4("127.0.0.1", 0);
	socklen_t len = sizeof a;
	int l = must("socket", socket(AF_INET, SOCK_STREAM, 0));
	must("bind", bind(l, (void *)&a, sizeof a));
	must("listen", listen(l, 0));
	getsockname(l, (void *)&a, &len);
	say("port", "%d", ntohs(a.sin_port));
	for (int i = 0; i < 4; i++) // more than the queue has room for
		connect(must("socket", socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), (void *)&a, sizeof a);
	execl(self, "connected", "end", (char *)0);
}
static void go_on(int sig) { execl(self, "handled", "end", (char *)0); }
static void handled(int c, char **v) { // a call is interrupted, and never made again
	must("mkfifo", mkfifo("fifo", 0600));
	struct sigaction sa = {.sa_handler = go_on, .sa_flags = SA_RESTART};
	must("sigaction", sigaction(SIGALRM, &sa, 0));
	struct itimerval in = {.it_value = {0, 50000}};
	must("setitimer", setitimer(ITIMER_REAL, &in, 0));
	open("fifo", O_RDONLY);
	_exit(1);
}
static void vfork_(int c, char **v) {
	pid_t p = vfork();
	if (p == 0) {
		execl(self, "vforked", "end", (char *)0);
		_exit(1);
	}
	say("child", "%d", p);
	say("status", "%d", reap(p));
}
static void chain(int c, char **v) { // one process, three programs
	int n = atoi(v[0]);
	char next[16];
	snprintf(next, sizeof next, "%d", n - 1);
	if (n > 0) execl(self, "chain", "chain", next, (char *)0);
}
static void end(int c, char **v) {}

static const struct act acts[] = {{"link", link_}, {"alias", alias}, {"args", args}, {"argc0", argc0}, {"many", many}, {"big", big},
	{"memfd", memfd}, {"deleted", deleted}, {"procfd", procfd}, {"execveat", execveat_}, {"script", script}, {"script-fd", script_fd}, {"nested", nested}, {"failing", failing},
	{"thread", thread}, {"folds", folds}, {"folds-thread", folds_thread}, {"second", second}, {"connects", connects}, {"handled", handled}, {"vfork", vfork_}, {"chain", chain}, {"end", end}, {0}};
int main(int argc, char **argv) {
	if (argc == 0 || !argv[0][0] && argc == 1) return 0; // argc0: started with nothing
	if (argc > 1 && !strncmp(argv[1], "end", 3)) return 0;
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	self[n > 0 ? n : 0] = 0;
	return play(acts, argc, argv);
}
