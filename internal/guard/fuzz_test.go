//go:build linux

package guard

import (
	"strings"
	"testing"
)

func FuzzMounts(f *testing.F) {
	f.Add([]byte("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"))
	f.Add([]byte("1 1 0:1 / / ro - tmpfs tmpfs rw\n"))
	f.Add([]byte("1 1 0:1 / /a\\134b rw x y z - a b c d\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parseMounts(b)
		if err != nil {
			return
		}
		for _, p := range list {
			if p.point == "" || p.fstype == "" {
				t.Errorf("%q gives %+v", b, p)
			}
		}
	})
}

func FuzzCall(f *testing.F) {
	f.Add([]byte("257 0xffffff9c 0x7ffd 0x80000 0x0 0x0 0x0 0x7ffc 0x7f\n"))
	f.Add([]byte("running\n"))
	f.Add([]byte("-1 0x7ffc 0x7f\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		nr, args := parseCall(b)
		if nr < 0 && args != [6]uint64{} {
			t.Errorf("%q gives arguments of no call", b)
		}
	})
}

func FuzzIDs(f *testing.F) {
	f.Add([]byte("Name:\tcat\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n"))
	f.Add([]byte("Name:\tx\\nUid:\t0\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, err := parseIDs(b); err == nil && (!strings.Contains(string(b), "\nUid:\t") || !strings.Contains(string(b), "\nGid:\t")) {
			t.Errorf("%q has ids", b)
		}
	})
}

func FuzzQuestion(f *testing.F) {
	f.Add([]byte{24, 0, 0, 0, 3, 0, 24, 0, 0, 0, 1, 0, 0, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if q, err := parseQuestion(b); err == nil && len(b) < 24 {
			t.Errorf("%x gives %+v", b, q)
		}
	})
}

func TestParsers(t *testing.T) {
	list, err := parseMounts([]byte("36 35 98:0 /x /mnt\\0402 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n37 36 0:5 / / ro,nosuid - tmpfs tmpfs rw\n"))
	if err != nil || len(list) != 2 || list[0].point != "/mnt 2" || list[0].id != 36 || list[0].fstype != "ext3" || !list[0].writable || list[1].writable {
		t.Errorf("%+v, %v", list, err)
	}
	for _, bad := range []string{"x\n", "36 35 98:0 /x /m rw,noatime ext3 /dev/root rw\n", "a 35 98:0 /x /m rw - ext3 r rw\n"} {
		if _, err := parseMounts([]byte(bad)); err == nil {
			t.Errorf("%q can be read", bad)
		}
	}
	if nr, args := parseCall([]byte("257 0xffffffffffffff9c 0x7ffd 0x80241 0x1b6 0x0 0x0 0x7ffc 0x7f\n")); nr != 257 || args[2] != 0x80241 {
		t.Errorf("%d %x", nr, args)
	}
	for _, none := range []string{"running", "-1 0x7ffc 0x7f", "", "257 1 2 3 4 5 6 7", "99999999999 0x0 0x0 0x0 0x0 0x0 0x0"} {
		if nr, _ := parseCall([]byte(none)); nr != -1 {
			t.Errorf("%q is call %d", none, nr)
		}
	}
	// A process names itself: what it writes there is no line of its own.
	if uid, gid, err := parseIDs([]byte("Name:\tx\\nUid:\t0\nTgid:\t1\nUid:\t10\t11\t12\t13\nGid:\t20\t21\t22\t23\n")); err != nil || uid != 10 || gid != 20 {
		t.Errorf("%d %d %v", uid, gid, err)
	}
}
