//go:build linux

package sandbox

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/sandbox/boxinit"
)

// hostPasswd are the accounts of a host base: none of the host's people.
const hostPasswd = "root:x:0:0:root:/root:/bin/sh\n" +
	"daemon:x:1:1:daemon:/:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"

// NoUserError says that the base has no account of the agent's name.
type NoUserError struct{ Name string }

func (e *NoUserError) Error() string {
	return fmt.Sprintf("user %q is not in the box's /etc/passwd", e.Name)
}

// Hint says what to do next.
func (e *NoUserError) Hint() string {
	return "name a number, as 1000, or root; or make the account in a setup step (useradd)"
}

// adopt gives the agent's account the ids that the base knows it by, whatever the configuration says.
func (b *Box) adopt() error {
	a := &b.cfg.Agent
	if a.Name == "root" {
		return nil
	}
	passwd := []byte(hostPasswd)
	if b.lower != "" {
		var err error
		if passwd, err = (&planner{box: b}).read("/etc/passwd"); err != nil {
			return err
		}
	}
	if u, ok := findUser(bytes.NewReader(passwd), a.Name); ok {
		a.UID, a.GID = u.UID, u.GID // the home stays: the box makes it
		return nil
	}
	if a.UID == 0 {
		return &NoUserError{a.Name}
	}
	return nil
}

// lookup finds a user of the box.
func (b *Box) lookup(name string) (User, error) {
	root := User{Name: "root", Home: "/root"}
	switch name {
	case "", b.cfg.Agent.Name:
		return b.cfg.Agent, nil
	case "root", "0", "0:0":
		return root, nil
	}
	uid, gid, numeric := numericUser(name)
	if numeric && (uid >= boxinit.IDs || gid >= boxinit.IDs) {
		return User{}, fmt.Errorf("user %q: the box has ids below %d", name, boxinit.IDs)
	}
	switch {
	case numeric && uid == b.cfg.Agent.UID && gid == b.cfg.Agent.GID:
		return b.cfg.Agent, nil
	case numeric:
		return User{UID: uid, GID: gid, Home: "/"}, nil
	}
	f, err := b.openFile("/etc/passwd")
	if err != nil {
		return User{}, fmt.Errorf("user %q: %w", name, err)
	}
	defer f.Close()
	u, ok := findUser(io.LimitReader(f, 1<<20), name)
	if !ok {
		return User{}, fmt.Errorf("user %q is not in the box's /etc/passwd", name)
	}
	return u, nil
}

func numericUser(s string) (uid, gid uint32, ok bool) {
	us, gs, both := strings.Cut(s, ":")
	u, err := strconv.ParseUint(us, 10, 32)
	if err != nil {
		return 0, 0, false
	}
	g := u
	if both {
		if g, err = strconv.ParseUint(gs, 10, 32); err != nil {
			return 0, 0, false
		}
	}
	return uint32(u), uint32(g), true
}

// findUser reads passwd(5). Lines it doesn't understand are as good as absent.
func findUser(r io.Reader, name string) (User, bool) {
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		f := strings.Split(sc.Text(), ":")
		if len(f) != 7 || f[0] != name {
			continue
		}
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if err1 != nil || err2 != nil || uid >= boxinit.IDs || gid >= boxinit.IDs || !path.IsAbs(f[5]) {
			return User{}, false
		}
		return User{Name: name, UID: uint32(uid), GID: uint32(gid), Home: f[5]}, true
	}
	return User{}, false
}
