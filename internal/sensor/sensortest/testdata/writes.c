// How files change.
#include "trig.h"
#include <utime.h>

static void rename_(int c, char **v) {
	fill(".bashrc", "good");
	fill("evil", "bad");
	out("rename", rename("evil", ".bashrc"));
}
static void exchange(int c, char **v) {
	fill("a", "a");
	fill("b", "b");
	out("rename", syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", 2));
}
static void rename_at(int c, char **v) {
	mkdir("x", 0755);
	mkdir("y", 0755);
	touch("x/f");
	int x = open("x", O_PATH), y = open("y", O_PATH);
	out("rename", renameat(x, "f", y, "g"));
	out("missing", renameat(x, "none", y, "h"));
}
static void copyrange(int c, char **v) {
	fill("src", "0123456789");
	int s = open("src", O_RDONLY), d = open("dst", O_CREAT | O_WRONLY, 0600);
	long n = out("copy", copy_file_range(s, 0, d, 0, 10, 0));
	say("bytes", "%ld", n);
}
static void truncate_(int c, char **v) {
	fill("f", "0123456789");
	int fd = open("f", O_RDWR);
	out("ftruncate", ftruncate(fd, 4));
	out("truncate", truncate("f", 2));
	out("otrunc", open("f", O_WRONLY | O_TRUNC));
}
static void cut(int c, char **v) { // without being opened for writing
	fill("f", "0123456789");
	fill("g", "0123456789");
	fill("i", "0123456789");
	out("read", open("f", O_RDONLY | O_TRUNC));
	out("neither", open("g", 3 | O_TRUNC));
	out("made", open("h", O_RDONLY | O_CREAT, 0600));
	out("there", open("i", O_WRONLY | O_CREAT | O_APPEND, 0600));
}
static void otherwise(int c, char **v) { // the same name, with flags that an open file does not keep
	fill("f", "0123456789");
	int how[] = {O_WRONLY, O_WRONLY | O_TRUNC, O_WRONLY, O_WRONLY | O_CREAT, O_WRONLY, O_WRONLY | O_TRUNC};
	for (int i = 0; i < 6; i++) close(must("open", open("f", how[i], 0600)));
	for (int i = 0; i < 2; i++) close(must("open", syscall(SYS_open, "f", O_WRONLY)));
}
static void mapstore(int c, char **v) {
	fill("f", "0123456789");
	int fd = must("open", open("f", O_RDWR));
	char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	out("mmap", p == MAP_FAILED ? -1 : 0);
	if (p != MAP_FAILED) p[0] = 'X';
	close(fd);
}
static void maplate(int c, char **v) { // mapped for reading, made writable later
	fill("f", "0123456789");
	int fd = must("open", open("f", O_RDWR));
	char *p = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	out("mprotect", mprotect(p, 4096, PROT_READ | PROT_WRITE));
	p[0] = 'X';
}
static void sendfile_(int c, char **v) {
	fill("src", "0123456789");
	int s = open("src", O_RDONLY), d = open("dst", O_CREAT | O_WRONLY, 0600);
	out("sendfile", sendfile(d, s, 0, 10));
	int p[2];
	must("pipe", pipe(p));
	int s2 = open("src", O_RDONLY), d2 = open("dst2", O_CREAT | O_WRONLY, 0600);
	out("splice", splice(s2, 0, p[1], 0, 10, 0));
	out("splice", splice(p[0], 0, d2, 0, 10, 0));
}
static void readwrite(int c, char **v) {
	char b[100] = {0};
	int w = must("open", open("f", O_CREAT | O_WRONLY, 0600));
	for (int i = 0; i < 10; i++) must("write", write(w, b, 100));
	struct iovec iv[2] = {{b, 50}, {b, 50}};
	must("writev", writev(w, iv, 2));
	must("pwrite", pwrite(w, b, 100, 0));
	close(w); // 1200 written
	int r = must("open", open("f", O_RDONLY));
	for (int i = 0; i < 5; i++) must("read", read(r, b, 100));
	must("pread", pread(r, b, 100, 0));
	must("readv", readv(r, iv, 2));
	close(r); // 700 read
}
static void links(int c, char **v) {
	touch("f");
	out("link", link("f", "hard"));
	out("symlink", symlink("f", "soft"));
	int d = open(".", O_PATH);
	out("symlinkat", symlinkat("/etc/shadow", d, "softat"));
	out("linkat", linkat(d, "f", d, "hardat", 0));
	out("unlink", unlink("hard"));
	out("unlinkat", unlinkat(d, "softat", 0));
	out("unlinkmissing", unlink("nothing"));
	out("mkdir", mkdir("d", 0755));
	out("mkdirat", mkdirat(d, "e", 0755));
	out("rmdir", rmdir("d"));
	out("rmdirat", unlinkat(d, "e", AT_REMOVEDIR));
	out("mknod", mknod("fifo", S_IFIFO | 0600, 0));
}
static void modes(int c, char **v) {
	touch("f");
	symlink("f", "l");
	int fd = open("f", O_RDWR);
	out("chmod", chmod("f", 0711));
	out("fchmod", fchmod(fd, 0722));
	out("fchmodat", fchmodat(AT_FDCWD, "l", 0733, 0)); // follows to f
	out("fchmodat2", syscall(452, AT_FDCWD, "f", 0744, AT_SYMLINK_NOFOLLOW));
	out("chown", chown("f", getuid(), getgid()));
	out("fchown", fchown(fd, getuid(), getgid()));
	out("lchown", lchown("l", getuid(), getgid()));
	out("setxattr", setxattr("f", "user.a", "b", 1, 0));
	out("fsetxattr", fsetxattr(fd, "user.c", "d", 1, 0));
	out("removexattr", removexattr("f", "user.a"));
	struct timespec ts[2] = {{1, 0}, {1, 0}};
	out("utimensat", utimensat(AT_FDCWD, "f", ts, 0));
	out("futimens", futimens(fd, ts));
}
static void hardwrite(int c, char **v) { // written through another name: dev:ino tells
	fill("target", "x");
	must("link", link("target", "alias"));
	out("open", open("alias", O_WRONLY | O_APPEND));
	struct stat st;
	stat("target", &st);
	say("ino", "%lu", (unsigned long)st.st_ino);
	say("dev", "%lu", (unsigned long)st.st_dev);
}

static const struct act acts[] = {{"rename", rename_}, {"exchange", exchange}, {"renameat", rename_at}, {"otherwise", otherwise}, {"copyrange", copyrange},
	{"truncate", truncate_}, {"cut", cut}, {"mapstore", mapstore}, {"maplate", maplate}, {"sendfile", sendfile_}, {"readwrite", readwrite},
	{"links", links}, {"modes", modes}, {"hardwrite", hardwrite}, {0}};
int main(int argc, char **argv) { return play(acts, argc, argv); }
