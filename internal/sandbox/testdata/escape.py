# Ways out of a box. Each function tries one and returns what stopped it: the name of an errno, or a fact. The test
# knows what each must return; anything else is an escape, or a test that no longer tests.
import ctypes, errno, fcntl, os, pty, socket, struct, sys

libc = ctypes.CDLL(None, use_errno=True)


def call(nr, *args):
    r = libc.syscall(nr, *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return errno.errorcode[ctypes.get_errno()] if r < 0 else "ok"


def tried(f):
    try:
        return repr(f())
    except OSError as e:
        return errno.errorcode[e.errno]


def each(results):
    return " ".join(sorted(set(results)))


def signal_recorder(pid): return tried(lambda: os.kill(int(pid), 0))
def signal_init(): return each(tried(lambda: os.kill(1, s)) for s in (9, 15, 3, 11, 19, 0))
def signal_init_thread(): return each(call(234, 1, t, 9) for t in (1, 2, 3))
def ptrace_init(): return each([call(101, 0x4206, 1, 0, 0), call(101, 16, 1, 0, 0)])
def ptrace_self_child():
    pid = os.fork()
    if pid == 0:
        import time
        time.sleep(5)
        os._exit(0)
    r = call(101, 0x4206, pid, 0, 0)
    os.kill(pid, 9)
    return r
def read_init_memory():
    buf = ctypes.create_string_buffer(8)
    iov = struct.pack("QQ", ctypes.addressof(buf), 8)
    rem = struct.pack("QQ", 0x400000, 8)
    return call(310, 1, iov, 1, rem, 1, 0)
def proc_of_init():
    return each(tried(lambda: open("/proc/1/" + n, "rb").read(1)) for n in ("environ", "mem", "maps", "auxv", "syscall", "stack"))
def links_of_init():
    return each([tried(lambda: os.listdir("/proc/1/" + n)) for n in ("root", "cwd", "map_files")] +
                [tried(lambda: os.readlink("/proc/1/" + n)) for n in ("exe", "fd/1", "fd/4", "fd/5")] + [tried(lambda: os.open("/proc/1/fd/4", 2)), tried(lambda: os.open("/proc/1/ns/mnt", 0))])
def programs_seen():
    seen = set()
    for p in os.listdir("/proc"):
        if p.isdigit():
            seen.add(open("/proc/%s/cmdline" % p, "rb").read().split(b"\0")[0].decode())
    return each(seen)
def mount_tmpfs(): return call(165, b"none", b"/mnt", b"tmpfs", 0, 0)
def mount_bind(): return call(165, b"/home", b"/opt", 0, 4096, 0)
def mount_new_api(): return each([call(430, b"tmpfs", 0), call(428, -100, b"/", 1), call(429, 3, b"", -100, b"/tmp", 4), call(442, -100, b"/", 0, 0, 0), call(467, -100, b"/", 1, 0, 0)])
def mount_cgroup(): return call(165, b"none", b"/mnt", b"cgroup2", 0, 0)
def cgroup_write():
    os.makedirs("/tmp/cg", exist_ok=True)
    if call(165, b"none", b"/tmp/cg", b"cgroup2", 0, 0) != "ok":
        return "not mounted"
    out = [tried(lambda: open("/tmp/cg/" + n, "w").write("1")) for n in ("cgroup.kill", "cgroup.procs", "cgroup.freeze", "cgroup.subtree_control")]
    out.append(tried(lambda: os.mkdir("/tmp/cg/mine")))
    return each(out)
def release_agent():
    os.makedirs("/tmp/v1", exist_ok=True)
    r = call(165, b"none", b"/tmp/v1", b"cgroup", 0, b"memory")
    return r if r != "ok" else each([tried(lambda: open("/tmp/v1/release_agent", "w").write("/tmp/x")), tried(lambda: os.mkdir("/tmp/v1/mine"))])
def umount_masks(): return each(call(166, p, 2) for p in (b"/proc/keys", b"/proc/sys", b"/dev", b"/usr"))
def remount_usr(): return call(165, 0, b"/usr", 0, 32 | 4096, 0)
def fresh_proc():
    if os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS | os.CLONE_NEWPID) if hasattr(os, "unshare") else libc.unshare(0x10000000 | 0x20000 | 0x20000000):
        return errno.errorcode[ctypes.get_errno()]
    pid = os.fork()
    if pid == 0:
        os._exit(1 if call(165, b"proc", b"/proc", b"proc", 0, 0) == "ok" else 0)
    return "mounted" if os.waitpid(pid, 0)[1] else "refused"
def new_userns(): return "ok" if libc.unshare(0x10000000) == 0 else errno.errorcode[ctypes.get_errno()]
def clone_userns(): return call(56, 0x10000000 | 17, 0, 0, 0, 0)
def clone3(): return call(435, struct.pack("QQQQQQQQ", 0x10000000, 0, 0, 0, 17, 0, 0, 0), 64)
def make_device(): return each([tried(lambda: os.mknod("/tmp/disk", 0o060666, os.makedev(254, 0))), tried(lambda: os.mknod("/tmp/mem", 0o020666, os.makedev(1, 1)))])
def device_nodes(): return each(tried(lambda: os.open("/dev/" + n, 2)) for n in ("mem", "kmem", "kmsg", "port", "vda", "sda", "kvm", "fuse", "net/tun", "loop0", "vsock"))
def docker_socket(): return each(tried(lambda: os.stat(p)) for p in ("/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket"))
def host_files(*paths): return each(tried(lambda: os.stat(p)) for p in paths)
def abstract_socket(name):
    return tried(lambda: socket.socket(socket.AF_UNIX).connect("\0" + name))
def sysv(key): return call(29, int(key), 0, 0)
def kernel_settings():
    return each(tried(lambda: open("/proc/sys/" + n, "w").write("|/tmp/x")) for n in ("kernel/core_pattern", "vm/drop_caches", "net/ipv4/ip_forward"))
def sysrq(): return repr(os.stat("/proc/sysrq-trigger")) if os.path.exists("/proc/sysrq-trigger") and os.stat("/proc/sysrq-trigger").st_rdev != os.makedev(1, 3) else "masked"
def kernel_secrets(): return each(repr(open(p).read(1)) for p in ("/proc/kallsyms", "/proc/keys", "/proc/timer_list", "/proc/iomem") if os.path.exists(p))
def open_files(): return " ".join(sorted(os.listdir("/proc/self/fd"))[:-1])
def tty_injection():
    m, s = pty.openpty()
    return each([tried(lambda: fcntl.ioctl(s, 0x5412, b"x")), tried(lambda: fcntl.ioctl(s, 0x541c, b"\x02"))])
def keyrings(): return each([call(250, 0, -3, 0), call(248, b"user", b"x", b"y", 1, -3), call(249, b"user", b"x", 0, -3)])
def by_handle(): return call(304, 3, struct.pack("IIQ", 8, 1, 2), 0)
def kernel_calls(): return each([call(321, 0, 0, 0), call(298, 0, 0, -1, -1, 0), call(323, 0), call(246, 0, 0, 0, 0), call(175, 0, 0, 0), call(313, 0, 0, 0), call(103, 3, 0, 0), call(169, 0, 0, 0, 0)])
def io_uring(): return call(425, 4, ctypes.create_string_buffer(128))
def x32(): return call(0x40000000 + 39)
def raw_sockets():
    return each(tried(lambda: socket.socket(f, socket.SOCK_RAW, 1).close()) for f in (socket.AF_INET, socket.AF_INET6))
def odd_sockets(): return each(tried(lambda: socket.socket(f, t, 0).close()) for f, t in ((17, 3), (40, 1), (38, 5), (9, 2), (16, 2)) if f != 16)
def netlink_socket(): return tried(lambda: socket.socket(16, 3, 0).close())
def change_network():
    s = socket.socket(16, 3, 0)
    # RTM_NEWLINK, index 1, flags down
    s.send(struct.pack("IHHII", 32, 16, 5, 1, 0) + struct.pack("BBHiII", 0, 0, 0, 1, 0, 1))
    r = struct.unpack_from("i", s.recv(4096), 16)[0]
    return errno.errorcode[-r] if r else "ok"
def flush_nft():
    s = socket.socket(16, 3, 12)
    msg = lambda typ, body: struct.pack("IHHII", 16 + len(body), typ, 5, 1, 0) + body
    s.send(msg(0x10, struct.pack("BBH", 0, 0, 0x0a00)) + msg(0xa02, struct.pack("BBH", 1, 0, 0)) + msg(0x11, struct.pack("BBH", 0, 0, 0x0a00)))
    r = struct.unpack_from("i", s.recv(4096), 16)[0]
    return errno.errorcode[-r] if r else "ok"
def chroot_out(marker):
    os.makedirs("/tmp/jail", exist_ok=True)
    fd = os.open("/", 0)
    os.chroot("/tmp/jail")
    os.fchdir(fd)
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    return each([tried(lambda: os.stat(marker)), "box" if os.path.exists("/home/agent") else "elsewhere"])
def hostname(): return "ok" if libc.sethostname(b"x", 1) == 0 else errno.errorcode[ctypes.get_errno()]


print(globals()[sys.argv[1]](*sys.argv[2:]))
