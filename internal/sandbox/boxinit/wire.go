//go:build linux

package boxinit

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/seccomp"
)

const (
	maxFrame = 32 << 20 // holds an argv and environment of any size the kernel takes
	maxFDs   = 64
)

// Request is what the recorder asks of init. One of the fields after ID is set.
type Request struct {
	ID       uint64
	Setup    *Setup  `json:",omitempty"`
	Start    *Start  `json:",omitempty"`
	Unpack   *Unpack `json:",omitempty"`
	Dropped  bool    `json:",omitempty"`
	KillTree string  `json:",omitempty"` // group, when there is no cgroup to kill
	Dial     uint16  `json:",omitempty"` // a port of the box's loopback; the answer brings the connection
}

// Setup says how to build the box; it is the first request. Its files are the mounts, then what V1 counts; its answer
// brings the root directory, and the sockets of the network.
type Setup struct {
	Hostname  string
	DiskBytes uint64
	Inodes    uint64
	Rootless  bool
	Mounts    []Mount
	Dirs      []Dir
	Links     []Link
	Files     []File
	Proxied   bool
	Forward   []uint16
	Groups    []string
	V1        int // after the mounts, that many "tasks" files of version 1 for each group
}

// Mount puts one piece of the host into the box. Without Source the next file descriptor of the frame is the mount.
type Mount struct {
	Source   string
	Target   string // "/" is the base
	ReadOnly bool
	Overlay  bool // writes go to the box's own disk
}

// Dir is a directory to make where it is missing, with its parents.
type Dir struct {
	Path     string
	Mode     uint32
	UID, GID int
}

// Link is a symbolic link to make.
type Link struct{ Path, To string }

// File is a file of root's to write, in place of what the base has there.
type File struct {
	Path string
	Mode uint32
	Data []byte
}

// Start runs a command. Its files are the standard streams that it names, then the cgroup; its answer brings a pidfd,
// and its end follows as an Exit with the same ID.
type Start struct {
	Argv, Env     [][]byte
	Dir           []byte
	UID, GID      uint32
	Groups        []uint32
	Group         string
	Stdin, Stdout bool
	Stderr        bool
	Cgroup        bool // a cgroup v2 directory follows the standard streams
	Seccomp       seccomp.Mode
	Rootless      bool
	Stop          bool              // stop before Filter and exec
	Filter        []unix.SockFilter // installed last
	Traced        bool              // what Seccomp refuses stops for the tracer, which refuses it ([seccomp.Traced])
}

// Unpack extracts the tar stream of its one file, a pipe, below a directory.
type Unpack struct {
	Dir      string
	UID, GID int // owner of everything; -1 keeps the archive's
	Replace  bool
}

// Reply is what init tells: the answer to the request of that ID, or the end of the command it started.
type Reply struct {
	ID    uint64
	Err   string `json:",omitempty"`
	Errno int    `json:",omitempty"`
	Pid   int    `json:",omitempty"`
	Count uint64 `json:",omitempty"`
	Notes []string
	Exit  *Exit `json:",omitempty"`
	// Stopped comes with the pidfd of a command that waits for a tracer, before the answer to its start.
	Stopped bool `json:",omitempty"`
}

// Exit says that the process started by request ID has ended.
type Exit struct {
	Status                   uint32
	UserUS, SysUS, MaxRSSKiB int64
}

// Send writes one frame.
func Send(c *net.UnixConn, v any, fds ...int) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxFrame {
		return fmt.Errorf("message of %d bytes is larger than %d", len(body), maxFrame)
	}
	buf := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	buf = append(buf, body...)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, _, err := c.WriteMsgUnix(buf, oob, nil)
	if err != nil {
		return err
	}
	for n < len(buf) {
		m, err := c.Write(buf[n:])
		if err != nil {
			return err
		}
		n += m
	}
	return nil
}

// Recv reads one frame into v. The caller owns the files it returns, also with an error.
func Recv(c *net.UnixConn, v any) ([]*os.File, error) {
	var head [4]byte
	oob := make([]byte, unix.CmsgSpace(4*maxFDs))
	n, oobn, flags, _, err := c.ReadMsgUnix(head[:], oob)
	files, ferr := parseFDs(oob[:oobn])
	if err != nil {
		return files, err
	}
	if n == 0 {
		return files, io.EOF
	}
	if ferr != nil {
		return files, ferr
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return files, errors.New("more file descriptors in one message than expected")
	}
	if _, err := io.ReadFull(c, head[n:]); err != nil {
		return files, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxFrame {
		return files, fmt.Errorf("message of %d bytes is larger than %d", size, maxFrame)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c, body); err != nil {
		return files, err
	}
	return files, json.Unmarshal(body, v)
}

func parseFDs(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("control message: %w", err)
	}
	var files []*os.File
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue // another kind of control message
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// CloseAll closes files; nil ones are left out.
func CloseAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
