// Built for i386 where the compiler can: the whole program speaks the other interface.
#include "trig.h"

static void all(int c, char **v) {
	touch("f");
	out("open", open("f", O_RDONLY));
	out("rename", rename("f", "g"));
	struct sockaddr_in a = in4("127.0.0.1", atoi(v[0]));
	out("connect", connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&a, sizeof a));
	out("sendto", sendto(socket(AF_INET, SOCK_DGRAM, 0), "x", 1, 0, (void *)&a, sizeof a));
	pid_t p = fork();
	if (p == 0) {
		execl("/bin/true", "true", "from-32", (char *)0);
		_exit(1);
	}
	say("child", "%d", p);
	reap(p);
}
static const struct act acts[] = {{"all", all}, {0}};
int main(int argc, char **argv) { return play(acts, argc, argv); }
