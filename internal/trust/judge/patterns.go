package judge

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

//go:embed data/patterns.txt
var patternsText string

// kind is what a sentence can do, with the pattern that shows it.
type kind struct {
	name    string
	pattern *regexp.Regexp
}

// kinds are those of patterns.txt, in its order. The file is embedded and a test compiles it, so that an error in it can't
// reach a user.
var kinds = sync.OnceValues(func() ([]kind, error) {
	var out []kind
	var name string
	var lines []string
	flush := func() error {
		if name == "" {
			return nil
		}
		re, err := regexp.Compile("(?:" + strings.Join(lines, ")|(?:") + ")")
		if err != nil {
			return fmt.Errorf("compile the patterns of kind %s: %w", name, err)
		}
		out = append(out, kind{name, re})
		lines = nil
		return nil
	}
	for line := range strings.Lines(patternsText) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "" || line[0] == '#':
		case kindName.MatchString(line):
			if err := flush(); err != nil {
				return nil, err
			}
			name = line[1 : len(line)-1]
		default:
			lines = append(lines, line)
		}
	}
	return out, flush()
})

var kindName = regexp.MustCompile(`^\[[a-z ]+\]$`)

// shape is a reply taken apart.
type shape struct {
	sentences []string // lower-cased, without quotations and code
	quoted    float64  // share of the text in quotation marks
	code      bool
}

// longestReply bounds what is read of a reply, in bytes, from each end.
const longestReply = 24 << 10

// mostSentences bounds how many sentences are looked at: two thirds from the head, the rest from the tail.
const mostSentences = 48

func takeApart(reply string) shape {
	if len(reply) > 2*longestReply {
		reply = reply[:longestReply] + "\n" + reply[len(reply)-longestReply:]
	}
	text := strings.NewReplacer("’", "'", "‘", "'", "“", `"`, "”", `"`, "«", `"`, "»", `"`, "„", `"`).Replace(strings.ToLower(strings.ToValidUTF8(reply, "")))
	var s shape
	plain := fenced.ReplaceAllString(text, " (code) ")
	s.code = plain != text
	// What follows ", but" often does another thing than what goes before.
	plain = strings.NewReplacer(", but ", ";\nbut ", ", though ", ";\nthough ", ". but ", ".\nbut ").Replace(plain)
	bare := quotation.ReplaceAllString(plain, ` "" `)
	s.quoted = min(1, max(0, float64(len(plain)-len(bare))/float64(max(1, len(plain)))))
	s.sentences = sentences(bare)
	if n := len(s.sentences); n > mostSentences {
		s.sentences = append(s.sentences[:mostSentences*2/3:mostSentences*2/3], s.sentences[n-mostSentences/3:]...)
	}
	return s
}

var (
	fenced    = regexp.MustCompile("(?s)```.*?(?:```|$)")
	quotation = regexp.MustCompile(`"[^"\n]{1,400}"|(?:^|\s)'[^'\n]{3,200}'`)
)

// sentences splits a text at ends of sentences and lines, at semicolons and colons.
func sentences(text string) []string {
	var out []string
	start := 0
	cut := func(to int) {
		if t := strings.TrimSpace(text[start:to]); t != "" {
			out = append(out, t)
		}
		start = to
	}
	for i, r := range text {
		next := i + len(string(r))
		space := next >= len(text) || text[next] == ' ' || text[next] == '\n' || text[next] == '\t'
		switch r {
		case '.', '!', '?', ';', ':':
			if space {
				cut(next)
			}
		case '\n', '。', '！', '？':
			cut(next)
		}
	}
	cut(len(text))
	return out
}
