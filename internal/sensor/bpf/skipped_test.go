package bpf

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// printing is a program that prints an empty line to the kernel's trace, which is what sets off the tracepoint bpf_trace_printk.
func printing(t *testing.T, spec ebpf.ProgramSpec) *ebpf.Program {
	t.Helper()
	spec.License = "GPL"
	spec.Instructions = asm.Instructions{
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, -8),
		asm.Mov.Imm(asm.R2, 1),
		asm.FnTracePrintk.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}
	p, err := ebpf.NewProgram(&spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// The kernel does not run a program on a processor where it runs already. Here one sets off its own hook.
func TestSkippedRunsAreCounted(t *testing.T) {
	needRoot(t)
	inner := printing(t, ebpf.ProgramSpec{Name: "inner", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "bpf_trace_printk"})
	outer := printing(t, ebpf.ProgramSpec{Name: "outer", Type: ebpf.SocketFilter})
	l, err := link.AttachTracing(link.TracingOptions{Program: inner})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	all := []*ebpf.Program{inner, outer}
	if n, names, err := skipped(all); n != 0 || names != nil || err != nil {
		t.Errorf("%d, %v, %v before any run", n, names, err)
	}
	const runs = 3
	for range runs {
		if _, err := outer.Run(&ebpf.RunOptions{Data: make([]byte, 14)}); err != nil {
			t.Fatal(err)
		}
	}
	if n, names, err := skipped(all); n < runs || !slices.Equal(names, []string{"inner"}) || err != nil {
		t.Errorf("%d, %v, %v: want %d of inner at least", n, names, err, runs)
	}
}
