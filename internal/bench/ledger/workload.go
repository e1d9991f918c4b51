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
)

// The synthetic workload of the Agent Flight Recorder's evaluation: eight classes of tools in equal shares, fifteen in a
// hundred calls in groups of two or three that run at the same time.
var toolClasses = []string{"file_read", "file_write", "shell", "api", "db_query", "retrieval", "code_exec", "approval_gate"}

// call is one event of the workload: an action with its eight semantic fields, and its concurrency group.
type call struct {
	bodycam.Action
	Group uint64
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
	c.Intent = bodycam.Intent{Tool: tool, Args: json.RawMessage(fmt.Sprintf(`{"limit":%d,"mode":"rw","path":%q}`, r.IntN(1000), path))}
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
