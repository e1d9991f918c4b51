package session

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// Decoy is a credential without use, to be planted before the agent starts.
type Decoy struct {
	bodycam.Decoy
	Content []byte // of the file; holds the value
}

// plant puts the decoys into the box, each only where nothing lies and outside the workspace, and writes down which
// were planted. Their values go nowhere else.
func (s *run) plant(ctx context.Context) error {
	var planted []bodycam.Decoy
	for _, d := range s.o.Decoys {
		free, err := s.free(d.Path)
		if err != nil {
			return fmt.Errorf("planting the decoy %s: %w", d.Name, err)
		}
		if !free {
			continue
		}
		dir := path.Dir(d.Path)
		err = s.box.Unpack(ctx, path.Dir(dir), sandbox.CopyOpts{Owner: s.plan.Agent.User}, func(w *tar.Writer) error {
			if _, err := s.box.Stat(dir); errors.Is(err, fs.ErrNotExist) {
				if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path.Base(dir) + "/", Mode: 0o700, Format: tar.FormatPAX}); err != nil {
					return err
				}
			}
			h := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(path.Base(dir), path.Base(d.Path)), Mode: 0o600, Size: int64(len(d.Content)), Format: tar.FormatPAX}
			if err := w.WriteHeader(h); err != nil {
				return err
			}
			_, err := w.Write(d.Content)
			return err
		})
		if err != nil {
			return fmt.Errorf("planting the decoy %s: %w", d.Name, err)
		}
		planted = append(planted, d.Decoy)
	}
	if len(planted) == 0 {
		return nil
	}
	return s.w.JSON(store.DecoysFile, planted)
}

// free tells whether a decoy may lie at a path.
func (s *run) free(p string) (bool, error) {
	for _, w := range s.plan.Judge.Workspace {
		if p == w || strings.HasPrefix(p, strings.TrimSuffix(w, "/")+"/") {
			return false, nil
		}
	}
	_, err := s.box.Stat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}
