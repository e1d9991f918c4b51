// Shared by the trigger programs: each runs one named act in the current directory and prints what it knows of
// itself as key=value lines, which the suite holds the record against.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <linux/openat2.h>
#include <linux/sched.h>

extern char **environ;

static void say(const char *key, const char *fmt, ...) {
	char buf[512];
	int n = snprintf(buf, sizeof buf, "%s=", key);
	va_list ap;
	va_start(ap, fmt);
	n += vsnprintf(buf + n, sizeof buf - n - 1, fmt, ap);
	va_end(ap);
	buf[n++] = '\n';
	if (write(1, buf, n) != n) _exit(98);
}

// out reports a call's outcome as its errno and hands its result on.
static long out(const char *key, long r) {
	say(key, "%d", r < 0 ? errno : 0);
	return r;
}

// must ends the program when a step that the case rests on failed.
static long must(const char *what, long r) {
	if (r < 0) {
		say("broken", "%s: %s", what, strerror(errno));
		_exit(97);
	}
	return r;
}

static void touch(const char *path) { close(must(path, open(path, O_CREAT | O_WRONLY, 0644))); }

static void fill(const char *path, const char *text) {
	int fd = must(path, open(path, O_CREAT | O_WRONLY, 0644));
	must("write", write(fd, text, strlen(text)));
	close(fd);
}

static int reap(pid_t pid) {
	int st = 0;
	while (waitpid(pid, &st, 0) < 0 && errno == EINTR);
	return st;
}

static struct sockaddr_in in4(const char *ip, int port) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	inet_pton(AF_INET, ip, &a.sin_addr);
	return a;
}

struct act {
	const char *name;
	void (*run)(int argc, char **argv);
};

static int play(const struct act *acts, int argc, char **argv) {
	say("pid", "%d", getpid());
	for (; acts->name; acts++)
		if (argc > 1 && !strcmp(acts->name, argv[1])) {
			acts->run(argc - 2, argv + 2);
			return 0;
		}
	say("broken", "no such act: %s", argc > 1 ? argv[1] : "");
	return 99;
}
