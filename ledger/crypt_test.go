package ledger

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestHKDF: RFC 5869, test case 1, holds for the library, and what is done by hand here is what the library does.
func TestHKDF(t *testing.T) {
	prk, err := hkdf.Extract(sha256.New, bytes.Repeat([]byte{0x0b}, 22), unhex(t, "000102030405060708090a0b0c"))
	if err != nil || hex.EncodeToString(prk) != "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5" {
		t.Fatalf("PRK %x, %v", prk, err)
	}
	okm, err := hkdf.Expand(sha256.New, prk, string(unhex(t, "f0f1f2f3f4f5f6f7f8f9")), 42)
	if err != nil || hex.EncodeToString(okm) != "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865" {
		t.Fatalf("OKM %x, %v", okm, err)
	}
	log := Hash{1, 2, 3}
	secret := bytes.Repeat([]byte{9}, keySize)
	k, err := newEpochKey(&log, 7, secret)
	if err != nil {
		t.Fatal(err)
	}
	salt := binary.BigEndian.AppendUint64(append([]byte(nil), log[:]...), 7)
	if prk, err = hkdf.Extract(sha256.New, secret, salt); err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint64{0, 1, 1 << 40} {
		id := [16]byte{5, byte(seq)}
		info := append(binary.BigEndian.AppendUint64([]byte(eventInfo), seq), id[:]...)
		want, err := hkdf.Expand(sha256.New, prk, string(info), keySize)
		if err != nil {
			t.Fatal(err)
		}
		var e EventKey
		if err := k.event(seq, &id, &e); err != nil || !bytes.Equal(e[:], want) {
			t.Fatalf("event %d: %x, %v, want %x", seq, e, err, want)
		}
		key, err := hkdf.Expand(sha256.New, e[:], cipherInfo, keySize)
		if err != nil {
			t.Fatal(err)
		}
		a, err := e.cipher()
		if err != nil {
			t.Fatal(err)
		}
		b, err := newGCM(key)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a.Seal(nil, zeroNonce[:], []byte("p"), nil), b.Seal(nil, zeroNonce[:], []byte("p"), nil)) {
			t.Fatalf("event %d: another cipher key", seq)
		}
	}
	k.wipe()
	var e EventKey
	if err := k.event(1, new([16]byte), &e); err == nil {
		t.Fatal("a wiped key derives keys")
	}
	for _, b := range [][]byte{k.inner, k.outer, k.sum[:]} {
		if !bytes.Equal(b, make([]byte, len(b))) {
			t.Fatalf("a wiped key leaves %x", b)
		}
	}
}

// TestGCM: test case 16 of the GCM specification (McGrew and Viega).
func TestGCM(t *testing.T) {
	a, err := newGCM(unhex(t, "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308"))
	if err != nil {
		t.Fatal(err)
	}
	got := a.Seal(nil, unhex(t, "cafebabefacedbaddecaf888"),
		unhex(t, "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"),
		unhex(t, "feedfacedeadbeeffeedfacedeadbeefabaddad2"))
	want := unhex(t, "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"+
		"76fc6ece0f4e1768cddf8853bb2d551b")
	if !bytes.Equal(got, want) {
		t.Fatalf("%x", got)
	}
}

// TestAFRHoles shows the holes of the published tree and that the checks close them.
func TestAFRHoles(t *testing.T) {
	h := func(s string) Hash { return sha256.Sum256([]byte(s)) }
	three := []Hash{h("a"), h("b"), h("c")}
	four := append(three[:3:3], three[2])
	if AFRTree(three) != AFRTree(four) {
		t.Fatal("the published tree has no such hole")
	}
	m := AFRTree(three)
	proof := AFRProof(three, 2)
	if err := VerifyAFRProof(three[2], 2, 3, proof, m); err != nil {
		t.Fatal(err)
	}
	if VerifyAFRProof(three[2], 3, 3, AFRProof(four, 3), m) == nil {
		t.Fatal("a fourth record in an epoch of three")
	}
	r0 := AFRRoot(m, Hash{})
	other := []Hash{h("x"), h("y"), h("z"), h("w")}
	m1 := AFRTree(other)
	through := append(AFRProof(three, 1), Hash{}, m1)
	if VerifyAFRProof(three[1], 1, 3, through, AFRRoot(m1, r0)) == nil {
		t.Fatal("a record of epoch 0 proves into epoch 1")
	}
	node := afrNode(&three[0], &three[1])
	if VerifyAFRProof(node, 0, 3, proof[1:], m) == nil {
		t.Fatal("a node proves as a record")
	}
	for n := 1; n < 40; n++ {
		var all []Hash
		for i := range n {
			all = append(all, h(string(rune(i))))
		}
		for i := range n {
			p := AFRProof(all, i)
			if err := VerifyAFRProof(all[i], uint64(i), uint64(n), p, AFRTree(all)); err != nil {
				t.Fatalf("record %d of %d: %v", i, n, err)
			}
			if n > 1 && VerifyAFRProof(all[i], uint64(i), uint64(n), p[1:], AFRTree(all)) == nil {
				t.Fatalf("record %d of %d: a short proof passes", i, n)
			}
		}
	}
}
