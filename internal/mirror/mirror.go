// Package mirror keeps copies of ledgers off the machine that writes them, in a store that only ever grows: a
// directory, or one behind TLS ([Serve]).
//
// A mirror gets what the log's last checkpoint covers, which is durable and never changes again, and the checkpoint
// after it. It refuses to shrink, to overwrite, and to take a checkpoint that covers less than the last, or the same
// otherwise. It holds ciphertext: the wraps of the keys stay on the recorder's machine unless they are asked for,
// since an erasure doesn't reach a mirror. What a mirror's keeper gets to know is sizes, times and what records say in
// the clear.
//
//	DIR/<log's identity>/ledger/…  payload/…    the log, as it lies in a run directory
//	DIR/<log's identity>/heads.jsonl            every checkpoint, with the time it arrived
package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// Target is a store of copies. Every method may be called again after a failure.
type Target interface {
	// Files tells what the copy of a log has, by name; none where there is no copy.
	Files(ctx context.Context, log string) (map[string]int64, error)
	// Append adds bytes to a file of a log at an offset. Bytes that are there already must be the same ones.
	Append(ctx context.Context, log, name string, offset int64, data []byte) error
	// Digest is the SHA-256 of a file's first size bytes.
	Digest(ctx context.Context, log, name string, size int64) ([32]byte, error)
	// Read opens a file from an offset on.
	Read(ctx context.Context, log, name string, offset int64) (io.ReadCloser, error)
	// Publish adds a checkpoint.
	Publish(ctx context.Context, log string, note []byte) error
	// Heads are the checkpoints that arrived, oldest first.
	Heads(ctx context.Context, log string) ([]Head, error)
	// String names the target for people.
	String() string
}

// Head is a checkpoint and when it arrived.
type Head struct {
	Time int64  `json:"time"` // nanoseconds since 1970 UTC, by the mirror's clock
	Note string `json:"note"`
}

// ErrConflict is wrapped where what is to be mirrored isn't a continuation of what the mirror has. To try again is of
// no use: one of the two was changed.
var ErrConflict = errors.New("the mirror has something else")

// errRefused: the request is wrong, whatever the mirror has.
var errRefused = errors.New("the mirror refuses")

// maxAppend bounds what one Append takes, in bytes.
const maxAppend = 4 << 20

var (
	logForm  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	nameForm = regexp.MustCompile(`^(ledger/(genesis|epochs|[0-9]{8}\.(log|keys))|payload/[0-9]{8}\.bin|` + chunkForm + `)$`)
	chunk    = regexp.MustCompile(`^` + chunkForm + `$`)
)

// chunkForm is the name of a chunk of a large payload: the digest of its bytes.
const chunkForm = `payload/[0-9a-f]{2}/[0-9a-f]{64}`

func validName(log, name string) error {
	if !logForm.MatchString(log) {
		return fmt.Errorf("%w: %.80q is no log's identity", errRefused, log)
	}
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%w: %.80q is no file of a log", errRefused, name)
	}
	return nil
}

// checkGenesis makes sure that a genesis is the one that the log is named for.
func checkGenesis(log string, b []byte) error {
	g, err := ledger.ParseGenesis(b)
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	if id := g.ID(); fmt.Sprintf("%x", id[:]) != log {
		return fmt.Errorf("%w: the genesis is that of log %x", errRefused, id[:])
	}
	return nil
}

// checkHead makes sure that a checkpoint may follow the last one.
func checkHead(genesis, note []byte, last *checkpoint.Note) (*checkpoint.Note, error) {
	g, err := ledger.ParseGenesis(genesis)
	if err != nil {
		return nil, fmt.Errorf("%w: the mirror has no genesis of that log yet: %w", errRefused, err)
	}
	n, err := checkpoint.Parse(note)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	switch {
	case n.Origin != g.Origin():
		return nil, fmt.Errorf("%w: the checkpoint is that of %.80q", errRefused, n.Origin)
	case last == nil:
	case n.Size < last.Size:
		return nil, fmt.Errorf("%w: a checkpoint of %d epochs, where this one covers %d", ErrConflict, last.Size, n.Size)
	case n.Size == last.Size && n.Root != last.Root:
		return nil, fmt.Errorf("%w: another checkpoint of %d epochs: the log was forked", ErrConflict, n.Size)
	}
	return n, nil
}

// Open opens a target: https://HOST:PORT, or a directory.
func Open(where string, o ClientOptions) (Target, error) {
	switch {
	case strings.HasPrefix(where, "https://"):
		return newClient(where, o)
	case strings.Contains(where, "://"):
		return nil, fmt.Errorf("mirror %s: want https://HOST:PORT or a directory", where)
	}
	return NewDir(where), nil
}
