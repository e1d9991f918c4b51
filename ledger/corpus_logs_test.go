package ledger_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/ledgertest"
)

const (
	epochsFile  = "ledger/epochs"
	logFile     = "ledger/00000000.log"
	keysFile    = "ledger/00000000.keys"
	payloadFile = "payload/00000000.bin"
	headFile    = "ledger/checkpoint"
	genesisFile = "ledger/genesis"
)

func (g *generator) options() ledger.Options {
	return ledger.Manual(ledger.Options{
		Signers: g.signers[:1], Recipients: []age.Recipient{g.id.Recipient()}, Recorder: "corpus", Name: "example.org/corpus",
		EpochRecords: 4, CheckpointEvery: 1, Now: clock(),
	})
}

// both are the options of a log with two signature algorithms. Their bytes are many, so that few vectors have them.
func (g *generator) both() ledger.Options {
	opts := g.options()
	opts.Signers = g.signers
	return opts
}

func (g *generator) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *generator) append(w *ledger.Writer, kinds ...string) {
	g.t.Helper()
	for _, k := range kinds {
		_, err := w.Append(context.Background(), ledger.Entry{Type: ledger.TypeUser, Kind: k, Payload: []byte("payload of " + k)})
		g.must(err)
	}
}

// base is the log that most vectors start from: four epochs, records 0 (open) to 13 (close), 7 a batch, 9 large. It
// returns the checkpoint that was published after two epochs.
func (g *generator) base(opts ledger.Options) (s *ledgertest.Store, old string) {
	g.t.Helper()
	s = ledgertest.New()
	w, err := ledger.Create(s, opts)
	g.must(err)
	ctx := context.Background()
	g.append(w, "a", "b", "c", "d", "e", "f")
	events := [][]byte{[]byte("open /etc/passwd"), []byte("exec sh"), []byte("connect")}
	for i := len(events); i < 35; i++ { // two groups and three of a third
		events = append(events, fmt.Appendf(nil, "write /tmp/%d", i))
	}
	_, err = w.AppendBatch(ctx, ledger.Entry{Type: ledger.TypeUser + 1, Kind: "batch"}, events)
	g.must(err)
	g.must(w.Coverage("bpf", 3, 3, 0))
	g.must(w.Sync(ctx))
	old = string(w.Checkpoint().Marshal())
	g.append(w, "g")
	_, err = w.Append(ctx, ledger.Entry{Type: ledger.TypeUser, Kind: "large", Payload: bytes.Repeat([]byte("large "), 1000)})
	g.must(err)
	g.append(w, "i", "j", "k")
	g.must(w.Close())
	return s, old
}

// forged changes a copy of a log in pieces.
func (g *generator) forged(s *ledgertest.Store, change func(f *ledger.Forged)) *ledgertest.Store {
	f := ledger.Unpack(s)
	change(f)
	return g.packed(s, f)
}

func (g *generator) packed(s *ledgertest.Store, f *ledger.Forged) *ledgertest.Store {
	s = s.Clone()
	epochs, log, pay := f.Pack()
	s.Set(epochsFile, epochs)
	s.Set(logFile, log)
	s.Set(payloadFile, pay)
	return s
}

// sign publishes a checkpoint of a forged log.
func (g *generator) sign(s *ledgertest.Store, f *ledger.Forged, signers ...checkpoint.Signer) *ledgertest.Store {
	origin := f.Gen.Origin()
	n, err := checkpoint.Sign(checkpoint.Checkpoint{Origin: origin, Size: uint64(len(f.Epochs)), Root: f.Root()}, origin, 1_790_000_001, signers...)
	g.must(err)
	s.Set(headFile, n.Marshal())
	return s
}

// with changes one file of a copy of a log.
func with(s *ledgertest.Store, name string, change func(b []byte) []byte) *ledgertest.Store {
	s = s.Clone()
	s.Set(name, change(s.Bytes(name)))
	return s
}

func flip(i int) func([]byte) []byte {
	return func(b []byte) []byte {
		if i < 0 {
			i += len(b)
		}
		b[i] ^= 1
		return b
	}
}

var (
	verified   = expect{ledger.Verified, -1, false, ""}
	incomplete = func(claim string) expect { return expect{ledger.Incomplete, -1, false, claim} }
	tampered   = func(seq int64, exact bool) expect { return expect{ledger.Tampered, seq, exact, ""} }
)

func (g *generator) logs() {
	s, old := g.base(g.options())
	f := ledger.Unpack(s)
	id := f.Gen.ID()
	g.log("valid", "a whole log; the verifier has one of its keys", s, vector{}, verified)
	g.log("valid-content", "the same; the verifier also opens the payloads", s, vector{Identity: true}, expect{ledger.Verified, -1, false, "content verified"})
	g.log("valid-log-id", "the same; the verifier knows the log's identity only", s, vector{Keys: []string{}, Log: hex.EncodeToString(id[:])}, verified)
	g.log("valid-pinned", "the same; the verifier knows a checkpoint of two epochs", s, vector{Keys: []string{}, Checkpoint: old}, verified)
	g.log("no-root", "a whole log; the verifier brings no root of trust", s, vector{Keys: []string{}}, incomplete("identity unverifiable"))
	g.log("unknown-key", "a whole log; the verifier's key isn't the log's", s, vector{Keys: []string{g.key(g.next[0])}}, incomplete("identity unverifiable"))
	g.log("other-log", "another log than the verifier asked for", s, vector{Keys: []string{}, Log: strings.Repeat("00", 32)}, expect{ledger.Tampered, -1, false, "identity tampered"})
	g.editedLogs(s)
	g.cutLogs(s, old)
	g.forkedLogs(s, old)
	g.payloadLogs(s)
	g.encodedLogs(s)
	g.profileLogs()
	g.rotatedLogs()
	g.crashedLogs()
}

// editedLogs: records changed, removed, added, moved.
func (g *generator) editedLogs(s *ledgertest.Store) {
	kind := func(f *ledger.Forged) { f.Epochs[1].Frames[1].Rec.Kind = "x" }
	g.log("edit", "the kind of record 5 was changed in place", g.forged(s, func(f *ledger.Forged) {
		raw := slices.Clone(f.Epochs[1].Frames[1].Raw)
		raw[bytes.IndexByte(raw, 'e')] = 'x'
		f.Epochs[1].Frames[1].Raw = raw
	}), vector{}, tampered(5, true))
	g.log("edit-rechained", "the kind of record 5 was changed, and the chain of its epoch made to fit", g.forged(s, func(f *ledger.Forged) {
		kind(f)
		f.Rechain(1)
		f.Epochs = append(f.Epochs[:2:2], ledger.Unpack(s).Epochs[2:]...)
	}), vector{}, tampered(4, false))
	g.log("edit-resealed", "the kind of record 5 was changed, and every digest and header after it made to fit", g.forged(s, func(f *ledger.Forged) {
		kind(f)
		f.Rechain(1)
		f.Rehead(1)
	}), vector{}, tampered(0, false))
	g.log("edit-resealed-pinned", "the same, against a checkpoint that the verifier knows", g.forged(s, func(f *ledger.Forged) {
		f.Epochs[2].Frames[1].Rec.Kind = "x"
		f.Rechain(2)
		f.Rehead(2)
	}), vector{Checkpoint: string(s.Bytes(headFile))}, tampered(0, false))
	g.log("delete", "record 5 was removed", g.forged(s, func(f *ledger.Forged) {
		f.Epochs[1].Frames = slices.Delete(f.Epochs[1].Frames, 1, 2)
	}), vector{}, tampered(5, true))
	g.log("insert", "record 5 stands there twice", g.forged(s, func(f *ledger.Forged) {
		f.Epochs[1].Frames = slices.Insert(f.Epochs[1].Frames, 2, f.Epochs[1].Frames[1])
	}), vector{}, tampered(6, true))
	g.log("insert-at-end", "a record was added behind an epoch's last", g.forged(s, func(f *ledger.Forged) {
		f.Epochs[1].Frames = append(f.Epochs[1].Frames, f.Epochs[1].Frames[3])
	}), vector{}, tampered(8, true))
	g.log("reorder", "records 5 and 6 changed places", g.forged(s, func(f *ledger.Forged) {
		e := &f.Epochs[1]
		e.Frames[1], e.Frames[2] = e.Frames[2], e.Frames[1]
	}), vector{}, tampered(5, true))
	g.log("reorder-epochs", "epochs 1 and 2 changed places", g.forged(s, func(f *ledger.Forged) {
		f.Epochs[1], f.Epochs[2] = f.Epochs[2], f.Epochs[1]
	}), vector{}, tampered(4, false))
	g.log("delete-epoch", "epoch 1 was removed", g.forged(s, func(f *ledger.Forged) {
		f.Epochs = slices.Delete(f.Epochs, 1, 2)
	}), vector{}, tampered(4, false))
	g.log("header-count", "the header of epoch 1 says three records", g.forged(s, func(f *ledger.Forged) {
		f.Epochs[1].Header.Count = 3
	}), vector{}, tampered(7, true))
	g.log("header-coverage", "the counters in the header of epoch 3 were changed", g.forged(s, func(f *ledger.Forged) {
		f.Epochs[3].Header.Coverage[0].Seen = 4
	}), vector{}, tampered(0, false))
}

// cutLogs: the end is missing.
func (g *generator) cutLogs(s *ledgertest.Store, old string) {
	first := func(n int) func(f *ledger.Forged) { return func(f *ledger.Forged) { f.Epochs = f.Epochs[:n] } }
	back := func(s *ledgertest.Store) *ledgertest.Store {
		s.Set(headFile, []byte(old))
		return s
	}
	g.log("cut-at-border", "the epochs after the second are gone, the checkpoint isn't", g.forged(s, first(2)), vector{}, tampered(8, false))
	g.log("cut-at-border-rolled-back", "the epochs after the second are gone, and an older checkpoint was put in place", back(g.forged(s, first(2))), vector{}, incomplete("coverage incomplete"))
	g.log("cut-at-border-pinned", "the same; the verifier knows a later checkpoint", back(g.forged(s, first(2))), vector{Checkpoint: string(s.Bytes(headFile))}, tampered(8, false))
	g.log("cut-off-border", "the log file ends within record 9", with(s, logFile, func(b []byte) []byte { return b[:len(b)-400] }), vector{}, tampered(9, true))
	g.log("cut-off-border-rolled-back", "the last epoch and two records of the third are gone, its entry says so, and an older checkpoint was put in place", back(g.forged(s, func(f *ledger.Forged) {
		f.Epochs[2].Frames = f.Epochs[2].Frames[:2]
		f.Epochs = f.Epochs[:3]
	})), vector{}, tampered(10, true))
	tail := g.forged(s, first(3))
	headers, logLen, payLen := ledger.SplitEpochs(tail.Bytes(epochsFile))
	var two []byte
	for i := range 2 {
		two = append(two, ledger.EpochFrame(logLen[i], payLen[i], headers[i])...)
	}
	tail.Set(epochsFile, two)
	tail.Set(logFile, tail.Bytes(logFile)[:len(tail.Bytes(logFile))-10])
	g.log("torn-tail", "the writer was cut off: records after the last sealed epoch, the last one torn", back(tail), vector{}, incomplete("integrity incomplete"))
	g.log("shrunk-and-resealed", "whoever holds the keys dropped the last epochs, sealed others and signed them; the verifier knows the old checkpoint", func() *ledgertest.Store {
		f := ledger.Unpack(s)
		f.Epochs = f.Epochs[:3]
		f.Epochs[2].Frames[2].Rec.Kind = "x"
		f.Rechain(2)
		f.Rehead(2)
		f.Epochs = append(f.Epochs, f.Epochs[2])
		f.Epochs[3].Header.Epoch++
		f.Epochs[3].Frames = nil
		f.Rechain(3)
		f.Rehead(3)
		return g.sign(g.packed(s, f), f, g.signers[:1]...)
	}(), vector{Checkpoint: string(s.Bytes(headFile))}, tampered(0, false))
}

// forkedLogs: two histories, or parts of two logs.
func (g *generator) forkedLogs(s *ledgertest.Store, old string) {
	f := ledger.Unpack(s)
	f.Epochs[2].Frames[0].Rec.Kind = "y"
	f.Rechain(2)
	f.Rehead(2)
	fork := g.sign(g.packed(s, f), f, g.signers[:1]...)
	g.log("fork", "another history from record 8 on, signed by the log's own keys", fork, vector{}, verified)
	g.log("fork-pinned", "the same; the verifier knows the checkpoint of the first history", fork, vector{Checkpoint: string(s.Bytes(headFile))}, tampered(0, false))
	g.log("fork-pinned-before", "the same; the verifier knows a checkpoint from before the fork, which proves nothing", fork, vector{Checkpoint: old}, verified)
	opts := g.options()
	other, _ := g.base(opts)
	mixed := s.Clone()
	mixed.Set(epochsFile, other.Bytes(epochsFile))
	g.log("foreign-epochs", "the epochs file is that of another log", mixed, vector{}, tampered(0, false))
	mixed = s.Clone()
	mixed.Set(headFile, other.Bytes(headFile))
	g.log("foreign-checkpoint", "the checkpoint is that of another log", mixed, vector{}, expect{ledger.Tampered, -1, false, "integrity tampered"})
	two, _ := g.base(g.both())
	g.log("valid-two-algorithms", "a whole log, signed with Ed25519 and ML-DSA-44", two, vector{}, verified)
	sigs := func(change func(n *checkpoint.Note)) *ledgertest.Store {
		return with(two, headFile, func(b []byte) []byte {
			n, err := checkpoint.Parse(b)
			g.must(err)
			change(n)
			return n.Marshal()
		})
	}
	bad := expect{ledger.Tampered, -1, false, "integrity tampered"}
	g.log("stripped-mldsa", "the checkpoint lacks the ML-DSA-44 signature", sigs(func(n *checkpoint.Note) { n.Signatures = n.Signatures[:1] }), vector{}, bad)
	g.log("stripped-ed25519", "the checkpoint lacks the Ed25519 signature", sigs(func(n *checkpoint.Note) { n.Signatures = n.Signatures[1:] }), vector{}, bad)
	g.log("false-signature", "a bit of the ML-DSA-44 signature was changed", sigs(func(n *checkpoint.Note) { n.Signatures[1].Bytes[100] ^= 1 }), vector{}, bad)
	g.log("false-time", "the time of the ML-DSA-44 signature was changed", sigs(func(n *checkpoint.Note) { n.Signatures[1].Bytes[7] ^= 1 }), vector{}, bad)
	g.log("double-signature", "two signatures of one key", sigs(func(n *checkpoint.Note) { n.Signatures = append(n.Signatures, n.Signatures[0]) }), vector{}, bad)
	g.log("false-size", "the checkpoint's size was changed", sigs(func(n *checkpoint.Note) { n.Size-- }), vector{}, tampered(0, false))
	gone := s.Clone()
	gone.Set(headFile, nil)
	g.log("no-checkpoint", "the checkpoint is gone", gone, vector{}, incomplete("integrity incomplete"))
}

// payloadLogs: payloads and keys changed or missing.
func (g *generator) payloadLogs(s *ledgertest.Store) {
	opened := vector{Identity: true}
	bad := func(seq int64) expect { return expect{ledger.Tampered, seq, true, "content tampered"} }
	f := ledger.Unpack(s)
	at := len(f.Epochs[0].Frames[0].Payload)
	g.log("payload-edit", "a byte of the payload of record 1 was changed", with(s, payloadFile, flip(at+3)), opened, bad(1))
	g.log("payload-edit-unopened", "the same; the verifier has no keys but looks at the stored bytes", with(s, payloadFile, flip(at+3)), vector{Payloads: true}, bad(1))
	g.log("payload-swap", "the payloads of records 1 and 2 changed places", g.forged(s, func(f *ledger.Forged) {
		a, b := &f.Epochs[0].Frames[1], &f.Epochs[0].Frames[2]
		a.Payload, b.Payload = b.Payload, a.Payload
	}), opened, bad(1))
	g.log("payload-missing", "the payload file ends early", with(s, payloadFile, func(b []byte) []byte { return b[:len(b)-30] }), opened, bad(11))
	none := s.Clone()
	none.Set(keysFile, nil)
	g.log("keys-missing", "the wrapped keys are gone, and no record says why", none, opened, incomplete("content incomplete"))
	stranger, err := age.GenerateX25519Identity()
	g.must(err)
	opts := g.options()
	opts.Recipients = []age.Recipient{stranger.Recipient()}
	other, _ := g.base(opts)
	g.log("keys-of-others", "a whole log whose payloads are closed to the verifier", other, opened, expect{ledger.Verified, -1, false, "content unverifiable"})
	mixed := s.Clone()
	same, _ := g.base(g.options())
	mixed.Set(keysFile, same.Bytes(keysFile))
	g.log("keys-swapped", "the wrapped keys are those of another log of the same recipient", mixed, opened, bad(1))
}

// encodedLogs: other encodings of the same, and bytes that belong to nothing.
func (g *generator) encodedLogs(s *ledgertest.Store) {
	headers, logLen, payLen := ledger.SplitEpochs(s.Bytes(epochsFile))
	header := func(change func(h []byte) []byte) *ledgertest.Store {
		return with(s, epochsFile, func([]byte) (out []byte) {
			for i, h := range headers {
				if i == 1 {
					h = change(slices.Clone(h))
				}
				out = append(out, ledger.EpochFrame(logLen[i], payLen[i], h)...)
			}
			return out
		})
	}
	for _, name := range slices.Sorted(maps.Keys(nonCanonical)) {
		change := nonCanonical[name]
		g.log("header-"+name, "the header of epoch 1, otherwise the same, in CBOR that isn't deterministic: "+name, header(change), vector{}, tampered(4, false))
		if name != "trailing" {
			continue
		}
		g.log("genesis-"+name, "the genesis, otherwise the same, in CBOR that isn't deterministic: "+name, with(s, genesisFile, change), vector{}, tampered(0, false))
	}
	none := s.Clone()
	none.Set(genesisFile, nil)
	g.log("no-genesis", "the genesis is gone", none, vector{}, tampered(0, false))
	trail := func(b []byte) []byte { return append(b, 0xff, 0xff, 0xff) }
	g.log("epochs-trailing", "bytes follow the last entry of the epochs file", with(s, epochsFile, func(b []byte) []byte { return append(b, 0, 0) }), vector{}, tampered(14, false))
	g.log("log-trailing", "bytes follow the last record", with(s, logFile, trail), vector{}, incomplete("integrity incomplete"))
	g.log("checkpoint-trailing", "bytes follow the checkpoint", with(s, headFile, func(b []byte) []byte { return append(b, '\n') }), vector{}, expect{ledger.Tampered, -1, false, "integrity tampered"})
	g.log("frame-length", "the length of a frame isn't in its shortest form", with(s, logFile, func(b []byte) []byte {
		return append([]byte{b[0] | 0x80, 0x00}, b[1:]...)
	}), vector{}, tampered(0, false))
}

// nonCanonical changes a map with small integer keys, whose first value is a byte string, into CBOR of the same
// meaning that isn't deterministic.
var nonCanonical = map[string]func(b []byte) []byte{
	"trailing":    func(b []byte) []byte { return append(b, 0) },
	"long-int":    func(b []byte) []byte { return append([]byte{b[0], 0x18, 0x01}, b[2:]...) },
	"long-length": func(b []byte) []byte { return append([]byte{b[0], b[1], 0x59, 0x00}, b[3:]...) },
	"indefinite":  func(b []byte) []byte { return append(append([]byte{0xbf}, b[1:]...), 0xff) },
	"duplicate":   func(b []byte) []byte { return append([]byte{b[0] + 1}, append(slices.Clone(b[1:36]), b[1:]...)...) },
	"unsorted": func(b []byte) []byte {
		return append([]byte{b[0]}, append(slices.Clone(b[36:38]), append(slices.Clone(b[1:36]), b[38:]...)...)...)
	},
}

// profileLogs: the other profile, and logs in the clear.
func (g *generator) profileLogs() {
	opts := g.options()
	opts.Profile = ledger.ProfileAFR
	s, _ := g.base(opts)
	opened := vector{Identity: true}
	g.log("afr-valid", "a whole log of profile afr", s, opened, expect{ledger.Verified, -1, false, "content verified"})
	g.log("afr-edit", "the kind of record 5 was changed in place", g.forged(s, func(f *ledger.Forged) {
		raw := slices.Clone(f.Epochs[1].Frames[1].Raw)
		raw[bytes.IndexByte(raw, 'e')] = 'x'
		f.Epochs[1].Frames[1].Raw = raw
	}), opened, tampered(5, true))
	g.log("afr-root", "the R_t of epoch 1 was changed", g.forged(s, func(f *ledger.Forged) { f.Epochs[1].Header.AFR[0] ^= 1 }), opened, tampered(4, false))
	short := opts
	short.Now = clock()
	short3, err := ledger.Create(ledgertest.New(), short)
	g.must(err)
	_ = short3.Detach()
	d := ledgertest.New()
	w, err := ledger.Create(d, short)
	g.must(err)
	g.append(w, "a", "b")
	g.must(w.Close())
	g.log("afr-duplicate-leaf", "the close record, fourth of its epoch, replaced by a second third one: in a tree that doubles its last leaf the root of three records stays the same", g.forged(d, func(f *ledger.Forged) {
		e := &f.Epochs[0]
		e.Frames = append(e.Frames[:3], e.Frames[2])
	}), vector{}, tampered(3, true))
	opts = g.options()
	opts.Recipients, opts.Clear = nil, true
	s, _ = g.base(opts)
	g.log("clear-valid", "a whole log in the clear", s, vector{}, verified)
	f := ledger.Unpack(s)
	at := len(f.Epochs[0].Frames[0].Payload)
	g.log("clear-payload-edit", "a byte of the payload of record 1 was changed", with(s, payloadFile, flip(at+3)), vector{Payloads: true}, expect{ledger.Tampered, 1, true, "content tampered"})
}

// rotatedLogs: keys handed over, history rewritten by the new ones, keys destroyed.
func (g *generator) rotatedLogs() {
	s := ledgertest.New()
	w, err := ledger.Create(s, g.options())
	g.must(err)
	g.append(w, "a", "b", "c", "d")
	g.must(w.Rotate(g.next))
	g.append(w, "e", "f")
	g.must(w.Close())
	g.log("rotated", "the keys were handed over in record 5; the verifier has an old one", s, vector{}, verified)
	g.log("rotated-new", "the same; the verifier has the new one", s, vector{Keys: []string{g.key(g.next[0])}}, verified)
	f := ledger.Unpack(s)
	f.Epochs[0].Frames[1].Rec.Kind = "x"
	f.Rechain(0)
	f.Rehead(0)
	g.log("rewritten-by-new-key", "who holds only the new key rewrote record 1 and signed the log: the hand-over doesn't fit that past", g.sign(g.packed(s, f), f, g.next...), vector{}, tampered(5, true))
	plain, _ := g.base(g.options())
	f = ledger.Unpack(plain)
	g.log("signed-by-other-key", "a checkpoint signed by a key that nobody handed over to", g.sign(g.packed(plain, f), f, g.next...), vector{}, expect{ledger.Tampered, -1, false, "integrity tampered"})
	erased, _ := g.base(g.options())
	w, err = ledger.Open(erased, g.options())
	g.must(err)
	keysBefore := erased.Bytes(keysFile)
	g.must(w.Erase(context.Background(), ledger.EraseNote{Events: []uint64{2}, Epochs: []uint64{2}, Reason: "asked for"}, g.id))
	g.must(w.Close())
	unerased := erased.Clone()
	unerased.Set(keysFile, keysBefore)
	g.log("erased-and-restored", "the same, but the old wraps were put back", unerased, vector{}, incomplete("content incomplete"))
	g.log("erased", "the keys of record 2 and of epoch 2 were destroyed, as a record says", erased, vector{Identity: true}, expect{ledger.Verified, -1, false, "content verified"})
}

// crashedLogs: what honest crashes leave.
func (g *generator) crashedLogs() {
	s := ledgertest.New()
	w, err := ledger.Create(s, g.options())
	g.must(err)
	g.append(w, "a", "b", "c", "d")
	g.must(w.Sync(context.Background()))
	g.append(w, "e")
	crashed := s.Crash(nil)
	g.log("crashed", "the writer died: two records are under no checkpoint", crashed, vector{}, incomplete("coverage incomplete"))
	w2, err := ledger.Open(crashed, g.options())
	g.must(err)
	g.append(w2, "f")
	g.must(w2.Close())
	g.log("recovered", "the same, opened again, continued and closed", crashed, vector{}, incomplete("integrity verified"))
	_ = w
}
