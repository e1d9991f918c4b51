// A hostile second thread. The program knows the truth and says it at the end.
#include "trig.h"

static volatile int stop;
static char name[16];
static int benign, target;

static void *flip(void *a) {
	while (!stop) {
		name[0] = 'A';
		for (volatile int i = 0; i < 60; i++);
		name[0] = 'B';
		for (volatile int i = 0; i < 60; i++);
	}
	return 0;
}
static void open_(int c, char **v) { // the path changes while it is being opened
	pthread_t t;
	struct stat sa, sb, st;
	int n = atoi(v[0]), a = 0, b = 0;
	touch("A-file");
	touch("B-file");
	stat("A-file", &sa);
	stat("B-file", &sb);
	strcpy(name, "A-file");
	pthread_create(&t, 0, flip, 0);
	for (int i = 0; i < n; i++) {
		int fd = open(name, O_RDONLY);
		fstat(fd, &st);
		a += st.st_ino == sa.st_ino;
		b += st.st_ino == sb.st_ino;
		close(fd);
	}
	stop = 1;
	pthread_join(t, 0);
	say("a", "%d", a);
	say("b", "%d", b);
}
static void rename_(int c, char **v) {
	pthread_t t;
	int n = atoi(v[0]), a = 0, b = 0, failed = 0;
	touch("A-file");
	touch("B-file");
	strcpy(name, "A-file");
	pthread_create(&t, 0, flip, 0);
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
	stop = 1;
	pthread_join(t, 0);
	say("a", "%d", a);
	say("b", "%d", b);
	say("failed", "%d", failed);
}
static void *dupper(void *a) {
	while (!stop) dup2(benign, target);
	return 0;
}
static void *closer(void *a) {
	while (!stop) close(target);
	return 0;
}
static void swap(int c, char **v, void *(*f)(void *)) { // the new descriptor is replaced or closed at once
	pthread_t t;
	int n = atoi(v[0]), ok = 0;
	touch("secret-file");
	benign = must("benign", open("benign-file", O_CREAT | O_RDWR, 0600));
	target = must("secret", open("secret-file", O_RDONLY));
	close(target);
	pthread_create(&t, 0, f, 0);
	for (int i = 0; i < n; i++) {
		close(target);
		int fd = open("secret-file", O_RDONLY);
		ok += fd >= 0;
		if (fd >= 0 && fd != target) close(fd);
	}
	stop = 1;
	pthread_join(t, 0);
	say("opened", "%d", ok + 1);
}
static void dup2_(int c, char **v) { swap(c, v, dupper); }
static void close_(int c, char **v) { swap(c, v, closer); }
static void connect_(int c, char **v) { // the address changes while it is being connected to
	pthread_t t;
	int n = atoi(v[0]), to1 = 0, to2 = 0;
	static struct sockaddr_in a;
	a = in4("127.0.0.65", atoi(v[1])); // 'A'; the thread makes it 66, 'B'
	pthread_t t2;
	pthread_create(&t, 0, ({ void *f(void *x) { char *p = (char *)&a.sin_addr + 3; while (!stop) { *p = 65; for (volatile int i = 0; i < 60; i++); *p = 66; for (volatile int i = 0; i < 60; i++); } return 0; } f; }), 0);
	for (int i = 0; i < n; i++) {
		int s = socket(AF_INET, SOCK_DGRAM, 0);
		struct sockaddr_in p;
		socklen_t l = sizeof p;
		if (connect(s, (void *)&a, sizeof a) == 0 && getpeername(s, (void *)&p, &l) == 0) {
			to1 += ((unsigned char *)&p.sin_addr)[3] == 65;
			to2 += ((unsigned char *)&p.sin_addr)[3] == 66;
		}
		close(s);
	}
	stop = 1;
	pthread_join(t, 0);
	say("a", "%d", to1);
	say("b", "%d", to2);
}

static const struct act acts[] = {{"open", open_}, {"rename", rename_}, {"dup2", dup2_}, {"close", close_}, {"connect", connect_}, {0}};
int main(int argc, char **argv) { return play(acts, argc, argv); }
