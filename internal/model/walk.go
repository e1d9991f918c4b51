package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
)

// request is what every API's request comes down to.
type request struct {
	API     string
	Session string // what stands before the API's path in the URL, for example the name of a run
	Model   string
	Stream  bool
	JSON    bool // the client asked for a JSON answer (stock answers heed it)
	Tools   []tool
	Items   []item // the history, in order
	Bytes   int    // size of the body, for plausible usage figures
}

// item is one entry of the history.
type item struct {
	kind itemKind
	text string   // of a user message, an assistant message, a tool output
	ids  []string // of tool calls
}

type itemKind uint8

const (
	itemUser itemKind = iota
	itemModel
	itemOutput
)

// history is the request's items as the script sees them.
type history struct {
	instruction string   // all user text before the model's first turn
	turns       int      // how many turns the model has had
	before      []string // for each turn, and the one to come: the last tool output before it
}

// read sorts the items into turns. A turn is a run of assistant items; where a client puts each output right after
// its call, the ids of the calls (which hold the turn's number) keep a turn of several calls together.
func (r *request) read() history {
	var h history
	var user []string
	last, inTurn := "", false
	for _, it := range r.Items {
		switch it.kind {
		case itemUser:
			inTurn = false
			if h.turns == 0 {
				user = append(user, it.text)
			}
		case itemOutput:
			inTurn = false
			last = it.text
		case itemModel:
			if !inTurn && !sameTurn(it.ids, h.turns) {
				h.before = append(h.before, last)
				h.turns++
			}
			inTurn = true
		}
	}
	h.instruction = strings.Join(user, "\n")
	h.before = append(h.before, last)
	return h
}

// callID names the k-th call of the n-th turn (from 1) of a conversation. It depends on nothing else, so that the
// same script gives the same ids. Clients want ids of the form "prefix_letters".
func callID(prefix, conversation string, n, k int) string {
	sum := sha256.Sum256([]byte(conversation))
	return fmt.Sprintf("%s_%s_%04d_%d", prefix, hex.EncodeToString(sum[:4]), n, k)
}

func sameTurn(ids []string, turn int) bool {
	if turn == 0 {
		return false
	}
	for _, id := range ids {
		parts := strings.Split(id, "_")
		if len(parts) == 4 && len(parts[1]) == 8 && parts[2] == fmt.Sprintf("%04d", turn) {
			return true
		}
	}
	return false
}

// counts remembers how often turns that leave no trace were played.
type counts struct {
	mu     sync.Mutex
	played map[string]int
}

// take tells whether the failure is still to be played, and counts it.
func (c *counts) take(key string, times int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.played == nil {
		c.played = map[string]int{}
	}
	if c.played[key] >= times {
		return false
	}
	c.played[key]++
	return true
}

// misfit is an error of the client against the script: the request has no place in it.
type misfit struct{ why string }

func (m misfit) Error() string { return m.why }

func misfitf(format string, args ...any) error { return misfit{fmt.Sprintf(format, args...)} }

// place is where in the script a request is.
type place struct {
	conversation string
	number       int // of the model's turn, from 1
	turn         *Turn
	vars         map[string]string
}

// find chooses the conversation for a request.
func (s *Script) find(r *request, h history) (*Conversation, error) {
	for i := range s.Conversations {
		cv := &s.Conversations[i]
		if cv.WithoutTools == (len(r.Tools) == 0) && (cv.match == nil || cv.match.MatchString(h.instruction)) {
			return cv, nil
		}
	}
	if len(r.Tools) == 0 {
		return nil, nil
	}
	return nil, misfitf("no conversation's match fits the instruction %q", cut(h.instruction, 300))
}

// walk follows the history through the script to the turn that comes next.
func (cv *Conversation) walk(r *request, h history, c *counts) (place, error) {
	p := place{conversation: cv.Name, number: h.turns + 1, vars: map[string]string{}}
	seq, pos := cv.Turns, 0
	for n := 0; n <= h.turns; {
		if pos >= len(seq) {
			return p, misfitf("the script of conversation %q has ended after %d turns, and the client asks for one more", cv.Name, n)
		}
		t := &seq[pos]
		if t.fails() {
			if n == h.turns && c.take(fmt.Sprintf("%s|%s|%x|%p", r.Session, cv.Name, sha256.Sum256([]byte(h.instruction)), t), t.Times) {
				p.turn = t
				return p, nil
			}
			pos++
			continue
		}
		if t.expect != nil {
			m := t.expect.FindStringSubmatch(h.before[n])
			if m == nil && t.Else == nil {
				return p, misfitf("line %d expects the last tool output to match %q, but it is %q", t.line, t.Expect, cut(h.before[n], 300))
			}
			if m == nil {
				seq, pos = t.Else, 0
				continue
			}
			for i, name := range t.expect.SubexpNames() {
				if name != "" {
					p.vars[name] = m[i]
				}
			}
		}
		if n == h.turns {
			p.turn = t
			p.vars["last_output"] = h.before[n]
			p.vars["i"] = fmt.Sprint(t.i)
			return p, nil
		}
		n++
		pos++
	}
	return p, misfitf("the history of %d turns does not fit the script", h.turns)
}

// fill puts the variables in. Only names that are set are replaced: the script was checked for others.
func (p *place) fill(s string) string {
	return variable.ReplaceAllStringFunc(s, func(m string) string {
		if v, ok := p.vars[m[2:len(m)-2]]; ok {
			return v
		}
		return m
	})
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
