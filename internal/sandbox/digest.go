//go:build linux

package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

type digestOnce struct {
	once sync.Once
	text string
	err  error
}

// BaseDigest names what the box started from, as "kind:sha256-hex". Of a tar it is the file's digest; of a directory a
// digest of every name, type, mode and content; of a host base one of its package data bases and of the names, sizes and
// link targets in its program directories: a fingerprint of what is installed, not proof of every byte. It is
// computed on the first call.
func (b *Box) BaseDigest(ctx context.Context) (string, error) {
	b.digest.once.Do(func() {
		h := sha256.New()
		var err error
		kind := b.cfg.Base.Kind
		switch kind {
		case BaseHost:
			err = digestHost(ctx, h)
		case BaseDir:
			err = digestTree(ctx, h, b.lower)
		case BaseTar:
			var sum []byte
			if sum, err = fileDigest(ctx, b.cfg.Base.Path); err == nil {
				b.digest.text = kind + ":" + hex.EncodeToString(sum)
				return
			}
		}
		if err != nil {
			b.digest.err = fmt.Errorf("sandbox: digest of the base: %w", err)
			return
		}
		b.digest.text = kind + ":" + hex.EncodeToString(h.Sum(nil))
	})
	return b.digest.text, b.digest.err
}

// packageState is where package managers write down what is installed.
var packageState = []string{"/usr/lib/os-release", "/var/lib/dpkg/status", "/lib/apk/db/installed",
	"/var/lib/rpm/rpmdb.sqlite", "/usr/lib/sysimage/rpm/rpmdb.sqlite"}

var programDirs = []string{"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/local/lib", "/usr/lib"}

func digestHost(ctx context.Context, h hash.Hash) error {
	for _, f := range packageState {
		sum, err := fileDigest(ctx, f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %x\n", f, sum)
	}
	for _, d := range programDirs {
		entries, err := os.ReadDir(d) // sorted
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			st, err := e.Info()
			if err != nil {
				return err
			}
			size, link := st.Size(), ""
			if st.IsDir() {
				size = 0 // the size of a directory says how it grew
			}
			if st.Mode()&fs.ModeSymlink != 0 {
				if link, err = os.Readlink(filepath.Join(d, e.Name())); err != nil {
					return err
				}
			}
			fmt.Fprintf(h, "%q %o %d %q\n", filepath.Join(d, e.Name()), st.Mode(), size, link)
		}
	}
	return nil
}

func digestTree(ctx context.Context, h hash.Hash, root string) error {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	return fs.WalkDir(dir.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %o", name, st.Mode())
		switch {
		case st.Mode().IsRegular():
			f, err := dir.Open(name)
			if err != nil {
				return err
			}
			sum := sha256.New()
			_, err = io.Copy(sum, &ctxReader{ctx, f})
			f.Close()
			if err != nil {
				return err
			}
			fmt.Fprintf(h, " %x", sum.Sum(nil))
		case st.Mode()&fs.ModeSymlink != 0:
			to, err := dir.Readlink(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, " %q", to)
		}
		fmt.Fprintln(h)
		return nil
	})
}
