package minilm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

func model(t testing.TB) *Model {
	t.Helper()
	m, err := Default()
	if err != nil {
		t.Skip(err)
	}
	return m
}

// The check values were measured with the float model; rounding the weights costs a little.
func TestCheckValues(t *testing.T) {
	m := model(t)
	hello := m.Encode("hello world")
	for text, want := range map[string]float64{"hi there world": .73372, "the cat sat": .07134} {
		if got := Dot(hello, m.Encode(text)); math.Abs(got-want) > .005 {
			t.Errorf("hello world · %s = %.5f, want %.5f", text, got, want)
		}
	}
}

type golden struct {
	Text   string  `json:"text"`
	IDs    []int32 `json:"ids"`
	Vector []byte  `json:"vector"`
}

func goldens(t *testing.T) []golden {
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []golden
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// The reference tokeniser and the float model agree with ours: same tokens, cosine at least .999.
func TestReference(t *testing.T) {
	m := model(t)
	lowest, sum := 1.0, 0.0
	all := goldens(t)
	for _, g := range all {
		if ids := m.Tokens(g.Text); !slices.Equal(ids, g.IDs) {
			t.Errorf("tokens of %q are %v, want %v", g.Text, ids, g.IDs)
		}
		want := make([]float32, m.Header.Width)
		if err := binary.Read(bytes.NewReader(g.Vector), binary.LittleEndian, want); err != nil {
			t.Fatal(err)
		}
		c := Dot(m.encode(g.IDs), want)
		if c < .995 {
			t.Errorf("the vector of %q has cosine %.5f to the float model's", g.Text, c)
		}
		lowest, sum = min(lowest, c), sum+c
	}
	t.Logf("cosine to the float model: mean %.5f, lowest %.5f", sum/float64(len(all)), lowest)
	if sum/float64(len(all)) < .999 {
		t.Errorf("the mean cosine to the float model is %.5f", sum/float64(len(all)))
	}
}

// A text can't smuggle in the encoder's own tokens: they are spelt as any other word (the reference tokeniser differs).
func TestSpecialTokensAreText(t *testing.T) {
	m := model(t)
	for _, id := range m.Tokens("[CLS] [SEP] [MASK] [UNK]")[1:] {
		if id == m.vocab[first] || id == m.vocab["[MASK]"] {
			t.Errorf("token %d came from the text", id)
		}
	}
}

// Vectors are the same to the bit on every machine, and so this digest is. It changes only with the model file.
func TestSameBitsEverywhere(t *testing.T) {
	m := model(t)
	digest := func() string {
		h := sha256.New()
		for _, g := range goldens(t) {
			_ = binary.Write(h, binary.LittleEndian, m.encode(g.IDs))
		}
		return fmt.Sprintf("%x", h.Sum(nil))
	}
	const want = "91c678d16735a30e364e02d482dbf7865bec3dcc7ad301883d0a9f9e765234d3"
	if got := digest(); got != want {
		t.Errorf("the digest of the vectors is %s, want %s", got, want)
	}
	if !useAVX2 {
		t.Log("no AVX2 here: only the kernel in Go was tested")
		return
	}
	withoutAVX2(t)
	if got := digest(); got != want {
		t.Errorf("with the kernel in Go the digest is %s, want %s", got, want)
	}
}

func TestLongTexts(t *testing.T) {
	m := model(t)
	long := strings.Repeat("weather ", 5000)
	if n := len(m.Tokens(long)); n != m.Header.Positions {
		t.Errorf("%d tokens, want %d", n, m.Header.Positions)
	}
	if got := m.Tokens(long)[m.Header.Positions-1]; got != m.vocab[last] {
		t.Errorf("a cut text ends with token %d, want %d", got, m.vocab[last])
	}
	if v := m.Encode(long); math.Abs(Dot(v, v)-1) > 1e-6 {
		t.Errorf("its vector has length² %f", Dot(v, v))
	}
}

func TestCache(t *testing.T) {
	c := NewCache(model(t), 2)
	a := c.Encode("one")
	if b := c.Encode("one"); &a[0] != &b[0] {
		t.Error("a text that was just asked for is encoded anew")
	}
	c.Encode("two")
	c.Encode("three")
	if b := c.Encode("one"); &a[0] == &b[0] || !slices.Equal(a, b) {
		t.Error("the oldest of three texts should have left a cache of two, and encode alike again")
	}
	if c.order.Len() != 2 || len(c.byKey) != 2 {
		t.Errorf("the cache holds %d and %d entries, want 2", c.order.Len(), len(c.byKey))
	}
}

func TestBrokenModel(t *testing.T) {
	if modelFile == "" {
		t.Skip(ErrNoModel)
	}
	for name, data := range map[string]string{
		"empty": "", "magic only": Magic, "cut header": modelFile[:40], "cut tensors": modelFile[:len(modelFile)-1],
		"longer": modelFile + "x", "header is no JSON": Magic + "\x02\x00\x00\x00xx",
		"sizes out of range": Magic + "\x0c\x00\x00\x00" + `{"layers":0}`,
	} {
		if _, err := load(data); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzTokens(f *testing.F) {
	for _, s := range []string{"", "hello world", "İ\u0301\x00", "東京 tower", "\xff\xfe broken", strings.Repeat("é", 300)} {
		f.Add(s)
	}
	m := model(f)
	f.Fuzz(func(t *testing.T, s string) {
		ids := m.Tokens(s)
		if len(ids) < 2 || len(ids) > m.Header.Positions {
			t.Fatalf("%d tokens", len(ids))
		}
		for _, id := range ids {
			if id < 0 || int(id) >= m.Header.Vocab {
				t.Fatalf("token %d is outside the vocabulary", id)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	m := model(b)
	ids := m.Tokens("what will the weather be like in denver tomorrow")
	if len(ids) != 12-1 && len(ids) != 12 {
		b.Fatalf("the sentence has %d tokens", len(ids))
	}
	for b.Loop() {
		m.encode(ids)
	}
}

func BenchmarkEncodeGo(b *testing.B) {
	withoutAVX2(b)
	BenchmarkEncode(b)
}
