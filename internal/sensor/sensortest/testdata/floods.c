// As much as the machine gives.
#include "trig.h"

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}
static void openers(int c, char **v) { // openers N SECONDS FILES: N processes, each FILES files of its own in turn
	int n = atoi(v[0]), files = atoi(v[2]);
	double until = now() + atof(v[1]);
	for (int i = 0; i < n; i++)
		if (fork() == 0) {
			char p[64];
			long k = 0;
			for (; now() < until; k++) {
				snprintf(p, sizeof p, "flood-%d-%ld", i, k % files);
				close(open(p, O_CREAT | O_RDONLY, 0600));
			}
			snprintf(p, sizeof p, "opened%d", i);
			say(p, "%ld", k);
			_exit(0);
		}
	while (wait(0) > 0);
}
static void forks(int c, char **v) { // forks N SECONDS: N processes, each forks as fast as it can
	int n = atoi(v[0]);
	double until = now() + atof(v[1]);
	for (int i = 0; i < n; i++)
		if (fork() == 0) {
			char p[64];
			long k = 0;
			for (; now() < until; k++) {
				pid_t q = fork();
				if (q == 0) _exit(0);
				reap(q);
			}
			snprintf(p, sizeof p, "forked%d", i);
			say(p, "%ld", k);
			_exit(0);
		}
	while (wait(0) > 0);
}
static void connects(int c, char **v) {
	struct sockaddr_in a = in4("127.0.0.1", 9);
	int n = atoi(v[0]), s = socket(AF_INET, SOCK_DGRAM, 0);
	for (int i = 0; i < n; i++) {
		a.sin_port = htons(1000 + i % 500);
		must("sendto", sendto(s, "x", 1, MSG_DONTWAIT, (void *)&a, sizeof a));
	}
	say("sent", "%d", n);
}

static const struct act acts[] = {{"openers", openers}, {"forks", forks}, {"connects", connects}, {0}};
int main(int argc, char **argv) { return play(acts, argc, argv); }
