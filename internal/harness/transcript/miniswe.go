package transcript

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
)

type miniMessage struct {
	Role    string          `json:"role"`
	Type    string          `json:"type"`
	Content json.RawMessage `json:"content"`
	Output  json.RawMessage `json:"output"`
	Tool    string          `json:"tool_call_id"`
	Call    string          `json:"call_id"`
	Extra   struct {
		Timestamp json.RawMessage `json:"timestamp"`
		Actions   []struct {
			Command string `json:"command"`
			ID      string `json:"tool_call_id"`
		} `json:"actions"`
		Raw        *string `json:"raw_output"`
		ReturnCode *int    `json:"returncode"`
		ExitStatus string  `json:"exit_status"`
	} `json:"extra"`
}

// Version 1 of mini-swe-agent has the command in a fenced block of the answer, and the return code in the reply.
var (
	miniBlock = regexp.MustCompile("(?s)```(?:bash|sh|mswea_bash_command)\\s*\\n(.*?)\\n?```")
	miniExit  = regexp.MustCompile(`<returncode>(-?\d+)</returncode>`)
)

// readMiniSWE reads a trajectory of mini-swe-agent.
func readMiniSWE(p *document, at time.Time, data []byte) error {
	var open []int // rows that wait for their observation
	n := 0
	answer := func(m *miniMessage, raw string) {
		exit := m.Extra.ReturnCode
		if exit == nil {
			if f := miniExit.FindStringSubmatch(raw); f != nil {
				if v, err := strconv.Atoi(f[1]); err == nil {
					exit = &v
				}
			}
		}
		if m.Extra.Raw != nil {
			raw = *m.Extra.Raw
		}
		i := open[0]
		for k, row := range open {
			if id := m.Tool + m.Call; id != "" && p.rows[row].CallID == id {
				i, open[k] = row, open[0]
				break
			}
		}
		open = open[1:]
		p.finish(at, i, raw, exit, exit != nil && *exit != 0)
	}
	_, err := array(data, []string{"messages"}, func(line int, raw json.RawMessage) error {
		var m miniMessage
		if err := p.element(line, raw, &m); err != nil {
			p.raw(at, raw)
			return nil
		}
		claimed, content := clock(m.Extra.Timestamp), text(m.Content)
		switch {
		case m.Role == "assistant" || m.Role == "" && len(m.Extra.Actions) > 0:
			commands := m.Extra.Actions
			if commands == nil {
				for _, b := range miniBlock.FindAllStringSubmatch(content, 1) {
					commands = append(commands, struct {
						Command string `json:"command"`
						ID      string `json:"tool_call_id"`
					}{Command: b[1]})
				}
			}
			if spoken := strings.TrimSpace(miniBlock.ReplaceAllString(content, "")); spoken != "" && len(commands) == 0 {
				p.add(at, bodycam.Row{Kind: bodycam.RowMessage, Text: spoken, Claimed: claimed})
			}
			for _, c := range commands {
				n++
				id := c.ID
				if id == "" {
					id = fmt.Sprintf("action-%d", n)
				}
				row := bodycam.Row{Kind: bodycam.RowTool, CallID: id, Tool: "bash", Command: c.Command, Claimed: claimed, Reason: miniBlock.ReplaceAllString(content, "")}
				if i := p.add(at, row); p.overflow == 0 {
					open = append(open, i)
				}
			}
		case len(open) > 0 && (m.Role == "user" || m.Role == "tool" || m.Type == "function_call_output"):
			if content == "" {
				content = text(m.Output)
			}
			answer(&m, content)
		case m.Role == "exit":
			p.add(at, bodycam.Row{Kind: bodycam.RowMeta, Text: strings.TrimSpace("exit " + m.Extra.ExitStatus), Claimed: claimed})
		default:
			p.add(at, bodycam.Row{Kind: bodycam.RowMeta, Text: m.Role + m.Type + ": " + content, Claimed: claimed})
		}
		return nil
	})
	return err
}
