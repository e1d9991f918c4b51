// Mounts and namespaces: the same file under another name. In a user namespace of its own, so that it needs no power.
#include "trig.h"

static void map(const char *path, int id) {
	char line[32];
	int n = snprintf(line, sizeof line, "0 %d 1\n", id), fd = must(path, open(path, O_WRONLY));
	must(path, write(fd, line, n));
	close(fd);
}
static void enter(void) {
	int uid = geteuid(), gid = getegid();
	must("unshare", unshare(CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0)));
	if (uid) {
		int fd = must("setgroups", open("/proc/self/setgroups", O_WRONLY));
		must("setgroups", write(fd, "deny", 4));
		close(fd);
		map("/proc/self/uid_map", uid);
		map("/proc/self/gid_map", gid);
	}
	must("private", mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
}
static void ident(const char *path) {
	struct stat st;
	must("stat", stat(path, &st));
	say("ino", "%lu", (unsigned long)st.st_ino);
	say("dev", "%lu", (unsigned long)st.st_dev);
}
static void bindmount(int c, char **v) {
	mkdir("secret", 0755);
	fill("secret/key", "secret");
	ident("secret/key");
	touch("innocent");
	enter();
	out("mount", mount("secret/key", "innocent", 0, MS_BIND, 0));
	out("open", open("innocent", O_RDONLY));
}
static void tmpfs(int c, char **v) {
	mkdir("m", 0755);
	enter();
	out("mount", mount("t", "m", "tmpfs", 0, 0));
	out("open", open("m/inside", O_CREAT | O_WRONLY, 0600));
	out("umount", umount2("m", MNT_DETACH));
}
static void chroot_(int c, char **v) {
	mkdir("jail", 0755);
	fill("jail/in", "x");
	enter();
	out("chroot", chroot("jail"));
	must("chdir", chdir("/"));
	out("open", open("/in", O_RDONLY));
}
static void names(int c, char **v) { // names that lead across mounts and up to a root
	mkdir("m", 0755);
	mkdir("jail", 0755);
	touch("outside");
	enter();
	must("mount", mount("none", "m", "tmpfs", 0, 0));
	must("mkdir", mkdir("m/d", 0755));
	must("mkdir", mkdir("m/d/../e", 0755));
	must("chdir", chdir("m/d"));
	must("unlink", unlink("../../outside"));
	must("chdir", chdir("../.."));
	must("mount", mount("none", "m", "tmpfs", 0, 0)); // over the other
	must("mkdir", mkdir("m/second", 0755));
	must("chroot", chroot("jail"));
	must("chdir", chdir("/"));
	must("mkdir", mkdir("/../../up", 0755));
	must("mkdir", mkdir("../from-here", 0755));
}
static void overlay(int c, char **v) {
	mkdir("lower", 0755);
	mkdir("upper", 0755);
	mkdir("work", 0755);
	mkdir("merged", 0755);
	fill("lower/f", "x");
	mkdir("lower/d", 0755);
	touch("lower/d/g");
	symlink("d", "lower/l");
	enter();
	if (out("mount", mount("overlay", "merged", "overlay", 0, "lowerdir=lower,upperdir=upper,workdir=work,userxattr")) < 0) return;
	out("open", open("merged/f", O_RDWR));
	must("unlink", unlink("merged/l/g"));
}
static void detached(int c, char **v) {
	mkdir("m", 0755);
	enter();
	must("mount", mount("t", "m", "tmpfs", 0, 0));
	touch("m/inside");
	int d = out("open_tree", syscall(428, AT_FDCWD, "m", 1 /* OPEN_TREE_CLONE */));
	out("open", openat(d, "inside", O_RDONLY));
}
static void newapi(int c, char **v) { // a mount made without mount(2)
	mkdir("m", 0755);
	enter();
	int fs = must("fsopen", syscall(430, "tmpfs", 0));
	must("fsconfig", syscall(431, fs, 6 /* FSCONFIG_CMD_CREATE */, 0, 0, 0));
	int mnt = must("fsmount", syscall(432, fs, 0, 0));
	out("detached", openat(mnt, "early", O_CREAT | O_WRONLY, 0600));
	out("move_mount", syscall(429, mnt, "", AT_FDCWD, "m", 4 /* MOVE_MOUNT_F_EMPTY_PATH */));
	out("open", open("m/inside", O_CREAT | O_WRONLY, 0600));
}

static const struct act acts[] = {{"bind", bindmount}, {"tmpfs", tmpfs}, {"chroot", chroot_}, {"names", names}, {"overlay", overlay}, {"detached", detached}, {"newapi", newapi}, {0}};
int main(int argc, char **argv) { return play(acts, argc, argv); }
