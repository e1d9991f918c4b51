package ledger_test

import (
	"archive/tar"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/fxamacker/cbor/v2"
)

// This file is a verifier written from docs/FORMAT.md alone: it uses nothing of package ledger. It checks the worked
// example there, and gives its own verdict on logs of the corpus.

type stranger struct {
	files map[string][]byte
	em    cbor.EncMode
	id    []byte
	ages  []age.Identity
	say   func(name string, b []byte)            // hears what the worked example shows
	each  func(r *recordMap, event []byte) error // hears of every payload and event, if that is wanted
}

type genesisMap struct {
	Profile  uint64  `cbor:"1,keyasint"`
	Name     string  `cbor:"2,keyasint"`
	Recorder string  `cbor:"3,keyasint"`
	Created  int64   `cbor:"4,keyasint"`
	Nonce    []byte  `cbor:"5,keyasint"`
	Keys     [][]any `cbor:"6,keyasint"`
	Records  uint64  `cbor:"7,keyasint"`
	Age      uint64  `cbor:"8,keyasint"`
	Beat     uint64  `cbor:"9,keyasint"`
	Anchor   uint64  `cbor:"10,keyasint"`
}

type recordMap struct {
	Log        []byte `cbor:"1,keyasint"`
	Inc        uint64 `cbor:"2,keyasint"`
	Seq        uint64 `cbor:"3,keyasint"`
	Prev       []byte `cbor:"4,keyasint"`
	ID         []byte `cbor:"5,keyasint"`
	Type       uint64 `cbor:"6,keyasint"`
	Form       uint64 `cbor:"7,keyasint"`
	Commitment []byte `cbor:"8,keyasint"`
	Wall       int64  `cbor:"9,keyasint"`
	Mono       int64  `cbor:"10,keyasint"`
	Kind       string `cbor:"11,keyasint"`
	Group      uint64 `cbor:"12,keyasint,omitempty"`
	Count      uint64 `cbor:"13,keyasint,omitempty"`
}

type headerMap struct {
	Log      []byte  `cbor:"1,keyasint"`
	Epoch    uint64  `cbor:"2,keyasint"`
	Inc      uint64  `cbor:"3,keyasint"`
	First    uint64  `cbor:"4,keyasint"`
	Count    uint64  `cbor:"5,keyasint"`
	Root     []byte  `cbor:"6,keyasint"`
	Head     []byte  `cbor:"7,keyasint"`
	Prev     []byte  `cbor:"8,keyasint"`
	Reason   uint64  `cbor:"9,keyasint"`
	Opened   int64   `cbor:"10,keyasint"`
	Closed   int64   `cbor:"11,keyasint"`
	Mono     int64   `cbor:"12,keyasint"`
	Coverage [][]any `cbor:"13,keyasint"`
}

func h(parts ...[]byte) []byte {
	d := sha256.Sum256(bytes.Join(parts, nil))
	return d[:]
}

// tree is the head of an RFC 9162 tree over leaf hashes, straight from its definition.
func tree(leaves [][]byte) []byte {
	switch len(leaves) {
	case 0:
		return h()
	case 1:
		return leaves[0]
	}
	k := 1
	for 2*k < len(leaves) {
		k *= 2
	}
	return h([]byte{1}, tree(leaves[:k]), tree(leaves[k:]))
}

func frame(b []byte) (body, check, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n == 0 || uint64(len(b)) < uint64(size)+n+4 {
		return nil, nil, nil, errors.New("no frame")
	}
	end := size + int(n)
	return b[size:end], b[end : end+4], b[end+4:], nil
}

func crc(b []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func (s *stranger) decode(b []byte, v any) error {
	if err := cbor.Unmarshal(b, v); err != nil {
		return err
	}
	again, err := s.em.Marshal(v)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, b) {
		return fmt.Errorf("not deterministic: %x", b)
	}
	return nil
}

// verify follows section 16 for a log of the default profile that has one segment and one Ed25519 key.
func (s *stranger) verify() error {
	gen := s.files["ledger/genesis"]
	var g genesisMap
	if err := s.decode(gen, &g); err != nil {
		return err
	}
	s.id = h([]byte("bodycam-ledger/v1 genesis\n"), gen)
	s.say("genesis", gen)
	s.say("identity", s.id)
	log, pay := s.files["ledger/00000000.log"], s.files["payload/00000000.bin"]
	head, prev, next := s.id, s.id, uint64(0)
	var leaves [][]byte
	for b, epoch := s.files["ledger/epochs"], uint64(0); len(b) > 0; epoch++ {
		body, check, rest, err := frame(b)
		if err != nil || !bytes.Equal(crc(body), check) {
			return fmt.Errorf("epoch %d: its entry: %v", epoch, err)
		}
		b = rest
		var place [3]uint64
		for i := range place {
			n, size := binary.Uvarint(body)
			place[i], body = n, body[size:]
		}
		var hd headerMap
		if err := s.decode(body, &hd); err != nil {
			return err
		}
		if hd.Epoch != epoch || hd.First != next || !bytes.Equal(hd.Prev, prev) || !bytes.Equal(hd.Log, s.id) || uint64(len(log)) < place[1] {
			return fmt.Errorf("epoch %d doesn't follow", epoch)
		}
		if head, err = s.epoch(&hd, log[:place[1]], pay[:place[2]], head); err != nil {
			return fmt.Errorf("epoch %d: %w", epoch, err)
		}
		log, pay, next = log[place[1]:], pay[place[2]:], next+hd.Count
		prev = h([]byte{0}, []byte("bodycam-ledger/v1 epoch\n"), body)
		leaves = append(leaves, prev)
		if epoch == 0 {
			s.say("header-0", body)
			s.say("header-hash-0", prev)
		}
	}
	root := tree(leaves)
	s.say("head", root)
	s.say("checkpoint", s.files["ledger/checkpoint"])
	return s.signed(&g, len(leaves), root)
}

func (s *stranger) signed(g *genesisMap, size int, root []byte) error {
	text, sig, _ := strings.Cut(string(s.files["ledger/checkpoint"]), "\n\n")
	origin := fmt.Sprintf("%s/%x", g.Name, s.id)
	if text != fmt.Sprintf("%s\n%d\n%s", origin, size, base64.StdEncoding.EncodeToString(root)) {
		return errors.New("the checkpoint is another")
	}
	line, ok := strings.CutPrefix(strings.TrimSuffix(sig, "\n"), "— "+origin+" ")
	raw, err := base64.StdEncoding.DecodeString(line)
	key := g.Keys[0][1].([]byte)
	if !ok || err != nil || !bytes.Equal(raw[:4], h([]byte(origin+"\n\x01"), key)[:4]) || !ed25519.Verify(key, []byte(text+"\n"), raw[4:]) {
		return errors.New("the checkpoint's signature is false")
	}
	return nil
}

// epoch reads an epoch's records and returns the last digest.
func (s *stranger) epoch(hd *headerMap, log, pay, head []byte) ([]byte, error) {
	body, check, rest, err := frame(log)
	if err != nil || !bytes.Equal(crc(body), check) {
		return nil, errors.New("no opening")
	}
	open := binary.AppendUvarint(binary.AppendUvarint([]byte{0}, hd.Epoch), hd.First)
	open = append(binary.BigEndian.AppendUint64(open, hd.Inc), head...)
	if !bytes.Equal(open, body) {
		return nil, errors.New("another opening")
	}
	if hd.Epoch == 0 {
		s.say("opening", log[:len(log)-len(rest)])
	}
	var leaves [][]byte
	r := recordMap{Log: s.id, Inc: hd.Inc, Seq: hd.First}
	for range hd.Count {
		raw := rest
		if body, check, rest, err = frame(rest); err != nil {
			return nil, err
		}
		r.Prev = head
		size := r.fill(body)
		enc, err := s.em.Marshal(&r)
		if err != nil {
			return nil, err
		}
		head = h([]byte{0}, enc)
		if !bytes.Equal(head[:4], check) {
			return nil, fmt.Errorf("record %d is another", r.Seq)
		}
		leaves = append(leaves, head)
		if r.Seq < 2 && s.each == nil {
			s.say(fmt.Sprint("frame-", r.Seq), raw[:len(raw)-len(rest)])
			s.say(fmt.Sprint("record-", r.Seq), enc)
			s.say(fmt.Sprint("digest-", r.Seq), head)
			if err := s.payload(hd, &r, pay[:size]); err != nil {
				return nil, err
			}
		}
		if s.each != nil {
			if err := s.openAll(hd, &r, pay[:size]); err != nil {
				return nil, fmt.Errorf("record %d: %w", r.Seq, err)
			}
		}
		pay = pay[size:]
		r.Seq++
	}
	if len(rest) != 0 || len(pay) != 0 || !bytes.Equal(head, hd.Head) || !bytes.Equal(tree(leaves), hd.Root) {
		return nil, errors.New("the records aren't those of the header")
	}
	return head, nil
}

// fill reads a frame's body into the record and returns how long its payload is.
func (r *recordMap) fill(b []byte) (size uint64) {
	uvarint := func() uint64 { n, k := binary.Uvarint(b); b = b[k:]; return n }
	varint := func() int64 { n, k := binary.Varint(b); b = b[k:]; return n }
	take := func(n int) []byte { v := b[:n]; b = b[n:]; return v }
	r.Type, r.Form = uvarint(), uvarint()
	r.ID, r.Commitment = take(16), take(32)
	r.Wall, r.Mono = r.Wall+varint(), r.Mono+varint()
	r.Kind = string(take(int(take(1)[0])))
	r.Group, r.Count = uvarint(), 0
	if r.Form&15 == 4 {
		r.Count = uvarint()
	}
	return uvarint()
}

// payload opens a payload of form 1 or 17.
func (s *stranger) payload(hd *headerMap, r *recordMap, stored []byte) error {
	want := h([]byte{3}, stored)
	plain := stored
	if r.Form == 1 {
		secret, err := s.secret(hd.Epoch)
		if err != nil {
			return err
		}
		prk, err := hkdf.Extract(sha256.New, secret, binary.BigEndian.AppendUint64(bytes.Clone(s.id), hd.Epoch))
		if err != nil {
			return err
		}
		event, err := hkdf.Expand(sha256.New, prk, string(append(binary.BigEndian.AppendUint64([]byte("bodycam-ledger/v1 event"), r.Seq), r.ID...)), 32)
		if err != nil {
			return err
		}
		key, err := hkdf.Expand(sha256.New, event, "bodycam-ledger/v1 cipher", 32)
		if err != nil {
			return err
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return err
		}
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			return err
		}
		if plain, err = gcm.Open(nil, make([]byte, 12), stored, nil); err != nil {
			return err
		}
		want = h([]byte{2}, event, plain)
		s.say("secret-0", secret)
		s.say("prk-0", prk)
		s.say("event-key-1", event)
		s.say("cipher-key-1", key)
		s.say("stored-1", stored)
	}
	if !bytes.Equal(want, r.Commitment) {
		return fmt.Errorf("the payload of record %d is another", r.Seq)
	}
	s.say(fmt.Sprint("payload-", r.Seq), plain)
	s.say(fmt.Sprint("commitment-", r.Seq), want)
	return nil
}

// secret opens the last wrap that is for the epoch.
func (s *stranger) secret(epoch uint64) ([]byte, error) {
	var file []byte
	var first uint64
	for b := s.files["ledger/00000000.keys"]; len(b) > 0; {
		body, check, rest, err := frame(b)
		if err != nil || !bytes.Equal(crc(body), check) {
			return nil, fmt.Errorf("a wrap: %v", err)
		}
		b = rest
		n, size := binary.Uvarint(body)
		body, count := body[size:], uint64(1)
		if body[0] < 'a' {
			count, size = binary.Uvarint(body)
			body = body[size:]
		}
		if epoch >= n && epoch-n < count {
			file, first = body, n
		}
	}
	r, err := age.Decrypt(bytes.NewReader(file), s.ages...)
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var w struct {
		Log    []byte   `cbor:"1,keyasint"`
		Secret []byte   `cbor:"2,keyasint,omitempty"`
		Group  [][]byte `cbor:"5,keyasint,omitempty"`
	}
	if err := s.decode(plain, &w); err != nil || !bytes.Equal(w.Log, s.id) {
		return nil, fmt.Errorf("another log's secret: %v", err)
	}
	if w.Group != nil {
		return w.Group[epoch-first], nil
	}
	return w.Secret, nil
}

func gcmOf(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// openAll opens a payload of form 1, 17, 2 (without chunks) or 4, and compares it with its commitment.
func (s *stranger) openAll(hd *headerMap, r *recordMap, stored []byte) error {
	if r.Form == 17 {
		if !bytes.Equal(h([]byte{3}, stored), r.Commitment) {
			return errForm
		}
		return nil
	}
	secret, err := s.secret(hd.Epoch)
	if err != nil {
		return err
	}
	prk, err := hkdf.Extract(sha256.New, secret, binary.BigEndian.AppendUint64(bytes.Clone(s.id), hd.Epoch))
	if err != nil {
		return err
	}
	event, err := hkdf.Expand(sha256.New, prk, string(append(binary.BigEndian.AppendUint64([]byte("bodycam-ledger/v1 event"), r.Seq), r.ID...)), 32)
	if err != nil {
		return err
	}
	key, err := hkdf.Expand(sha256.New, event, "bodycam-ledger/v1 cipher", 32)
	if err != nil {
		return err
	}
	gcm, err := gcmOf(key)
	if err != nil {
		return err
	}
	if r.Form == 1 {
		plain, err := gcm.Open(nil, make([]byte, 12), stored, nil)
		if err != nil || !bytes.Equal(h([]byte{2}, event, plain), r.Commitment) {
			return fmt.Errorf("%w: %v", errForm, err)
		}
		return s.each(r, plain)
	}
	n, size := binary.Uvarint(stored)
	head, body := stored[size:size+int(n)], stored[size+int(n):]
	if head, err = gcm.Open(nil, make([]byte, 12), head, nil); err != nil {
		return err
	}
	var m struct {
		Key  []byte `cbor:"1,keyasint"`
		Salt []byte `cbor:"2,keyasint"`
		Size uint64 `cbor:"3,keyasint,omitempty"`
	}
	if err := s.decode(head, &m); err != nil {
		return err
	}
	if gcm, err = gcmOf(m.Key); err != nil {
		return err
	}
	if body, err = gcm.Open(nil, make([]byte, 12), body, nil); err != nil {
		return err
	}
	if r.Form == 2 {
		if !bytes.Equal(h([]byte{2}, m.Salt, body), r.Commitment) || uint64(len(body)) != m.Size {
			return errForm
		}
		return s.each(r, body)
	}
	block, err := aes.NewCipher(m.Salt)
	if err != nil {
		return err
	}
	salts := make([]byte, 16*r.Count)
	cipher.NewCTR(block, make([]byte, 16)).XORKeyStream(salts, salts)
	var leaves, group [][]byte
	for i := range r.Count {
		n, size := binary.Uvarint(body)
		e := body[size : size+int(n)]
		body = body[size+int(n):]
		group = append(group, h([]byte{4}, salts[16*i:16*i+16], e))
		if i%16 == 15 || i == r.Count-1 {
			leaves = append(leaves, h(append([][]byte{{0}}, group...)...))
			group = nil
		}
		if err := s.each(r, e); err != nil {
			return err
		}
	}
	if !bytes.Equal(tree(leaves), r.Commitment) || len(body) != 0 {
		return errForm
	}
	return nil
}

func newStranger(t *testing.T, file string) *stranger {
	t.Helper()
	em, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	s := &stranger{files: map[string][]byte{}, em: em, ages: []age.Identity{corpusIdentity(t)}, say: func(string, []byte) {}}
	b, err := os.ReadFile(filepath.Join(corpusDir, file))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		hdr, err := r.Next()
		if err == io.EOF {
			return s
		}
		if err != nil {
			t.Fatal(err)
		}
		if s.files[hdr.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStranger: the verifier that was written from the specification agrees with the corpus.
func TestStranger(t *testing.T) {
	if err := newStranger(t, "valid.tar").verify(); err != nil {
		t.Fatalf("valid.tar: %v", err)
	}
	for _, name := range []string{"edit", "edit-rechained", "edit-resealed", "delete", "insert", "reorder", "delete-epoch", "header-coverage", "payload-edit", "false-size", "header-duplicate"} {
		if newStranger(t, name+".tar").verify() == nil {
			t.Errorf("%s.tar passes", name)
		}
	}
}

// TestFormatExample keeps the worked example of docs/FORMAT.md true. With -update it writes it.
func TestFormatExample(t *testing.T) {
	const doc = "../docs/FORMAT.md"
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string][]byte{}
	s := newStranger(t, "valid.tar")
	s.say = func(name string, b []byte) { said[name] = bytes.Clone(b) }
	if err := s.verify(); err != nil {
		t.Fatal(err)
	}
	s.sayRun(t)
	var out strings.Builder
	shown := 0
	for rest := string(text); ; {
		before, after, ok := strings.Cut(rest, "\n```hex ")
		kind := "hex"
		if b2, a2, ok2 := strings.Cut(rest, "\n```text "); ok2 && (!ok || len(b2) < len(before)) {
			before, after, ok, kind = b2, a2, ok2, "text"
		}
		out.WriteString(before)
		if !ok {
			break
		}
		name, after, _ := strings.Cut(after, "\n")
		block, after, _ := strings.Cut("\n"+after, "\n```")
		b, known := said[name]
		if !known {
			t.Fatalf("the example shows %q, which nothing computes", name)
		}
		want := string(b)
		if kind == "hex" {
			want = wrap(hex.EncodeToString(b))
		}
		if got := strings.TrimPrefix(block, "\n"); got != strings.TrimSuffix(want, "\n") && !*update {
			t.Errorf("%s: the document shows\n%s\nwant\n%s", name, got, want)
		}
		fmt.Fprintf(&out, "\n```%s %s\n%s\n```", kind, name, strings.TrimSuffix(want, "\n"))
		rest = after
		shown++
	}
	if shown != len(said) {
		t.Errorf("the example shows %d of %d values", shown, len(said))
	}
	if *update {
		if err := os.WriteFile(doc, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func wrap(s string) string {
	var lines []string
	for ; len(s) > 96; s = s[96:] {
		lines = append(lines, s[:96])
	}
	return strings.Join(append(lines, s), "\n")
}
