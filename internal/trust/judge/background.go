package judge

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/bodycam-dev/bodycam/internal/trust/judge/minilm"
)

//go:embed data/background.txt
var backgroundText string

// backgroundVectors holds the vectors of background.txt, since encoding them at every start would take seconds: the
// SHA-256 of the text, then a float32 scale and 384 int8 a line. The program in fit writes it.
//
//go:embed data/background.bin
var backgroundVectors string

// Utterance is something that people ask some agent, under a topic.
type Utterance struct{ Topic, Text string }

// Background returns the shipped corpus of everyday requests: written for bodycam, under its licence. It tells a judge
// what is common to all requests, and a maker of probes what lies beside a skill.
var Background = sync.OnceValue(func() []Utterance {
	var out []Utterance
	topic := ""
	for line := range strings.Lines(backgroundText) {
		line = strings.TrimSpace(line)
		if t, ok := strings.CutPrefix(line, "# "); ok {
			topic = t
		} else if line != "" {
			out = append(out, Utterance{topic, line})
		}
	}
	return out
})

// background is the corpus as vectors.
type background struct {
	raw  []vector
	mean vector // of all, not of length one
}

// PackBackground encodes the corpus, for the program in fit.
func PackBackground(m *minilm.Model) []byte {
	digest := sha256.Sum256([]byte(backgroundText))
	out := digest[:]
	for _, u := range Background() {
		v := m.Encode(u.Text)
		var most float32
		for _, x := range v {
			most = max(most, x, -x)
		}
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(most/127))
		for _, x := range v {
			out = append(out, byte(int8(math.Round(float64(x)/float64(most/127)))))
		}
	}
	return out
}

func unpackBackground(data string, width int) (*background, error) {
	digest := sha256.Sum256([]byte(backgroundText))
	rest, ok := strings.CutPrefix(data, string(digest[:]))
	if n := len(Background()); !ok || len(rest) != n*(4+width) {
		return nil, errors.New("the vectors of the background corpus belong to another text: run go run ./internal/trust/judge/fit")
	}
	b := new(background)
	for ; rest != ""; rest = rest[4+width:] {
		v := make(vector, width)
		scale := math.Float32frombits(binary.LittleEndian.Uint32([]byte(rest[:4])))
		for i := range v {
			v[i] = float32(int8(rest[4+i])) * scale
		}
		b.raw = append(b.raw, sum(nil, v))
	}
	total := make([]float64, width)
	for _, v := range b.raw {
		for i, x := range v {
			total[i] += float64(x)
		}
	}
	b.mean = make(vector, width)
	for i, x := range total {
		b.mean[i] = float32(x / float64(len(b.raw)))
	}
	if len(b.raw) == 0 {
		return nil, fmt.Errorf("the background corpus is empty")
	}
	return b, nil
}

// centre takes what all requests share out of a vector.
func (b *background) centre(v vector) vector { return sum([]float64{1, -1}, v, b.mean) }
