// Calls that only name what they act on, by ways that are not the canonical ones.
#include "trig.h"

static void links(int c, char **v) {
	mkdir("a", 0755);
	mkdir("a/b", 0755);
	touch("a/f");
	symlink("a/b", "l");
	symlink("../a/f", "a/to-f");
	symlink("loop", "loop");
	must("chmod", chmod("a/to-f", 0700));
	must("rename", rename("l/../f", "./l/..//g"));
	must("mkdir", mkdir("l/new", 0755));
	must("rmdir", rmdir("l//new/"));
	must("symlink", symlink("anything", "l/s"));
	must("link", link("l/s", "a/hard")); // the link itself
	int d = must("open", open("a/b", O_PATH));
	must("unlinkat", unlinkat(d, "../g", 0));
	must("fchownat", fchownat(d, "", getuid(), getgid(), AT_EMPTY_PATH));
	out("missing", open("l/missing", O_RDONLY));
	out("deep", open("gone/x/y", O_RDONLY));
	out("dangling", open("l/s", O_RDONLY));
	out("exists", open("l/s", O_CREAT | O_EXCL | O_WRONLY, 0600));
	out("loop", truncate("loop/x", 0));
	char cwd[PATH_MAX], name[PATH_MAX + 64];
	must("getcwd", getcwd(cwd, sizeof cwd) ? 0 : -1);
	snprintf(name, sizeof name, "//%s/./l/../b/s", cwd);
	must("unlink", unlink(name));
}

// A name whose last byte lies at the end of a page, before memory that is not there; and one in memory that another
// process could write to.
static void memory(int c, char **v) {
	char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must("munmap", munmap(p + 4096, 4096));
	strcpy(p + 4096 - 5, "edge");
	must("mkdir", mkdir(p + 4096 - 5, 0755));
	char *s = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	strcpy(s, "shared");
	must("mkdir", mkdir(s, 0755));
	fill("names", "from-file");
	int fd = must("open", open("names", O_RDWR));
	must("ftruncate", ftruncate(fd, 4096));
	char *f = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	must("mkdir", mkdir(f, 0755)); // whoever writes to the file writes to the name
}

static const struct act acts[] = {{"links", links}, {"memory", memory}, {0}};
int main(int argc, char **argv) { return play(acts, argc, argv); }
