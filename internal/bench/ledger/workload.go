// Package ledgerbench measures the ledger: what it finds of tampering beside simpler logs (Tamper), what structured
// questions find beside text search (Forensics), and what an event costs (Speed).
package ledgerbench

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// The synthetic workload of the Agent Flight Recorder's evaluation: eight classes of tools in equal shares, fifteen in a
// hundred calls in groups of two or three that run at the same time.
var toolClasses = []string{"file_read", "file_write", "shell", "api", "db_query", "retrieval", "code_exec", "approval_gate"}

// call is one event of the workload: an action with its eight semantic fields, and its concurrency group.
type call struct {
	bodycam.Action
	Group uint64
	args  []arg // what Intent.Args says, sorted as CBOR wants it
}

type arg struct {
	name string
	text string
	num  int64
}

// workload makes n calls, the same for the same seed.
func workload(n int, seed uint64) []call {
	r := rand.New(rand.NewPCG(seed, 0xb0d7ca3))
	out := make([]call, n)
	group, left := uint64(0), 0
	for i := range out {
		c := &out[i]
		c.fill(i, toolClasses[r.IntN(len(toolClasses))], r)
		// A group begins so often that 15 of 100 calls are in one: groups have 2.5 calls on average.
		if left == 0 && r.Float64() < 0.15/2.5/(1-0.15+0.15/2.5) {
			group++
			left = 2 + r.IntN(2)
		}
		if left > 0 {
			left--
			c.Group = group
		}
	}
	return out
}

func (c *call) fill(i int, tool string, r *rand.Rand) {
	digest := func() string {
		var b [32]byte
		for j := range b {
			b[j] = byte(r.Uint32())
		}
		return hex.EncodeToString(b[:])
	}
	path := fmt.Sprintf("/srv/repo/pkg/mod%d/file%d.go", r.IntN(17), r.IntN(1000))
	c.args = []arg{{name: "mode", text: "rw"}, {name: "path", text: path}, {name: "limit", num: int64(r.IntN(1000))}}
	c.Intent = bodycam.Intent{Tool: tool, Args: json.RawMessage(fmt.Sprintf(`{"limit":%d,"mode":"rw","path":%q}`, c.args[2].num, path))}
	c.Policy = []bodycam.Policy{{Name: "cedar", Version: "7", Verdict: "allow"}}
	if tool == "approval_gate" {
		c.Approval = &bodycam.Approval{Approver: "alice@example.org", Decision: "granted", Time: 1790000000000000000 + int64(i)}
	}
	code := 0
	c.Execution = bodycam.Execution{Command: "run " + tool, Started: 1790000000000000000 + int64(i)*1000, Ended: 1790000000000000500 + int64(i)*1000}
	c.Effects = bodycam.Effects{Return: "done", Exit: &code, Events: [][2]uint64{{uint64(i * 10), uint64(i*10 + 7)}}, Confidence: 1}
	c.Context = bodycam.Context{Sources: []bodycam.Source{{Name: "user", SHA256: digest()}, {Name: "tool:retrieval", SHA256: digest()}}, Environment: "staging"}
	c.Code = []bodycam.CodeDigest{{Name: "agent", SHA256: digest()}, {Name: "skill:repo", SHA256: digest()}}
	c.Delegation = &bodycam.Delegation{Requester: "agent-a", Scope: "repo:write"}
}

// appendCBOR encodes a call as the ledger encodes its own: deterministic CBOR with integer keys, digests as bytes.
func (c *call) appendCBOR(b []byte) []byte {
	b = dcbor.AppendMap(b, 8)
	b = dcbor.AppendMap(append(b, 1), 2)
	b = dcbor.AppendText(append(b, 1), c.Intent.Tool)
	b = dcbor.AppendMap(append(b, 2), len(c.args))
	for i := range c.args {
		b = dcbor.AppendText(b, c.args[i].name)
		if c.args[i].text != "" {
			b = dcbor.AppendText(b, c.args[i].text)
		} else {
			b = dcbor.AppendInt(b, c.args[i].num)
		}
	}
	b = dcbor.AppendArray(append(b, 2), len(c.Policy))
	for i := range c.Policy {
		p := &c.Policy[i]
		b = dcbor.AppendArray(b, 4)
		b = dcbor.AppendText(dcbor.AppendText(dcbor.AppendText(dcbor.AppendText(b, p.Name), p.Version), p.Verdict), p.Reason)
	}
	b = append(b, 3)
	if a := c.Approval; a == nil {
		b = dcbor.AppendNull(b)
	} else {
		b = dcbor.AppendArray(b, 3)
		b = dcbor.AppendInt(dcbor.AppendText(dcbor.AppendText(b, a.Approver), a.Decision), a.Time)
	}
	b = dcbor.AppendArray(append(b, 4), 3)
	b = dcbor.AppendInt(dcbor.AppendInt(dcbor.AppendText(b, c.Execution.Command), c.Execution.Started), c.Execution.Ended)
	b = c.appendEffects(append(b, 5))
	b = dcbor.AppendArray(append(b, 6), 1+len(c.Context.Sources))
	b = dcbor.AppendText(b, c.Context.Environment)
	for _, s := range c.Context.Sources {
		b = appendDigest(dcbor.AppendText(dcbor.AppendArray(b, 2), s.Name), s.SHA256)
	}
	b = dcbor.AppendArray(append(b, 7), len(c.Code))
	for _, s := range c.Code {
		b = appendDigest(dcbor.AppendText(dcbor.AppendArray(b, 2), s.Name), s.SHA256)
	}
	b = dcbor.AppendArray(append(b, 8), 2)
	return dcbor.AppendText(dcbor.AppendText(b, c.Delegation.Requester), c.Delegation.Scope)
}

func (c *call) appendEffects(b []byte) []byte {
	e := &c.Effects
	b = dcbor.AppendArray(b, 3+2*len(e.Events))
	b = dcbor.AppendInt(dcbor.AppendText(b, e.Return), int64(*e.Exit))
	b = dcbor.AppendFloat(b, e.Confidence)
	for _, r := range e.Events {
		b = dcbor.AppendUint(dcbor.AppendUint(b, r[0]), r[1])
	}
	return b
}

func appendDigest(b []byte, hexes string) []byte {
	var raw [32]byte
	if n, err := hex.Decode(raw[:], []byte(hexes)); err != nil || n != len(raw) {
		return dcbor.AppendText(b, hexes)
	}
	return dcbor.AppendBytes(b, raw[:])
}

// table prints rows in columns.
func table(rows [][]string) string {
	var width []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	var b strings.Builder
	for n, r := range rows {
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-len([]rune(c)))
			switch {
			case i == 0:
				b.WriteString("| " + c + pad)
			default:
				b.WriteString(" | " + pad + c)
			}
		}
		b.WriteString(" |\n")
		if n == 0 {
			cells := slices.Repeat([]string{"---:"}, len(r)-1)
			b.WriteString("|---|" + strings.Join(cells, "|") + "|\n")
		}
	}
	return b.String()
}
