package ledger_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	runpayload "github.com/bodycam-dev/bodycam/internal/store/payload"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/fxamacker/cbor/v2"
)

// This is the part of the stranger's verifier for what bodycam itself records: given a bundle, it follows sections 14
// and 18 of docs/FORMAT.md down to the fields of a kernel event. How the fields are encoded it reads out of the
// document's own table.

const (
	formatDoc    = "../docs/FORMAT.md"
	kernelBundle = "testdata/kernel.bundle" // two events and an action of a run; -update makes it anew
)

// column is a row of the table in 18.1.
type column struct{ name, as string }

func columns(t *testing.T) []column {
	t.Helper()
	text, err := os.ReadFile(formatDoc)
	if err != nil {
		t.Fatal(err)
	}
	_, part, ok := strings.Cut(string(text), "### 18.1")
	part, _, ok2 := strings.Cut(part, "### 18.2")
	if !ok || !ok2 {
		t.Fatal("the document has no section 18.1")
	}
	var out []column
	for line := range strings.Lines(part) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		bit, err := strconv.Atoi(strings.TrimSpace(cells[1]))
		if err != nil {
			continue
		}
		if bit != len(out) {
			t.Fatalf("bit %d stands where bit %d should", bit, len(out))
		}
		out = append(out, column{strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])})
	}
	return out
}

var errForm = errors.New("not of the form")

// field reads one field and returns it as text.
func field(as string, b []byte) (string, []byte, error) {
	uvarint := func() uint64 {
		n, k := binary.Uvarint(b)
		if k <= 0 || k > 1 && b[k-1] == 0 {
			b = nil
			return 0
		}
		b = b[k:]
		return n
	}
	take := func(n uint64) []byte {
		if n > uint64(len(b)) {
			n = uint64(len(b))
		}
		v := b[:n]
		b = b[n:]
		return v
	}
	address := func() string {
		a, _ := netip.AddrFromSlice(take(uvarint()))
		return a.String()
	}
	varint := func() int64 { n := uvarint(); return int64(n>>1) ^ -int64(n&1) }
	if len(b) == 0 && as != "flag" {
		return "", nil, errForm
	}
	v := ""
	switch as {
	case "uint":
		v = fmt.Sprint(uvarint())
	case "int":
		v = fmt.Sprint(varint())
	case "int+1":
		v = fmt.Sprint(varint() - 1)
	case "bytes":
		v = strconv.Quote(string(take(uvarint())))
	case "list":
		list := []string{}
		for range uvarint() {
			list = append(list, strconv.Quote(string(take(uvarint()))))
		}
		v = strings.Join(list, " ")
	case "hash":
		v = hex.EncodeToString(take(32))
	case "flag":
		v = "yes"
	case "address":
		v = address()
	case "addrport":
		v = address()
		v += " port " + fmt.Sprint(uvarint())
	case "addresses":
		list := []string{}
		for range uvarint() {
			list = append(list, address())
		}
		v = strings.Join(list, " ")
	default:
		return "", nil, fmt.Errorf("the table says %q, which it doesn't explain", as)
	}
	return v, b, nil
}

// event reads an event's fields.
func event(cols []column, b []byte) (map[string]string, string, error) {
	mask, k := binary.Uvarint(b)
	if k <= 0 || mask>>len(cols) != 0 {
		return nil, "", errForm
	}
	b = b[k:]
	out := map[string]string{}
	var lines strings.Builder
	for n, c := range cols {
		if mask>>n&1 == 0 {
			continue
		}
		v, rest, err := field(c.as, b)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", c.name, err)
		}
		out[c.name], b = v, rest
		fmt.Fprintf(&lines, "%s: %s\n", c.name, v)
	}
	if len(b) != 0 {
		return nil, "", errForm
	}
	return out, lines.String(), nil
}

// fold follows an inclusion proof by RFC 9162, section 2.1.3.2.
func fold(leaf []byte, index, size uint64, proof [][]byte) ([]byte, error) {
	if index >= size {
		return nil, errForm
	}
	fn, sn, r := index, size-1, leaf
	for _, p := range proof {
		if sn == 0 {
			return nil, errForm
		}
		if fn&1 == 1 || fn == sn {
			r = h([]byte{1}, p, r)
			for fn&1 == 0 && fn != 0 {
				fn, sn = fn>>1, sn>>1
			}
		} else {
			r = h([]byte{1}, r, p)
		}
		fn, sn = fn>>1, sn>>1
	}
	if sn != 0 {
		return nil, errForm
	}
	return r, nil
}

type bundleMap struct {
	Tag        string            `cbor:"1,keyasint"`
	Genesis    []byte            `cbor:"2,keyasint"`
	Checkpoint []byte            `cbor:"3,keyasint"`
	Epochs     [][]any           `cbor:"4,keyasint"`
	Items      []cbor.RawMessage `cbor:"5,keyasint"`
	Anchors    [][]any           `cbor:"6,keyasint"`
}

func hashes(v any) [][]byte {
	var out [][]byte
	for _, x := range v.([]any) {
		out = append(out, x.([]byte))
	}
	return out
}

// opened is what a bundle discloses.
type opened struct {
	typ, seq uint64
	index    int // -1: not of a batch
	what     []byte
}

// bundle verifies a bundle of a log of the default profile with one Ed25519 key, and returns what it opens.
func (s *stranger) bundle(b []byte) ([]opened, error) {
	var m bundleMap
	if err := s.decode(b, &m); err != nil || m.Tag != "bodycam-ledger/v1 bundle" {
		return nil, fmt.Errorf("no bundle: %w", err)
	}
	var g genesisMap
	if err := s.decode(m.Genesis, &g); err != nil {
		return nil, err
	}
	s.id = h([]byte("bodycam-ledger/v1 genesis\n"), m.Genesis)
	s.files = map[string][]byte{"ledger/checkpoint": m.Checkpoint}
	lines := strings.Split(string(m.Checkpoint), "\n")
	size, err := strconv.Atoi(lines[1])
	if err != nil {
		return nil, err
	}
	headers := map[uint64]*headerMap{}
	var root []byte
	for _, e := range m.Epochs {
		raw := e[0].([]byte)
		hd := &headerMap{}
		if err := s.decode(raw, hd); err != nil {
			return nil, err
		}
		top, err := fold(h([]byte{0}, []byte("bodycam-ledger/v1 epoch\n"), raw), hd.Epoch, uint64(size), hashes(e[1]))
		if err != nil || root != nil && !bytes.Equal(root, top) {
			return nil, fmt.Errorf("epoch %d isn't under the checkpoint: %w", hd.Epoch, err)
		}
		root, headers[hd.Epoch] = top, hd
	}
	if err := s.signed(&g, size, root); err != nil {
		return nil, err
	}
	var out []opened
	for _, raw := range m.Items {
		more, err := s.item(raw, headers)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

func (s *stranger) item(raw []byte, headers map[uint64]*headerMap) ([]opened, error) {
	var it []any
	if err := cbor.Unmarshal(raw, &it); err != nil {
		return nil, err
	}
	enc := it[0].([]byte)
	var r recordMap
	if err := s.decode(enc, &r); err != nil {
		return nil, err
	}
	under := false
	for _, hd := range headers {
		if r.Seq >= hd.First && r.Seq-hd.First < hd.Count {
			top, err := fold(h([]byte{0}, enc), r.Seq-hd.First, hd.Count, hashes(it[1]))
			under = err == nil && bytes.Equal(top, hd.Root) && r.Inc == hd.Inc && bytes.Equal(r.Log, s.id)
		}
	}
	if !under {
		return nil, fmt.Errorf("record %d isn't under its epoch", r.Seq)
	}
	switch {
	case len(it) == 4:
		if !bytes.Equal(h([]byte{2}, it[2].([]byte), it[3].([]byte)), r.Commitment) {
			return nil, fmt.Errorf("the payload of record %d is another", r.Seq)
		}
		return []opened{{r.Type, r.Seq, -1, it[3].([]byte)}}, nil
	case len(it) == 2:
		return nil, nil
	}
	var out []opened
	for _, x := range it[2].([]any) {
		e := x.([]any)
		index, salt, what := e[0].(uint64), e[1].([]byte), e[2].([]byte)
		proof, group := hashes(e[3]), index/16
		others := int(min(16, r.Count-16*group) - 1)
		if r.Form&15 != 4 || len(proof) < others {
			return nil, fmt.Errorf("event %d of record %d has no proof", index, r.Seq)
		}
		leaf := append([]byte{0}, bytes.Join(proof[:index%16], nil)...)
		leaf = append(append(leaf, h([]byte{4}, salt, what)...), bytes.Join(proof[index%16:others], nil)...)
		top, err := fold(h(leaf), group, (r.Count+15)/16, proof[others:])
		if err != nil || !bytes.Equal(top, r.Commitment) || len(salt) != 16 {
			return nil, fmt.Errorf("event %d of record %d is another: %w", index, r.Seq, err)
		}
		out = append(out, opened{r.Type, r.Seq, int(index), what})
	}
	return out, nil
}

// kernelEvents are the events of the example run. The last has every field.
func kernelEvents() []bodycam.Event {
	proc, sh := bodycam.Proc{PID: 4242, Start: 81_000_000_000}, bodycam.Proc{PID: 4200, Start: 80_000_000_000}
	at := func(n int) bodycam.Event {
		return bodycam.Event{Time: 1_790_000_000_000_000_000 + int64(n), Boot: 82_000_000_000 + uint64(n), Sensor: "bpf", Window: bodycam.WindowAgent,
			Proc: proc, TID: 4242, Parent: sh, UID: 1000, GID: 1000, ABI: bodycam.ABIAMD64, NR: -1}
	}
	run, open, all := at(1), at(2), at(3)
	run.Type, run.NR, run.Exe, run.Argv, run.CWD = bodycam.TypeExec, 59, "/usr/bin/cat", []string{"cat", ".env"}, "/workspace"
	open.Type, open.NR, open.Path, open.PathGiven, open.Dev, open.Ino = bodycam.TypeOpen, 257, "/workspace/.env", ".env", 8<<32|1, 1311
	open.Access, open.Flags, open.Count = bodycam.Read, 0x80000, 2
	open.LastBoot = open.Boot + 900
	all.Type, all.NR, all.SID, all.Exe, all.Argv, all.CWD, all.Script, all.ArgvLen, all.ArgvHash = bodycam.TypeConnect, 42, -3, "/e\xff", []string{"", "\n"}, "/", "/s", 9, [32]byte{5}
	all.Path, all.PathGiven, all.Path2, all.Path2Given, all.Dev, all.Ino, all.Access, all.Flags = "/a", "a", "/b", "b", 1, 2, bodycam.Write|bodycam.Temp, 3
	all.Bytes, all.BytesRead, all.BytesWritten, all.Mapped, all.Count, all.LastBoot, all.Proto = 4, 5, 6, true, 7, 8, bodycam.ProtoTCP
	all.Local, all.Remote, all.UnixAddr = netip.MustParseAddrPort("10.0.0.2:0"), netip.MustParseAddrPort("[2001:db8::1]:443"), "@u"
	all.Host, all.HostSource, all.Answers = "example.org", bodycam.HostSNI, []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::1")}
	all.Cookie, all.Child, all.Signal, all.Status, all.Errno, all.Marks, all.Detail = 10, bodycam.Proc{PID: 11, Start: 12}, 9, 256, 13, bodycam.MarkRaced, "d"
	return []bodycam.Event{run, open, all}
}

func kernelAction() *bodycam.Action {
	exit := 0
	return &bodycam.Action{
		Intent:    bodycam.Intent{Tool: "shell", Args: json.RawMessage(`{"command":"cat .env"}`)},
		Policy:    []bodycam.Policy{{Name: "guard", Version: "3", Verdict: "allow"}},
		Execution: bodycam.Execution{Command: "cat .env", Started: 1_790_000_000_000_000_000, Ended: 1_790_000_000_000_250_000},
		Effects:   bodycam.Effects{Return: "TOKEN=1\n", Exit: &exit, Events: [][2]uint64{{1, 2}}, Observed: map[string]uint64{"open": 2, "exec": 1}, Confidence: 1},
		Context:   bodycam.Context{Environment: "sandbox", Sources: []bodycam.Source{{Name: "instruction", SHA256: strings.Repeat("5a", 32)}}},
	}
}

// makeKernelBundle records the example run and discloses from it.
func makeKernelBundle(t *testing.T) []byte {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "r")
	id := identity(t)
	w, err := store.Create(dir, bodycam.Run{ID: "r", Started: time.Now()}, &store.Sealing{
		Signers: []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 3)}, Recipients: []age.Recipient{id.Recipient()}, Recorder: "example"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range kernelEvents() {
		err = errors.Join(err, w.Event(&e))
	}
	if err := errors.Join(err, w.Flush(), w.Action(kernelAction()), w.Close()); err != nil {
		t.Fatal(err)
	}
	lr, err := ledger.OpenReader(os.DirFS(dir), id)
	if err != nil {
		t.Fatal(err)
	}
	defer lr.Close()
	b, err := lr.Disclose([]ledger.Disclose{{Seq: 1, Events: []int{1, 2}}, {Seq: 2}})
	if err != nil {
		t.Fatal(err)
	}
	return b.Append(nil)
}

// TestStrangerKernelEvents: with the document alone, a disclosed bundle is verified down to the fields of its events.
func TestStrangerKernelEvents(t *testing.T) {
	if *update {
		if err := os.WriteFile(kernelBundle, makeKernelBundle(t), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(kernelBundle)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"committed": committed, "made now": makeKernelBundle(t)} {
		got, err := newStranger(t, "valid.tar").bundle(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(got) != 3 || got[0].typ != 16 || got[1].index != 2 || got[2].typ != 17 {
			t.Fatalf("%s: it opens %+v", name, got)
		}
		for i, o := range got[:2] {
			compareEvent(t, columns(t), o.what, kernelEvents()[i+1], uint64(i+2))
		}
		if want := runpayload.AppendAction(nil, kernelAction()); !bytes.Equal(got[2].what, want) {
			t.Errorf("%s: the action is %x, want %x", name, got[2].what, want)
		}
		for i := range b { // whatever byte is changed, the stranger notices
			if i%7 != 0 {
				continue
			}
			bad := bytes.Clone(b)
			bad[i] ^= 1
			if strangerAccepts(t, bad) {
				t.Errorf("%s: with byte %d changed it passes", name, i)
			}
		}
	}
}

// TestStrangerRun: with the document and a key, a whole run is verified and opened, every event down to its fields.
func TestStrangerRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	id := identity(t)
	w, err := store.Create(dir, bodycam.Run{ID: "r", Started: time.Now()}, &store.Sealing{
		Signers: []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 3)}, Recipients: []age.Recipient{id.Recipient()}, Recorder: "example"})
	if err != nil {
		t.Fatal(err)
	}
	const events, actions = 600, 450 // more than one batch; more than one epoch
	for i := range events {
		e := kernelEvents()[i%3]
		err = errors.Join(err, w.Event(&e))
	}
	for range actions {
		err = errors.Join(err, w.Action(kernelAction()))
	}
	err = errors.Join(err, w.Rows([]bodycam.Row{{Kind: bodycam.RowTool, Command: "ls"}}), w.Findings([]bodycam.Finding{{Rule: "r1", Count: 1}}), w.Close())
	if err != nil {
		t.Fatal(err)
	}
	s := newStranger(t, "valid.tar")
	s.files, s.ages = map[string][]byte{}, []age.Identity{id}
	for _, name := range []string{"ledger/genesis", "ledger/00000000.log", "ledger/00000000.keys", "ledger/epochs", "ledger/checkpoint", "payload/00000000.bin"} {
		if s.files[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cols := columns(t)
	seq, seen := uint64(0), map[uint64]int{}
	s.each = func(r *recordMap, what []byte) error {
		seen[r.Type]++
		switch r.Type {
		case 16:
			seq++
			compareEvent(t, cols, what, kernelEvents()[(seq-1)%3], seq)
		case 19:
			var head struct {
				Name string `cbor:"1,keyasint"`
				Size uint64 `cbor:"2,keyasint"`
				Sum  []byte `cbor:"3,keyasint"`
			}
			rest, err := cbor.UnmarshalFirst(what, &head)
			if err != nil || uint64(len(rest)) != head.Size || !bytes.Equal(h(rest), head.Sum) {
				t.Errorf("a file: %+v, %v", head, err)
			}
		}
		return nil
	}
	if err := s.verify(); err != nil {
		t.Fatal(err)
	}
	if seen[16] != events || seen[17] != actions || seen[18] != 1 || seen[19] != 1 || seen[20] != 1 || seen[24] != 1 {
		t.Errorf("by type it opened %v", seen)
	}
}

func strangerAccepts(t *testing.T, b []byte) (ok bool) {
	defer func() {
		if recover() != nil { // a stranger who panics hasn't accepted it
			ok = false
		}
	}()
	_, err := newStranger(t, "valid.tar").bundle(b)
	return err == nil
}

// compareEvent holds what the table gives against what package bodycam gives.
func compareEvent(t *testing.T, cols []column, b []byte, want bodycam.Event, seq uint64) {
	t.Helper()
	got, _, err := event(cols, b)
	if err != nil {
		t.Fatal(err)
	}
	want.Seq = seq
	if again := want.AppendBinary(nil); !bytes.Equal(again, b) {
		t.Fatalf("the event is %x, want %x", b, again)
	}
	q, n := strconv.Quote, func(v any) string { return fmt.Sprint(v) }
	text := map[string]string{
		"seq": n(want.Seq), "time": n(want.Time), "boot": n(want.Boot), "type": n(uint8(want.Type)), "nr": n(want.NR), "abi": n(uint8(want.ABI)), "sensor": q(want.Sensor),
		"window": n(uint8(want.Window)), "pid": n(want.Proc.PID), "pid_start": n(want.Proc.Start), "tid": n(want.TID), "ppid": n(want.Parent.PID),
		"ppid_start": n(want.Parent.Start), "uid": n(want.UID), "gid": n(want.GID), "session": n(want.SID), "exe": q(want.Exe), "cwd": q(want.CWD), "script": q(want.Script),
		"argv_len": n(want.ArgvLen), "argv_sha256": hex.EncodeToString(want.ArgvHash[:]), "path": q(want.Path), "path_given": q(want.PathGiven), "path2": q(want.Path2),
		"path2_given": q(want.Path2Given), "dev": n(want.Dev), "ino": n(want.Ino), "access": n(uint16(want.Access)), "flags": n(want.Flags), "bytes": n(want.Bytes),
		"bytes_read": n(want.BytesRead), "bytes_written": n(want.BytesWritten), "mapped": "yes", "count": n(want.Count), "last_boot": n(want.LastBoot),
		"proto": n(uint8(want.Proto)), "laddr": fmt.Sprintf("%s port %d", want.Local.Addr(), want.Local.Port()), "addr": fmt.Sprintf("%s port %d", want.Remote.Addr(), want.Remote.Port()),
		"unix": q(want.UnixAddr), "host": q(want.Host), "host_source": n(uint8(want.HostSource)), "cookie": n(want.Cookie), "child_pid": n(want.Child.PID),
		"child_start": n(want.Child.Start), "signal": n(want.Signal), "status": n(want.Status), "errno": n(want.Errno), "marks": n(uint32(want.Marks)), "detail": q(want.Detail),
	}
	var argv, answers []string
	for _, a := range want.Argv {
		argv = append(argv, q(a))
	}
	for _, a := range want.Answers {
		answers = append(answers, a.String())
	}
	text["argv"], text["answers"] = strings.Join(argv, " "), strings.Join(answers, " ")
	if len(text) != len(cols) {
		t.Errorf("the table has %d fields, an event %d", len(cols), len(text))
	}
	for name, v := range got {
		if text[name] != v {
			t.Errorf("%s: the table gives %s, want %s", name, v, text[name])
		}
	}
	if want.Mapped && len(got) != len(cols) {
		t.Errorf("%d of %d fields were read", len(got), len(cols))
	}
}

// TestFormatNumbers keeps the lists of numbers in section 18.1 true.
func TestFormatNumbers(t *testing.T) {
	text, err := os.ReadFile(formatDoc)
	if err != nil {
		t.Fatal(err)
	}
	list := func(what string, from int, name func(i int) string) {
		var parts []string
		for i := from; ; i++ {
			s := name(i)
			if s == "" && i > 0 {
				break
			}
			parts = append(parts, fmt.Sprintf("%d %s", i, s))
		}
		if line := "- " + what + ": " + strings.Join(parts, ", ") + "\n"; !strings.Contains(string(text), line) {
			t.Errorf("the document lacks the line\n%s", line)
		}
	}
	types := bodycam.Types()
	list("type", 0, func(i int) string { return at(types, i) })
	list("abi", 1, func(i int) string {
		if i > int(bodycam.ABIARM64) {
			return ""
		}
		return bodycam.ABI(i).String()
	})
	list("window", 1, func(i int) string {
		if i > int(bodycam.WindowProbe) {
			return ""
		}
		return bodycam.Window(i).String()
	})
	list("proto", 1, func(i int) string {
		if i > int(bodycam.ProtoOther) {
			return ""
		}
		return bodycam.Proto(i).String()
	})
	list("host_source", 1, func(i int) string {
		if i > int(bodycam.HostLiteral) {
			return ""
		}
		return bodycam.HostSource(i).String()
	})
	list("access, by bit", 0, func(i int) string {
		if i > 15 {
			return ""
		}
		return bodycam.Access(1 << i).String()
	})
	list("marks, by bit", 0, func(i int) string { return at(bodycam.Mark(1<<i).Names(), 0) })
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}

// sayRun tells the values of the worked example that come from the committed bundle.
func (s *stranger) sayRun(t *testing.T) {
	t.Helper()
	b, err := os.ReadFile(kernelBundle)
	if err != nil {
		t.Fatal(err)
	}
	got, err := newStranger(t, "valid.tar").bundle(b)
	if err != nil {
		t.Fatal(err)
	}
	_, lines, err := event(columns(t), got[0].what)
	if err != nil {
		t.Fatal(err)
	}
	s.say("event", got[0].what)
	s.say("event-fields", []byte(lines))
	s.say("action", got[2].what)
	a, err := runpayload.ParseAction(got[2].what)
	if err != nil {
		t.Fatal(err)
	}
	js, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	s.say("action-json", js)
}
