package export

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
	"unicode/utf16"

	"github.com/bodycam-dev/bodycam"
)

// The Agent Audit Trail, draft-sharif-agent-audit-trail-06: lines of JSON with twelve mandatory members, chained by
// prev_hash = hex(SHA-256(JCS of the record before)), JCS being RFC 8785; the first has null for prev_hash and
// parent_record_id. What went in and came out is there as digests. The records are unsigned: the ledger is signed.
//
// An action is the agent's own account of a call. Its members that rest on that account alone are named in
// action_detail.asserted; action_detail.observed counts what the kernel saw of the call.
const (
	// trustLevel is that of records made outside the agent's reach, from its transcript and the kernel.
	trustLevel = "L2"
	phaseAfter = "post_execution"
)

// record is an AAT record before it is encoded.
type record map[string]any

// AAT writes the records: one for the session's beginning, one for every action, one for its end.
func AAT(w io.Writer, s *Source) error {
	c := &chain{w: w, s: s}
	name, version := s.agent()
	c.base = record{"agent_id": "urn:bodycam:agent:" + name, "agent_version": version, "session_id": s.Info.ID, "trust_level": trustLevel}
	c.add("start", s.Info.Started.UnixNano(), "lifecycle", "success", record{"event": "session_start", "log": s.logID(), "task": bodycam.Printable(s.Info.Task.Name)})
	for i := range s.Actions {
		c.action(&s.Actions[i])
	}
	if !s.Info.Ended.IsZero() {
		c.add("end", s.Info.Ended.UnixNano(), "lifecycle", "success", record{"event": "session_end", "log": s.logID(), "head": s.Head,
			"complete": s.Info.Complete.Complete})
	}
	return c.err
}

type chain struct {
	w      io.Writer
	s      *Source
	base   record
	parent any // of the next record: null for the first
	prev   any
	err    error
}

func (c *chain) action(a *Action) {
	outcome := "success"
	failed, why := a.failed()
	switch {
	case a.denied():
		outcome = "denied"
	case a.verdict("escalate"):
		outcome = "escalated"
	case failed:
		outcome = "failure"
	}
	detail := record{
		"tool": a.Intent.Tool, "input_digest": digest(a.Intent.Args), "output_digest": digest([]byte(a.Effects.Return)),
		"log": c.s.logID(), "record": int64(a.Record.Seq), "record_digest": hex.EncodeToString(a.Record.Digest[:]), "payload_digest": digest(a.Raw),
	}
	asserted := []string{"input_digest", "outcome", "output_digest", "timestamp", "tool"}
	say := func(name, value string) {
		detail[name] = value
		asserted = append(asserted, name)
	}
	if failed {
		say("reason", why)
	}
	if a.Delegation != nil {
		say("requested_by", a.Delegation.Requester)
	}
	if a.Approval != nil {
		say("approved_by", a.Approval.Approver)
	}
	slices.Sort(asserted)
	detail["asserted"] = asserted
	observed := record{}
	for what, n := range a.Effects.Observed {
		observed[what] = int64(min(n, exact))
	}
	detail["observed"] = observed
	from, _ := a.times()
	c.add(hex.EncodeToString(a.Record.ID[:]), from, "tool_call", outcome, detail)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// add writes a record. Its id follows from the log and the seed, so that it is the same every time.
func (c *chain) add(seed string, wall int64, action, outcome string, detail record) {
	if c.err != nil {
		return
	}
	id := uuid(c.s.logID(), seed)
	r := record{"record_id": id, "timestamp": time.Unix(0, wall).UTC().Format("2006-01-02T15:04:05.000Z"), "action_type": action, "action_detail": detail,
		"outcome": outcome, "parent_record_id": c.parent, "prev_hash": c.prev, "record_phase": phaseAfter}
	for k, v := range c.base {
		r[k] = v
	}
	var b []byte
	if b, c.err = appendJCS(nil, r); c.err != nil {
		return
	}
	sum := sha256.Sum256(b)
	c.parent, c.prev = id, hex.EncodeToString(sum[:])
	_, c.err = c.w.Write(append(b, '\n'))
}

// uuid makes a UUID of version 8, whose bits are free, from a digest.
func uuid(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	b := h.Sum(nil)[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// exact is the largest whole number that every JSON reader takes exactly.
const exact = 1<<53 - 1

// appendJCS encodes what a record is made of as RFC 8785 wants it.
func appendJCS(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int64:
		if v > exact || v < -exact {
			return nil, fmt.Errorf("%d is too large for a number in JSON", v)
		}
		return strconv.AppendInt(b, v, 10), nil
	case string:
		return appendJCSString(b, v), nil
	case []string:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJCSString(b, e)
		}
		return append(b, ']'), nil
	case record:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, func(x, y string) int { return slices.Compare(utf16.Encode([]rune(x)), utf16.Encode([]rune(y))) })
		b = append(b, '{')
		for i, k := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendJCSString(b, k), ':')
			var err error
			if b, err = appendJCS(b, v[k]); err != nil {
				return nil, fmt.Errorf("%s: %w", k, err)
			}
		}
		return append(b, '}'), nil
	}
	return nil, fmt.Errorf("a %T isn't part of a record", v)
}

// appendJCSString escapes what must be escaped and nothing else. Bytes that aren't UTF-8 become U+FFFD.
func appendJCSString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\b':
			b = append(b, '\\', 'b')
		case r == '\f':
			b = append(b, '\\', 'f')
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\r':
			b = append(b, '\\', 'r')
		case r == '\t':
			b = append(b, '\\', 't')
		case r < 0x20:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = append(b, string(r)...)
		}
	}
	return append(b, '"')
}
