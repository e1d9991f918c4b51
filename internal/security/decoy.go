package security

import (
	"archive/zip"
	"bytes"
	"compress/bzip2"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/url"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/rules"
)

// Hit is a decoy's value that turned up.
type Hit struct {
	Decoy string // its name
	As    string // how it was written: plain, base64, hex …
	Where string
}

const minDecoy = 12 // bytes; a shorter value turns up by chance

// needle is one way in which a value can be written.
type needle struct {
	decoy, as string
	text      string
}

// Decoys finds the values of decoys in data, also encoded, split over names, or compressed where that can be undone.
type Decoys struct {
	needles []needle
	folded  []needle // lower case, for names, where case is lost
	// grams has a bit for a hash of the first eight bytes of each needle: most data has none of them.
	grams [gramBits / 64]uint64
}

const (
	gramBits = 1 << 12
	gramLen  = 8 // no needle is shorter
)

// gram finds the bit of eight bytes.
func gram(b uint64) (word int, bit uint64) {
	h := b * 0x9e3779b97f4a7c15 >> 52
	return int(h / 64), 1 << (h % 64)
}

// mayHold tells whether a needle can be in the data.
func mayHold[T string | []byte](d *Decoys, data T) bool {
	var window uint64
	for i := range len(data) {
		window = window<<8 | uint64(data[i])
		if word, bit := gram(window); d.grams[word]&bit != 0 && i >= gramLen-1 {
			return true
		}
	}
	return false
}

// NewDecoys prepares the search. Values shorter than 12 bytes are left out.
func NewDecoys(decoys []Decoy) *Decoys {
	d := &Decoys{}
	for _, x := range decoys {
		if len(x.Value) < minDecoy {
			continue
		}
		name := first(x.Name, x.Path)
		for _, n := range writings(x.Value) {
			n.decoy = name
			d.needles = append(d.needles, n)
			var window uint64
			for i := range gramLen {
				window = window<<8 | uint64(n.text[i])
			}
			word, bit := gram(window)
			d.grams[word] |= bit
			n.text = strings.ToLower(n.text)
			d.folded = append(d.folded, n)
		}
	}
	return d
}

// writings are the value as it is and encoded. Base64 and base32 depend on where in the stream the value stands: the
// part that doesn't depend on its neighbours is looked for at each place.
func writings(v string) []needle {
	out := []needle{{as: "plain", text: v}, {as: "reversed", text: reverse(v)}, {as: "hex", text: hex.EncodeToString([]byte(v))},
		{as: "hex", text: strings.ToUpper(hex.EncodeToString([]byte(v)))}, {as: "rot13", text: rot13(v)}}
	if q := url.QueryEscape(v); q != v {
		out = append(out, needle{as: "percent-encoded", text: q})
	}
	for shift := range 3 {
		out = append(out, needle{as: "base64", text: inner(base64.RawStdEncoding.EncodeToString, v, shift, 3, 4)})
		if u := inner(base64.RawURLEncoding.EncodeToString, v, shift, 3, 4); u != out[len(out)-1].text {
			out = append(out, needle{as: "base64url", text: u})
		}
	}
	enc := base32.StdEncoding.WithPadding(base32.NoPadding)
	for shift := range 5 {
		out = append(out, needle{as: "base32", text: inner(enc.EncodeToString, v, shift, 5, 8)})
	}
	return out
}

// inner encodes v as if shift bytes stood before it and leaves out the groups that other bytes are in. group bytes
// make width letters.
func inner(encode func([]byte) string, v string, shift, group, width int) string {
	if shift > 0 {
		v = v[group-shift:]
	}
	v = v[:len(v)/group*group]
	return encode([]byte(v))[:len(v)/group*width]
}

func reverse(s string) string {
	b := []byte(s)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}

func rot13(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return 'a' + (r-'a'+13)%26
		case r >= 'A' && r <= 'Z':
			return 'A' + (r-'A'+13)%26
		}
		return r
	}, s)
}

func (d *Decoys) text(s, where string, hits []Hit) []Hit {
	if !mayHold(d, s) {
		return hits
	}
	for _, n := range d.needles {
		if strings.Contains(s, n.text) {
			hits = addHit(hits, Hit{n.decoy, n.as, where})
		}
	}
	return hits
}

func addHit(hits []Hit, h Hit) []Hit {
	for _, x := range hits {
		if x.Decoy == h.Decoy && x.Where == h.Where {
			return hits
		}
	}
	return append(hits, h)
}

// Limits of Search: what it unpacks of hostile data.
const (
	maxUnpacked = 64 << 20
	maxLayers   = 4
	minRun      = 24 // letters of base64 or hex that are worth decoding
)

// Search looks for decoys in a file's or a connection's bytes, through up to four layers of gzip, zlib, deflate,
// bzip2, zip, base64 and hex, each bounded.
func (d *Decoys) Search(data []byte, where string) []Hit {
	if len(d.needles) == 0 {
		return nil
	}
	budget := maxUnpacked
	return d.search(data, where, "", 0, &budget, nil)
}

func (d *Decoys) search(data []byte, where, through string, layer int, budget *int, hits []Hit) []Hit {
	before := len(hits)
	if mayHold(d, data) {
		hits = d.text(string(data), where, hits)
	}
	for i := before; i < len(hits); i++ {
		if through != "" {
			hits[i].As = through + ", " + hits[i].As
		}
	}
	if layer >= maxLayers || *budget <= 0 {
		return hits
	}
	for _, u := range unpackers {
		for _, inner := range u.unpack(data, *budget) {
			*budget -= len(inner)
			way := u.name
			if through != "" {
				way = through + ", " + u.name
			}
			hits = d.search(inner, where, way, layer+1, budget, hits)
		}
	}
	return hits
}

var unpackers = []struct {
	name   string
	unpack func(data []byte, limit int) [][]byte
}{
	{"gzip", func(b []byte, n int) [][]byte {
		return stream(b, n, "\x1f\x8b", func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) })
	}},
	{"zlib", func(b []byte, n int) [][]byte {
		if len(b) < 2 || b[0] != 0x78 {
			return nil
		}
		return stream(b, n, "x", func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) })
	}},
	{"bzip2", func(b []byte, n int) [][]byte {
		return stream(b, n, "BZh", func(r io.Reader) (io.Reader, error) { return bzip2.NewReader(r), nil })
	}},
	{"zip", unzip},
	{"base64", func(b []byte, n int) [][]byte { return decodeRuns(b, n, base64Letters, decodeBase64) }},
	{"hex", func(b []byte, n int) [][]byte { return decodeRuns(b, n, hexLetters, decodeHex) }},
}

// stream unpacks what begins with magic, anywhere in the first places it stands.
func stream(b []byte, limit int, magic string, open func(io.Reader) (io.Reader, error)) [][]byte {
	var out [][]byte
	for range 4 {
		i := bytes.Index(b, []byte(magic))
		if i < 0 || magic == "x" && i > 0 {
			return out
		}
		if r, err := open(bytes.NewReader(b[i:])); err == nil {
			// A stream that was cut still gives what came before the cut.
			if got, _ := io.ReadAll(io.LimitReader(r, int64(limit))); len(got) > 0 {
				out = append(out, got)
				limit -= len(got)
			}
		}
		b = b[i+1:]
	}
	return out
}

func unzip(b []byte, limit int) [][]byte {
	if !bytes.Contains(b, []byte("PK\x03\x04")) {
		return nil
	}
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil
	}
	var out [][]byte
	for i, f := range z.File {
		if i == 256 || limit <= 0 {
			break
		}
		raw, err := f.OpenRaw()
		if err != nil {
			continue
		}
		var r io.Reader = raw
		if f.Method == zip.Deflate {
			r = flate.NewReader(raw)
		}
		got, _ := io.ReadAll(io.LimitReader(r, int64(limit)))
		if len(got) > 0 {
			out = append(out, got)
			limit -= len(got)
		}
	}
	return out
}

// letters is a set of bytes.
type letters [256]bool

func lettersOf(s string) *letters {
	var l letters
	for i := range len(s) {
		l[s[i]] = true
	}
	return &l
}

var (
	hexLetters    = lettersOf("0123456789abcdefABCDEF")
	base64Letters = lettersOf("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/-_")
)

// decodeRuns decodes runs of letters. Line breaks inside a run are left out.
func decodeRuns(b []byte, limit int, is *letters, decode func([]byte) []byte) [][]byte {
	if !hasRun(b, is) {
		return nil
	}
	var out [][]byte
	var run []byte
	flush := func() {
		if len(run) >= minRun && limit > 0 {
			if got := decode(run); len(got) > 0 {
				out = append(out, got)
				limit -= len(got)
			}
		}
		run = run[:0]
	}
	for i, c := range b {
		switch {
		case is[c]:
			run = append(run, c)
		case c == '\n' || c == '\r':
			if i+1 < len(b) && !is[b[i+1]] && b[i+1] != '\n' {
				flush()
			}
		default:
			flush()
		}
		if len(out) >= 64 {
			return out
		}
	}
	flush()
	return out
}

// hasRun tells whether there is a run worth decoding, line breaks left aside.
func hasRun(b []byte, is *letters) bool {
	n := 0
	for _, c := range b {
		switch {
		case is[c]:
			if n++; n >= minRun {
				return true
			}
		case c != '\n' && c != '\r':
			n = 0
		}
	}
	return false
}

func decodeBase64(run []byte) []byte {
	std := bytes.Map(func(r rune) rune {
		switch r {
		case '-':
			return '+'
		case '_':
			return '/'
		}
		return r
	}, run)
	std = std[:len(std)-len(std)%4]
	got := make([]byte, base64.RawStdEncoding.DecodedLen(len(std)))
	n, _ := base64.RawStdEncoding.Decode(got, std)
	return got[:n]
}

func decodeHex(run []byte) []byte {
	got := make([]byte, len(run)/2)
	n, _ := hex.Decode(got, run[:len(run)&^1])
	return got[:n]
}

// decoyWatch looks for decoys in what events say: arguments, names of hosts and files. Pieces of a value that are
// sent one after the other, as arguments or as names, are put together per tree.
type decoyWatch struct {
	*Decoys
	labels map[bodycam.Proc]*strings.Builder
}

const (
	maxLabels = 8 << 10
	maxWatch  = 4096
)

func newDecoyWatch(decoys []Decoy) *decoyWatch {
	return &decoyWatch{NewDecoys(decoys), map[bodycam.Proc]*strings.Builder{}}
}

func (w *decoyWatch) event(e *bodycam.Event, p *rules.Process) []Hit {
	if len(w.needles) == 0 {
		return nil
	}
	var hits []Hit
	switch e.Type {
	case bodycam.TypeExec:
		all := strings.Join(e.Argv, " ")
		hits = w.text(all, "an argument", hits)
		if len(hits) == 0 {
			hits = w.text(strings.Join(e.Argv, ""), "arguments put together", hits)
		}
		if len(hits) == 0 && len(all) >= minRun && len(all) < 1<<20 {
			hits = w.Search([]byte(all), "an argument")
		}
	case bodycam.TypeDNS, bodycam.TypeTLS, bodycam.TypeHTTP:
		hits = w.names(e, p)
	case bodycam.TypeOpen, bodycam.TypeRename, bodycam.TypeLink, bodycam.TypeSymlink, bodycam.TypeMkdir:
		// A name that the run gives carries a value; one that it merely opens was there.
		name := first(e.Path2, e.Path, e.PathGiven)
		if len(name) >= minDecoy && (e.Type != bodycam.TypeOpen || e.Access&bodycam.Create != 0) {
			hits = w.text(name, "the name of a file", hits)
		}
	}
	return hits
}

// names looks at a host's name, and at the labels of the names asked for one after the other.
func (w *decoyWatch) names(e *bodycam.Event, p *rules.Process) []Hit {
	name := strings.ToLower(strings.TrimSuffix(e.Host, "."))
	if name == "" {
		return nil
	}
	var hits []Hit
	joined := strings.ReplaceAll(name, ".", "")
	for _, n := range w.folded {
		if strings.Contains(name, n.text) || strings.Contains(joined, n.text) {
			hits = addHit(hits, Hit{n.decoy, n.as, "the name of a host"})
		}
	}
	if len(hits) > 0 || e.Type != bodycam.TypeDNS {
		return hits
	}
	key := e.Proc
	if p != nil {
		key = p.Root().ID
	}
	b := w.labels[key]
	if b == nil {
		if len(w.labels) >= maxWatch {
			return nil
		}
		b = &strings.Builder{}
		w.labels[key] = b
	}
	label := dataLabel(name)
	if label == "" || strings.HasSuffix(b.String(), label) {
		return nil // the same question again, for the other kind of address
	}
	if b.Len() > maxLabels {
		kept := b.String()[maxLabels/2:]
		b.Reset()
		b.WriteString(kept)
	}
	b.WriteString(label)
	for _, n := range w.folded {
		if strings.Contains(b.String(), n.text) {
			hits = addHit(hits, Hit{n.decoy, n.as, "names of hosts put together"})
		}
	}
	if len(hits) > 0 {
		b.Reset()
	}
	return hits
}

// dataLabel is the label of a name that is likeliest to carry a piece: the longest below the domain, without a counter
// before or behind it ("3-abcdef").
func dataLabel(name string) string {
	labels := strings.Split(name, ".")
	best := ""
	for _, l := range labels[:max(len(labels)-2, 1)] {
		if len(l) > len(best) {
			best = l
		}
	}
	if a, b, ok := strings.Cut(best, "-"); ok {
		switch {
		case strings.Trim(a, "0123456789") == "":
			best = b
		case strings.Trim(b, "0123456789") == "":
			best = a
		}
	}
	return best
}
