//go:build linux && amd64

package ptrace

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor"
)

// Benchmark times one iteration of a shell loop with and without observation.
func Benchmark(b *testing.B) {
	for _, c := range []struct{ name, loop string }{
		{"open", "for ((i = 0; i < %d; i++)); do : </etc/hostname; done"},
		{"fork-exec", "for ((i = 0; i < %d; i++)); do /bin/true; done"},
		{"untraced-call", "for ((i = 0; i < %d; i++)); do [ -e /etc/hostname ]; done"},
	} {
		env := []string{"PATH=/usr/bin:/bin"}
		b.Run(c.name+"/plain", func(b *testing.B) {
			cmd := exec.Command("/bin/bash", "-c", fmt.Sprintf(c.loop, b.N))
			cmd.Env = env
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		})
		b.Run(c.name+"/observed", func(b *testing.B) {
			s := New(Options{})
			if err := s.Start(b.Context(), sensor.Target{}, func(*bodycam.Event) error { return nil }); err != nil {
				b.Fatal(err)
			}
			p, err := s.StartProcess([]string{"/bin/bash", "-c", fmt.Sprintf(c.loop, b.N)}, env, "/", []*os.File{os.Stdin, os.Stderr, os.Stderr})
			if err != nil {
				b.Fatal(err)
			}
			p.Wait()
			h, err := s.Stop()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(h.CPU*1e9/float64(b.N), "sensor-ns/op")
		})
	}
}
