package ledger

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/fxamacker/cbor/v2"
)

// corpusFiles returns one file of every log of the corpus.
func corpusFiles(f *testing.F, name string) (out [][]byte) {
	f.Helper()
	list, err := filepath.Glob("testdata/corpus/*.tar")
	if err != nil || len(list) == 0 {
		f.Fatalf("no corpus: %v", err)
	}
	for _, file := range list {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		r := tar.NewReader(bytes.NewReader(b))
		for {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				f.Fatal(err)
			}
			if h.Name == name {
				data, err := io.ReadAll(r)
				if err != nil {
					f.Fatal(err)
				}
				out = append(out, data)
			}
		}
	}
	return out
}

// FuzzRecord: a record that is accepted has one encoding, which the other implementation agrees with, and its frame
// comes back as the same record.
func FuzzRecord(f *testing.F) {
	em, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		f.Fatal(err)
	}
	r := Record{Seq: 1, Type: TypeUser, Form: FormInline, Kind: "k"}
	f.Add(r.AppendCBOR(nil))
	r.Form, r.Count, r.Group = FormBatch, 3, 7
	f.Add(r.AppendCBOR(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRecord(b)
		if err != nil {
			return
		}
		if !bytes.Equal(r.AppendCBOR(nil), b) {
			t.Fatalf("%x is accepted and encoded again as %x", b, r.AppendCBOR(nil))
		}
		var v any
		if err := cbor.Unmarshal(b, &v); err != nil {
			t.Fatalf("%x is accepted, but not by the other implementation: %v", b, err)
		}
		if again, err := em.Marshal(v); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x is accepted, but the other implementation writes %x (%v)", b, again, err)
		}
		w := cursor{log: r.Log, profile: ProfileDefault, inc: r.Incarnation, next: r.Seq, prev: r.Prev}
		c := w
		frame := appendRecord(nil, &w, &stored{Record: *r, size: 9, crc: 5})
		var s stored
		rest, err := c.readRecord(frame, &s)
		if err != nil || len(rest) != 0 || s.Record != *r || s.size != 9 || s.crc != 5 || c.prev != w.prev {
			t.Fatalf("the frame of %+v comes back as %+v: %v", *r, s.Record, err)
		}
	})
}

// FuzzSegment reads a segment as recovery does.
func FuzzSegment(f *testing.F) {
	for _, b := range corpusFiles(f, logName(0))[:3] {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var c cursor
		c.profile = ProfileDefault
		for rest := b; len(rest) > 0; {
			if o, after, err := readOpening(rest); err == nil {
				c.begin(o.epoch, o.inc)
				c.next, c.prev, rest = o.first, o.prev, after
				continue
			}
			was := c
			var s stored
			after, err := c.readRecord(rest, &s)
			if err != nil && !errors.Is(err, errCheck) {
				if c.next != was.next || c.prev != was.prev {
					t.Fatalf("the cursor moved over what is no record: %v", err)
				}
				return
			}
			if len(after) >= len(rest) {
				t.Fatal("a frame without bytes")
			}
			if err == nil {
				again := appendRecord(nil, &was, &s)
				if !bytes.Equal(again, rest[:len(rest)-len(after)]) {
					t.Fatalf("frame %x is accepted and written again as %x", rest[:len(rest)-len(after)], again)
				}
			}
			rest = after
		}
	})
}

// FuzzLog reads a whole log whose epochs and segment are hostile.
func FuzzLog(f *testing.F) {
	epochs, logs := corpusFiles(f, epochsName), corpusFiles(f, logName(0))
	genesis := corpusFiles(f, genesisName)[0]
	for i := range 3 {
		f.Add(epochs[i], logs[i])
	}
	f.Fuzz(func(t *testing.T, epochs, log []byte) {
		fsys := fstest.MapFS{
			genesisName: {Data: genesis}, epochsName: {Data: epochs}, logName(0): {Data: log}, payloadName(0): {Data: log},
		}
		r, err := Verify(t.Context(), fsys, VerifyOptions{Trust: Trust{Self: true}, Payloads: true, Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict == Verified {
			t.Fatal("a log without a checkpoint is verified")
		}
		if rd, err := OpenReader(fsys); err == nil {
			for rec, err := range rd.Records(0) {
				if err != nil {
					break
				}
				rd.Payload(rec)
			}
		}
	})
}

// FuzzBundle: a bundle that is accepted has one encoding.
func FuzzBundle(f *testing.F) {
	list, err := filepath.Glob("testdata/corpus/*.bundle")
	if err != nil || len(list) == 0 {
		f.Fatalf("no corpus: %v", err)
	}
	for _, name := range list[:4] {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		bundle, err := ParseBundle(b)
		if err != nil {
			return
		}
		if !bytes.Equal(bundle.Append(nil), b) {
			t.Fatal("a bundle is accepted and written again as other bytes")
		}
		bundle.Verify(Trust{Self: true})
	})
}

// FuzzParts reads everything else that comes from a store.
func FuzzParts(f *testing.F) {
	for _, b := range [][]byte{
		OpenNote{Recorder: "r", Boot: "b"}.append(nil), GapNote{Records: 1}.append(nil),
		(&EraseNote{Epochs: []uint64{1}}).append(nil), (&RotateNote{New: []PublicKey{{1, []byte{2}}}}).append(nil),
		(&Header{Reason: SealCount, Coverage: []Coverage{{"s", 1, 1, 0}}}).AppendCBOR(nil), (&secrets{secret: []byte("s")}).append(nil),
		(&secrets{events: map[uint64]EventKey{3: {}}}).append(nil), (&manifest{size: 5}).append(nil, FormLarge|FormClear),
		(&intent{segments: []uint64{0}, note: []byte{}}).append(nil), appendWrap(nil, wrapped{3, 1, []byte("age")}), appendWrap(nil, wrapped{3, 2, make([]byte, 64)}),
		(&secrets{group: [][]byte{make([]byte, 32), make([]byte, 32)}}).append(nil),
	} {
		f.Add(b)
	}
	for _, b := range corpusFiles(f, genesisName)[:2] {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		same := func(what string, again []byte) {
			if !bytes.Equal(again, b) {
				t.Fatalf("%s %x is accepted and written again as %x", what, b, again)
			}
		}
		if g, err := ParseGenesis(b); err == nil {
			same("genesis", g.AppendCBOR(nil))
		}
		if h, err := ParseHeader(b); err == nil {
			same("header", h.AppendCBOR(nil))
		}
		if n, err := ParseOpenNote(b); err == nil {
			same("open note", n.append(nil))
		}
		if n, err := ParseGapNote(b); err == nil {
			same("gap note", n.append(nil))
		}
		if n, err := ParseEraseNote(b); err == nil {
			same("erase note", n.append(nil))
		}
		if n, err := ParseRotateNote(b); err == nil {
			same("rotate note", n.append(nil))
		}
		if s, err := parseSecrets(b); err == nil {
			same("secrets", s.append(nil))
		}
		if i, err := parseIntent(b); err == nil {
			same("intent", i.append(nil))
		}
		for _, form := range []Form{FormLarge, FormBatch, FormLarge | FormClear, FormBatch | FormClear} {
			for _, p := range []Profile{ProfileDefault, ProfileAFR} {
				if m, err := parseManifest(b, p, form); err == nil {
					same("manifest", m.append(nil, form))
				}
			}
		}
		if w, rest, err := readWrap(b); err == nil {
			same("wrap", append(appendWrap(nil, w), rest...))
		}
		splitBatch(b, 3)
	})
}
