//go:build linux

package sandbox

import (
	"path/filepath"
	"strconv"
	"testing"
)

func BenchmarkBox(b *testing.B) {
	for name, change := range map[string]func(*Config){
		"plain":    func(*Config) {},
		"proxied":  func(c *Config) { c.Network.Mode = NetProxied },
		"writable": func(c *Config) { c.Base.Writable = true },
		"limits": func(c *Config) {
			c.Network.Mode = NetProxied
			c.Limits = Limits{MemoryBytes: 1 << 30, Pids: 1000, CPUs: 2}
		},
	} {
		b.Run(name, func(b *testing.B) {
			i := 0
			for b.Loop() {
				i++
				c := Config{ID: "bench-" + name + strconv.Itoa(i), StateDir: filepath.Join(b.TempDir(), "s")}
				change(&c)
				box, err := Create(b.Context(), c)
				if err != nil {
					b.Fatal(err)
				}
				p, err := box.Start(b.Context(), Cmd{Argv: []string{"/bin/true"}})
				if err != nil {
					b.Fatal(err)
				}
				if st, _ := p.Wait(); st.Code != 0 {
					b.Fatal(st)
				}
				b.StopTimer()
				if err := box.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

func BenchmarkStart(b *testing.B) {
	for name, limits := range map[string]Limits{"plain": {}, "limits": {MemoryBytes: 1 << 30, Pids: 1000, CPUs: 2}} {
		b.Run(name, func(b *testing.B) {
			box, err := Create(b.Context(), Config{ID: "bench-start-" + name, StateDir: filepath.Join(b.TempDir(), "s"), Limits: limits})
			if err != nil {
				b.Fatal(err)
			}
			defer box.Close()
			for b.Loop() {
				p, err := box.Start(b.Context(), Cmd{Argv: []string{"/bin/true"}})
				if err != nil {
					b.Fatal(err)
				}
				if st, _ := p.Wait(); st.Code != 0 {
					b.Fatal(st)
				}
			}
		})
	}
}
