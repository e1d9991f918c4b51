package bpf

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// A KernelError says that the kernel is why the sensor can't be had: it is too old, built without something, or permits nothing.
type KernelError struct{ error }

// Unwrap returns what the kernel said.
func (e KernelError) Unwrap() error { return e.error }

// An object is one of the two that the sources make, cut to what a kernel can load.
type object struct {
	*ebpf.CollectionSpec
	// old tells that it is the one for kernels before 6.4.
	old bool
	// unix tells that the kernel has hooks for the addresses of unix sockets, as it does since 6.7. Without, the end of the call tells of them.
	unix bool
}

// unixPrograms are what kernels before 6.7 have no hooks for.
var unixPrograms = []string{"on_connect_unix", "on_sendmsg_unix"}

// newObject reads the embedded object that suits the kernel whose types are given; with old the one for older kernels, which any takes.
func newObject(types *btf.Cache, old bool) (*object, error) {
	kernel, err := types.Kernel()
	if err != nil {
		return nil, fmt.Errorf("reading the kernel's types: %w", err)
	}
	if err := tooOld(kernel); err != nil {
		return nil, err
	}
	for _, function := range []string{"bpf_iter_num_new", "bpf_rdonly_cast", "bpf_cast_to_kern_ctx"} {
		var f *btf.Func
		old = old || kernel.TypeByName(function, &f) != nil
	}
	load := loadSensor
	if old {
		load = loadSensorOld
	}
	spec, err := load()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded BPF object: %w", err)
	}
	var hook *btf.Typedef
	if kernel.TypeByName("btf_trace_io_uring_submit_req", &hook) != nil { // before 6.2
		spec.Programs["on_uring"].AttachTo = "io_uring_submit_sqe"
	}
	o := &object{CollectionSpec: spec, old: old, unix: hasValue(kernel, "bpf_attach_type", "BPF_CGROUP_UNIX_CONNECT")}
	if !o.unix {
		for _, name := range unixPrograms { // they are loaded, as programs that do nothing, and never attached
			p := spec.Programs[name]
			p.AttachType = ebpf.AttachCGroupInet4Connect
			p.Instructions = asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}
		}
	}
	return o, nil
}

// tooOld tells what a kernel lacks of what both objects need. It goes by what is there, since distributions bring to their kernels
// much of later ones.
func tooOld(kernel *btf.Spec) error {
	var missing []string
	for helper, name := range map[string]string{"BPF_FUNC_find_vma": "bpf_find_vma", "BPF_FUNC_loop": "bpf_loop"} {
		if !hasValue(kernel, "bpf_func_id", helper) {
			missing = append(missing, name)
		}
	}
	var request *btf.Struct
	if kernel.TypeByName("io_cmd_data", &request) != nil {
		missing = append(missing, "io_uring's requests as of 6.0")
	}
	if missing == nil {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("this kernel is too old for the bpf sensor, which needs Linux 6.1 or later: it lacks %s; the ptrace sensor does without", strings.Join(missing, ", "))
}

// hasValue tells whether an enumeration of the kernel's has a value.
func hasValue(kernel *btf.Spec, enum, value string) bool {
	var e *btf.Enum
	if kernel.TypeByName(enum, &e) != nil {
		return false
	}
	return slices.ContainsFunc(e.Values, func(v btf.EnumValue) bool { return v.Name == value })
}
