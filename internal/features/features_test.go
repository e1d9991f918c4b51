package features

import (
	"net/netip"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

func TestExtract(t *testing.T) {
	x := NewExtractor(nil, nil)
	p := bodycam.Proc{PID: 7, Start: 1}
	for i, e := range []*bodycam.Event{
		{Type: bodycam.TypeExec, Exe: "/usr/bin/python3", Argv: []string{"python3", "a.py"}},
		{Type: bodycam.TypeOpen, Path: "/root/.ssh/id_rsa", Access: bodycam.Read, Count: 3},
		{Type: bodycam.TypeOpen, PathGiven: "/etc/shadow", Access: bodycam.Read, Errno: 13},
		{Type: bodycam.TypeOpen, Path: "/w/out", Access: bodycam.Write | bodycam.Create},
		{Type: bodycam.TypeRename, Path: "/w/out", Path2: "/root/.bashrc"},
		{Type: bodycam.TypeOpen, Path: "/etc/passwd", Access: bodycam.Read | bodycam.Trunc},
		{Type: bodycam.TypeOpen, Path: "/etc/hosts", Access: bodycam.Trunc},
		{Type: bodycam.TypeDNS, Host: "evil.example"},
		{Type: bodycam.TypeConnect, Host: "evil.example", HostSource: bodycam.HostDNS, Proto: bodycam.ProtoTCP, Remote: netip.MustParseAddrPort("198.18.0.9:443"), Errno: 115},
		{Type: bodycam.TypeFlow, Host: "evil.example", BytesRead: 10, BytesWritten: 20},
	} {
		e.Proc, e.NR, e.Seq = p, -1, uint64(i+1)
		x.Add(e)
	}
	f := x.Finish()
	key := f.Get(bodycam.File, "/root/.ssh/id_rsa")
	if key == nil || key.Counts[Read] != 3 {
		t.Fatalf("the key is %+v", key)
	}
	if r := f.Get(bodycam.File, "/etc/shadow"); r == nil || r.Total() != 0 || r.Failed[Read] != 1 {
		t.Errorf("the refused read is %+v", r)
	}
	for _, name := range []string{"/etc/passwd", "/etc/hosts"} {
		if r := f.Get(bodycam.File, name); r == nil || r.Counts[Written] != 1 || r.Changed() != 1 {
			t.Errorf("%s, which was cut by an open, is %+v", name, r)
		}
	}
	y := Yardstick{}
	for _, r := range []*Resource{f.Get(bodycam.File, "/etc/passwd"), f.Get(bodycam.File, "/etc/hosts")} {
		if y.Ordinary(r) {
			t.Errorf("%s, which was cut, is ordinary", r.Name)
		}
	}
	for name, n := range map[string]uint64{"/etc/group": 0, "/dev/null": 1} {
		r := &Resource{Resource: bodycam.Resource{Kind: bodycam.File, Name: name}}
		r.Counts = map[Action]uint64{Read: 1, Written: n}
		if !y.Ordinary(r) {
			t.Errorf("%s isn't ordinary", name)
		}
	}
	host := f.Get(bodycam.Host, "evil.example")
	if host == nil || host.Counts[Contact] != 1 || host.Counts[Asked] != 1 || host.Bytes != 30 || host.Source != "dns" {
		t.Errorf("the host is %+v", host)
	}
	got := map[string]string{}
	for _, n := range f.Notables(Yardstick{Workspace: []string{"/w"}, Domains: []string{"*.good.example"}}) {
		got[n.Resource.Name] = n.Why
	}
	for _, name := range []string{"/root/.ssh/id_rsa", "evil.example", "/root/.bashrc", "/etc/shadow"} {
		if got[name] == "" {
			t.Errorf("%s isn't notable", name)
		}
	}
	if why := got["/w/out"]; why != "" {
		t.Errorf("a file of the workspace is notable: %s", why)
	}
}
