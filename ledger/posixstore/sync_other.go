//go:build unix && !linux

package posixstore

import "os"

func datasync(f *os.File) error { return f.Sync() }
