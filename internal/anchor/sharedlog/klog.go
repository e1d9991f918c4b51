package sharedlog

import (
	"flag"
	"io"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"
)

// Tessera logs by klog, which is one for the process and writes to standard error unless it is told otherwise. Its warnings and
// errors go where the last server that was opened wants them; what it tells besides goes nowhere.

var (
	quiet  sync.Once
	listen atomic.Pointer[io.Writer]
)

type listener struct{}

func (listener) Write(b []byte) (int, error) {
	if w := listen.Load(); w != nil {
		return (*w).Write(b)
	}
	return len(b), nil
}

// redirect sends Tessera's warnings and errors, each a line, to w; nil: to nobody.
func redirect(w io.Writer) error {
	var err error
	quiet.Do(func() {
		f := flag.NewFlagSet("klog", flag.ContinueOnError)
		klog.InitFlags(f)
		for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "skip_headers": "true"} {
			if err == nil {
				err = f.Set(name, value)
			}
		}
		// An error is written as a warning and an information too.
		klog.SetOutput(io.Discard)
		klog.SetOutputBySeverity("WARNING", listener{})
	})
	if w == nil {
		listen.Store(nil)
	} else {
		listen.Store(&w)
	}
	return err
}
