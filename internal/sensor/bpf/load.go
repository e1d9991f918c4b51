package bpf

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// programs are the loaded programs and what attaches them.
type programs struct {
	objs  sensorObjects
	unix  bool // on_connect_unix and on_sendmsg_unix are to be attached
	links []link.Link
	ends  []link.Link // of sockets
}

// load loads the programs, told which cgroup is theirs. Nothing is attached yet.
func load(cgroup string, opt Options, t *callTables) (*programs, error) {
	if err := checkCgroup(cgroup); err != nil {
		return nil, err
	}
	types := btf.NewCache() // the kernel's are large: they are read once
	p, err := loadObject(types, opt, t)
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) && !opt.old { // the other object takes less for granted of the kernel's verifier
		opt.old = true
		first := err
		if p, err = loadObject(types, opt, t); err != nil {
			return nil, KernelError{fmt.Errorf("%w; and the object for older kernels: %w", first, err)}
		}
	} else if err != nil {
		return nil, err
	}
	if err := p.aim(cgroup); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// loadObject loads one of the objects.
func loadObject(types *btf.Cache, opt Options, t *callTables) (*programs, error) {
	var ns unix.Stat_t
	if err := unix.Stat("/proc/self/ns/mnt", &ns); err != nil {
		return nil, fmt.Errorf("finding the recorder's mount namespace: %w", err)
	}
	spec, err := newObject(types, opt.old)
	if err != nil {
		return nil, KernelError{err}
	}
	stop := uint32(opt.RingBytes / 4 * 3)
	if opt.NoPause {
		stop = 0
	}
	for name, v := range map[string]any{
		sensorVarHostMntns: uint32(ns.Ino),
		sensorVarCalls64:   t.amd64, sensorVarCalls32: t.i386, sensorVarSocketcalls: t.socketcalls, sensorVarWatched: t.watched, sensorVarTypeDenied: uint8(bodycam.TypeDenied),
		sensorVarWakeAt: opt.wakeBytes(), sensorVarStopAt: stop, sensorVarExitTellsLast: exitTellsLast(types),
	} {
		if err := spec.Variables[name].Set(v); err != nil {
			return nil, fmt.Errorf("setting %s in the BPF object: %w", name, err)
		}
	}
	spec.Maps[sensorMapRing].MaxEntries = uint32(opt.RingBytes)
	if opt.others > 0 {
		spec.Maps[sensorMapOthers].MaxEntries = opt.others
	}
	if err := raiseMemlock(); err != nil {
		return nil, err
	}
	p := &programs{unix: spec.unix}
	if err := spec.LoadAndAssign(&p.objs, &ebpf.CollectionOptions{Cache: types}); err != nil {
		return nil, KernelError{fmt.Errorf("loading the sensor's BPF programs (root and a kernel of 6.1 or later are needed; bodycam doctor tries each): %w", err)}
	}
	return p, nil
}

// exitTellsLast tells whether the kernel's tracepoint sched_process_exit says that the last thread of its process ends.
func exitTellsLast(cache *btf.Cache) bool {
	types, err := cache.Kernel()
	if err != nil {
		return false // loading fails too then, and says why
	}
	var hook *btf.Typedef
	if types.TypeByName("btf_trace_sched_process_exit", &hook) != nil {
		return false
	}
	ptr, ok := hook.Type.(*btf.Pointer)
	if !ok {
		return false
	}
	proto, ok := ptr.Target.(*btf.FuncProto)
	return ok && len(proto.Params) >= 3 // the first is the hook's own
}

// checkCgroup tells what is wrong with a directory that is to be observed.
func checkCgroup(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("cgroup %q: the path has to be absolute", dir)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("cgroup %s: %w", dir, err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return fmt.Errorf("cgroup %s is not in a cgroup v2 hierarchy: make it below a cgroup2 mount", dir)
	}
	root, inHierarchy, err := cgroupMount(dir)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return fmt.Errorf("cgroup %s below its mount %s: %w", dir, root, err)
	}
	if filepath.Join(inHierarchy, rel) == "/" {
		return fmt.Errorf("cgroup %s is the whole machine: observe one below it", dir)
	}
	return nil
}

// aim tells the programs which cgroup is theirs.
func (p *programs) aim(cgroup string) error {
	fd, err := unix.Open(cgroup, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening cgroup %s: %w", cgroup, err)
	}
	defer unix.Close(fd)
	if err := p.objs.Target.Put(uint32(0), uint32(fd)); err != nil {
		return fmt.Errorf("giving cgroup %s to the BPF programs: %w", cgroup, err)
	}
	return nil
}

// cgroupMount finds the mount that a cgroup v2 directory lies in, and which part of the hierarchy it shows.
func cgroupMount(dir string) (mountPoint, root string, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", "", fmt.Errorf("looking for the cgroup2 mount: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		sep := 6
		for sep < len(f) && f[sep] != "-" {
			sep++
		}
		if sep+1 >= len(f) || f[sep+1] != "cgroup2" {
			continue
		}
		at := f[4]
		if (dir == at || strings.HasPrefix(dir, strings.TrimSuffix(at, "/")+"/")) && len(at) > len(mountPoint) {
			mountPoint, root = at, f[3]
		}
	}
	if mountPoint == "" {
		return "", "", fmt.Errorf("no cgroup2 mount holds %s", dir)
	}
	return mountPoint, root, nil
}

// attach puts every hook in place. The machine-wide ones come last.
func (p *programs) attach(cgroup string) error {
	for _, h := range []struct {
		prog *ebpf.Program
		at   ebpf.AttachType
	}{
		{p.objs.OnSockCreate, ebpf.AttachCGroupInetSockCreate},
		{p.objs.OnSockRelease, ebpf.AttachCgroupInetSockRelease},
		{p.objs.OnConnect4, ebpf.AttachCGroupInet4Connect},
		{p.objs.OnConnect6, ebpf.AttachCGroupInet6Connect},
		{p.objs.OnSendmsg4, ebpf.AttachCGroupUDP4Sendmsg},
		{p.objs.OnSendmsg6, ebpf.AttachCGroupUDP6Sendmsg},
		{p.objs.OnConnectUnix, ebpf.AttachCgroupUnixConnect},
		{p.objs.OnSendmsgUnix, ebpf.AttachCgroupUnixSendmsg},
		{p.objs.OnEgress, ebpf.AttachCGroupInetEgress},
		{p.objs.OnIngress, ebpf.AttachCGroupInetIngress},
	} {
		if !p.unix && (h.prog == p.objs.OnConnectUnix || h.prog == p.objs.OnSendmsgUnix) {
			continue
		}
		l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: h.at, Program: h.prog})
		if err != nil {
			return fmt.Errorf("attaching %s to cgroup %s: %w", h.at, cgroup, err)
		}
		p.keep(h.prog, l)
	}
	for _, prog := range p.tracing() {
		l, err := link.AttachTracing(link.TracingOptions{Program: prog})
		if err != nil {
			return fmt.Errorf("attaching %s: %w", prog, err)
		}
		p.keep(prog, l)
	}
	return nil
}

func (p *programs) keep(prog *ebpf.Program, l link.Link) {
	switch prog {
	case p.objs.OnState, p.objs.OnSockRelease:
		p.ends = append(p.ends, l)
	default:
		p.links = append(p.links, l)
	}
}

// tracing returns the machine-wide programs, in the order in which they are attached.
func (p *programs) tracing() []*ebpf.Program {
	return []*ebpf.Program{p.objs.OnExit, p.objs.OnNewtask, p.objs.OnExec, p.objs.OnSignal, p.objs.OnUring, p.objs.OnState, p.objs.OnSysExit}
}

// concerning returns the machine-wide programs that can have missed something of the target's: where that has no TCP socket, the
// changes of state that the kernel left out were of other sockets.
func (p *programs) concerning(tcp bool) []*ebpf.Program {
	return slices.DeleteFunc(p.tracing(), func(prog *ebpf.Program) bool { return prog == p.objs.OnState && !tcp })
}

// skipped tells how often the kernel did not run programs, and which. It leaves one out that is running on the same processor, which
// an interrupt may come between. What it would have seen is then not even counted as seen.
func skipped(progs []*ebpf.Program) (n uint64, names []string, err error) {
	for _, prog := range progs {
		stats, err := prog.Stats()
		if err != nil {
			return 0, nil, fmt.Errorf("asking how often %s was left out: %w", prog, err)
		}
		if stats.RecursionMisses == 0 {
			continue
		}
		info, err := prog.Info()
		if err != nil {
			return 0, nil, fmt.Errorf("asking the name of %s: %w", prog, err)
		}
		n += stats.RecursionMisses
		names = append(names, info.Name)
	}
	return n, names, nil
}

// detach removes every hook, the calls' first and the ends of tasks later, and last those of sockets: what these moved is told before, of
// those that live. When it returns none of their programs is running.
func (p *programs) detach() error {
	err := closeAll(&p.links)
	err = errors.Join(err, p.iterate(p.objs.FlushSocks, p.objs.Socks), closeAll(&p.ends))
	settle()
	return err
}

// closeAll closes links, the last first.
func closeAll(links *[]link.Link) error {
	var errs []error
	for _, l := range slices.Backward(*links) {
		errs = append(errs, l.Close())
	}
	*links = nil
	return errors.Join(errs...)
}

// settle waits until programs that were running while their hook was removed have ended: for a grace period of the kernel's RCU,
// which no program outlives.
func settle() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL (linux/membarrier.h)
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		time.Sleep(100 * time.Millisecond) // kernels with nohz_full refuse it; a program takes microseconds
	}
}

// flush has what is still gathered for tasks sent to the ring. No hook may be attached.
func (p *programs) flush() error {
	return errors.Join(p.iterate(p.objs.FlushCaches, p.objs.Pool), p.iterate(p.objs.FlushCaches, p.objs.Others))
}

// iterate runs a program for each element of a map.
func (p *programs) iterate(prog *ebpf.Program, m *ebpf.Map) error {
	l, err := link.AttachIter(link.IterOptions{Program: prog, Map: m})
	if err != nil {
		return fmt.Errorf("attaching %s to %s: %w", prog, m, err)
	}
	defer l.Close()
	r, err := l.Open()
	if err != nil {
		return fmt.Errorf("opening %s of %s: %w", prog, m, err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("running %s for %s: %w", prog, m, err)
	}
	return nil
}

// wakeAt sets how many bytes wait before the kernel side wakes the reader; 0: it does for every record.
func (p *programs) wakeAt(n uint32) error {
	if err := p.objs.WakeAt.Set(n); err != nil {
		return fmt.Errorf("setting when the kernel wakes the reader: %w", err)
	}
	return nil
}

func (p *programs) close() {
	_ = closeAll(&p.links)
	_ = closeAll(&p.ends)
	_ = p.objs.Close()
}

// streams is how many streams of records each processor has: one of system calls and processes' lives, one of all that may
// come between these.
const streams = 2

// counters are the kernel side's, summed over CPUs.
type counters struct {
	seqs        []uint64 // per stream: records tried
	src         [sensorSourceSRC_NUM]struct{ Seen, Lost uint64 }
	raced, gone uint64
	stops       uint64
}

func (p *programs) counters() (counters, error) {
	var c counters
	for stream := range streams {
		per := make([]sensorStats, 0, runtime.NumCPU())
		if err := p.objs.Counters.Lookup(uint32(stream), &per); err != nil {
			return c, fmt.Errorf("reading the kernel's counters: %w", err)
		}
		if c.seqs == nil {
			c.seqs = make([]uint64, streams*len(per))
		}
		for cpu, s := range per {
			c.seqs[cpu*streams+stream] = s.Seq
			c.raced += s.Raced
			c.gone += s.Gone
			for i := range s.Src {
				c.src[i].Seen += s.Src[i].Seen
				c.src[i].Lost += s.Src[i].Lost
			}
		}
	}
	if err := p.objs.Stops.Get(&c.stops); err != nil {
		return c, fmt.Errorf("reading the kernel's counters: %w", err)
	}
	return c, nil
}

// raiseMemlock lifts the limit of locked memory, against which kernels before 5.11 count maps. cilium/ebpf's rlimit
// package would do this, but its init calls bpf() in every process of this binary, also in the agents that run inside
// a sandbox.
func raiseMemlock() error {
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited); err != nil && !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("raising the limit of locked memory: %w", err)
	}
	return nil
}
