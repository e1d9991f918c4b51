// A hostile second thread or process. The program knows the truth and says it at the end.
#include "trig.h"

static volatile int *stop; // in memory that processes share
static char *name;
static int benign, target;

// rival runs f beside the act: in a thread, or in a process that shares memory or descriptors only.
static pthread_t thread;
static pid_t rival_pid;
static void rival(const char *how, void *(*f)(void *)) {
	if (!strcmp(how, "process")) {
		rival_pid = must("clone", syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0));
		if (rival_pid == 0) {
			f(0);
			_exit(0);
		}
	} else
		pthread_create(&thread, 0, f, 0);
}
static void end_rival(void) {
	*stop = 1;
	if (rival_pid)
		reap(rival_pid);
	else
		pthread_join(thread, 0);
}

static void *flip(void *a) {
	while (!*stop) {
		name[0] = 'A';
		for (volatile int i = 0; i < 60; i++);
		name[0] = 'B';
		for (volatile int i = 0; i < 60; i++);
	}
	return 0;
}
static void open_(int c, char **v) { // the path changes while it is being opened
	struct stat sa, sb, st;
	int n = atoi(v[0]), a = 0, b = 0;
	touch("A-file");
	touch("B-file");
	stat("A-file", &sa);
	stat("B-file", &sb);
	strcpy(name, "A-file");
	rival(v[1], flip);
	for (int i = 0; i < n; i++) {
		int fd = open(name, O_RDONLY);
		fstat(fd, &st);
		a += st.st_ino == sa.st_ino;
		b += st.st_ino == sb.st_ino;
		close(fd);
	}
	end_rival();
	say("a", "%d", a);
	say("b", "%d", b);
}
static void rename_(int c, char **v) {
	int n = atoi(v[0]), a = 0, b = 0, failed = 0;
	touch("A-file");
	touch("B-file");
	strcpy(name, "A-file");
	rival(v[1], flip);
	for (int i = 0; i < n; i++) {
		if (rename(name, "dst")) {
			failed++;
			continue;
		}
		if (access("A-file", F_OK)) {
			a++;
			rename("dst", "A-file");
		} else {
			b++;
			rename("dst", "B-file");
		}
	}
	end_rival();
	say("a", "%d", a);
	say("b", "%d", b);
	say("failed", "%d", failed);
}
static void *turner(void *a) { // the link on the way leads now here, now there
	while (!*stop) {
		symlink("A", "next");
		rename("next", "way");
		symlink("B", "next");
		rename("next", "way");
	}
	return 0;
}
static void ways(int c, char **v) {
	int n = atoi(v[0]), a = 0, b = 0, failed = 0;
	mkdir("A", 0755);
	mkdir("B", 0755);
	touch("A/f");
	touch("B/f");
	symlink("A", "way");
	rival(v[1], turner);
	for (int i = 0; i < n; i++) {
		if (rename("way/f", "dst")) {
			failed++;
			continue;
		}
		if (access("A/f", F_OK)) {
			a++;
			rename("dst", "A/f");
		} else {
			b++;
			rename("dst", "B/f");
		}
	}
	end_rival();
	say("a", "%d", a);
	say("b", "%d", b);
	say("failed", "%d", failed);
}
static void *dupper(void *a) {
	while (!*stop) dup2(benign, target);
	return 0;
}
static void *closer(void *a) {
	while (!*stop) close(target);
	return 0;
}
static void swap(int c, char **v, void *(*f)(void *)) { // the new descriptor is replaced or closed at once
	int n = atoi(v[0]), ok = 0;
	touch("secret-file");
	benign = must("benign", open("benign-file", O_CREAT | O_RDWR, 0600));
	target = must("secret", open("secret-file", O_RDONLY));
	close(target);
	rival(v[1], f);
	for (int i = 0; i < n; i++) {
		close(target);
		int fd = open("secret-file", O_RDONLY);
		ok += fd >= 0;
		if (fd >= 0 && fd != target) close(fd);
	}
	end_rival();
	say("opened", "%d", ok + 1);
}
static void dup2_(int c, char **v) { swap(c, v, dupper); }
static void close_(int c, char **v) { swap(c, v, closer); }
static struct sockaddr_in *to;
static void *flip_address(void *a) {
	while (!*stop) {
		((char *)&to->sin_addr)[3] = 65;
		for (volatile int i = 0; i < 60; i++);
		((char *)&to->sin_addr)[3] = 66;
		for (volatile int i = 0; i < 60; i++);
	}
	return 0;
}
static void connect_(int c, char **v) { // the address changes while it is being connected to
	int n = atoi(v[0]), to1 = 0, to2 = 0;
	*to = in4("127.0.0.65", 9);
	rival(v[1], flip_address);
	for (int i = 0; i < n; i++) {
		int s = socket(AF_INET, SOCK_DGRAM, 0);
		struct sockaddr_in p;
		socklen_t l = sizeof p;
		if (connect(s, (void *)to, sizeof *to) == 0 && getpeername(s, (void *)&p, &l) == 0) {
			to1 += ((unsigned char *)&p.sin_addr)[3] == 65;
			to2 += ((unsigned char *)&p.sin_addr)[3] == 66;
		}
		close(s);
	}
	end_rival();
	say("a", "%d", to1);
	say("b", "%d", to2);
}

static const struct act acts[] = {{"open", open_}, {"rename", rename_}, {"ways", ways}, {"dup2", dup2_}, {"close", close_}, {"connect", connect_}, {0}};
int main(int argc, char **argv) {
	char *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	stop = (int *)shared;
	name = shared + 64;
	to = (void *)(shared + 128);
	return play(acts, argc, argv);
}
