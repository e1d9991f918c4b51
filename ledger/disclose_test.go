package ledger

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"testing"
	"testing/fstest"

	"filippo.io/age"
)

// corpusLog loads a log of the corpus and its identity.
func corpusLog(t *testing.T, name string) (fstest.MapFS, []age.Identity) {
	t.Helper()
	b, err := os.ReadFile("testdata/corpus/" + name)
	if err != nil {
		t.Fatal(err)
	}
	fsys := fstest.MapFS{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		fsys[h.Name] = &fstest.MapFile{Data: data}
	}
	f, err := os.Open("testdata/corpus/identity.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ids, err := age.ParseIdentities(f)
	if err != nil {
		t.Fatal(err)
	}
	return fsys, ids
}

// TestBundleOpensNothingElse: of all keys, salts and payloads of a log, a bundle holds those of what it discloses.
func TestBundleOpensNothingElse(t *testing.T) {
	fsys, ids := corpusLog(t, "valid.tar")
	r, err := OpenReader(fsys, ids...)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	bundle, err := r.Disclose([]Disclose{{Seq: 1}, {Seq: 5, Closed: true}, {Seq: 7, Events: []int{1}}, {Seq: 9}})
	if err != nil {
		t.Fatal(err)
	}
	b := bundle.Append(nil)
	holds := func(what string, secret []byte, want bool) {
		t.Helper()
		if len(secret) > 0 && bytes.Contains(b, secret) != want {
			t.Errorf("%s: in the bundle is %v, want %v", what, !want, want)
		}
	}
	for rec, err := range r.Records(0) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.Form.Clear() {
			continue
		}
		o, err := r.open(rec)
		if err != nil {
			t.Fatal(err)
		}
		holds(rec.Kind+": event key", o.key[:], rec.Seq == 1)
		if rec.Form.Kind() == FormInline {
			holds(rec.Kind+": payload", o.plain, rec.Seq == 1)
			continue
		}
		holds(rec.Kind+": manifest key", o.m.key, false)
		holds(rec.Kind+": manifest salt", o.m.salt, rec.Seq == 9)
		if !rec.Form.Batch() {
			continue
		}
		events, _, err := o.events(&rec.Record)
		if err != nil {
			t.Fatal(err)
		}
		salts, err := o.salts(len(events))
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range events {
			holds("event", e, i == 1)
			holds("event's salt", salts[i*saltSize:(i+1)*saltSize], i == 1)
		}
	}
	for epoch := range r.Epochs() {
		file, err := r.keys.wrap(0, epoch)
		if err != nil {
			t.Fatal(err)
		}
		s, err := unwrap(file.age, ids)
		if err != nil {
			t.Fatal(err)
		}
		holds("epoch secret", s.secret, false)
		holds("wrap", file.age, false)
		k, err := newEpochKey(&r.id, epoch, s.secret)
		if err != nil {
			t.Fatal(err)
		}
		holds("state of the epoch's HMAC", k.inner[8:40], false)
	}
	if rep := bundle.Verify(Trust{Self: true}); rep.Verdict != Verified || rep.Opened != 3 {
		t.Fatalf("%s, %d opened: %+v", rep.Verdict, rep.Opened, rep.Claims)
	}
	for _, what := range [][]Disclose{{{Seq: 99}}, {{Seq: 1}, {Seq: 1}}, {{Seq: 1, Events: []int{0}}}, {{Seq: 7, Events: []int{35}}}, {{Seq: 7, Events: []int{-1}}}} {
		if _, err := r.Disclose(what); err == nil {
			t.Errorf("%+v was disclosed", what)
		}
	}
}
