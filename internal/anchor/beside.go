package anchor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Named is a mechanism with its options.
type Named struct {
	Mechanism Mechanism
	Options   Options
}

// Beside anchors a run while it is recorded.
type Beside struct {
	run  string
	list []Named
	stop context.CancelFunc
	done sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

// Start begins to anchor a run whose directory may not be there yet. The recorder doesn't wait for any of it.
func Start(ctx context.Context, run string, list []Named) *Beside {
	b := &Beside{run: run, list: list}
	ctx, b.stop = context.WithCancel(ctx)
	b.done.Go(func() {
		for {
			_, err := os.Stat(filepath.Join(run, "ledger", "genesis"))
			if err == nil {
				break
			}
			if !errors.Is(err, fs.ErrNotExist) {
				b.fail(err)
				return
			}
			if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
				return
			}
		}
		log, err := OpenLog(run)
		if err != nil {
			b.fail(err)
			return
		}
		defer log.Close()
		var all sync.WaitGroup
		for _, n := range list {
			r, err := NewRunner(run, n.Mechanism, log, n.Options)
			if err != nil {
				b.fail(err)
				continue
			}
			all.Go(func() {
				b.fail(r.Run(ctx))
				b.fail(r.Close())
			})
		}
		all.Wait()
	})
	return b
}

func (b *Beside) fail(err error) {
	if err != nil {
		b.mu.Lock()
		b.errs = append(b.errs, err)
		b.mu.Unlock()
	}
}

// Finish anchors the last head of a run that has ended. What isn't final when the context ends is left in the run's
// directory, where `bodycam anchor` goes on with it.
func (b *Beside) Finish(ctx context.Context) error {
	b.stop()
	b.done.Wait()
	if _, err := os.Stat(filepath.Join(b.run, "ledger", "genesis")); err != nil {
		return errors.Join(b.errs...) // the run never began
	}
	return errors.Join(append(b.errs, Flush(ctx, b.run, b.list))...)
}

// Flush anchors the newest head of a run by every mechanism, at the same time, and returns when all are final.
func Flush(ctx context.Context, run string, list []Named) error {
	log, err := OpenLog(run)
	if err != nil {
		return err
	}
	defer log.Close()
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, n := range list {
		all.Go(func() {
			r, err := NewRunner(run, n.Mechanism, log, n.Options)
			if err == nil {
				err = errors.Join(r.Flush(ctx), r.Close())
			}
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", n.Options.Name, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
