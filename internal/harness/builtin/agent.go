package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/harness/transcript"
)

const defaultSystem = "You are an agent in a sandbox. You solve the task that the user gives you by running shell commands with the tool \"shell\". " +
	"Each command runs in a new /bin/sh in the working directory %s. When you are done, answer without a tool call and say what you did."

// agent is a loop: ask the model, run the commands it wants, tell it what came of them.
type agent struct {
	cfg   *Config
	key   string
	out   *printer
	retry time.Duration // pause after the first failed request; 0 means half a second
	tools toolbox
}

type message struct {
	Role       string     `json:"role"`
	Content    *string    `json:"content"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	Reasoning  string     `json:"reasoning_content,omitempty"`
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

var shellTool = map[string]any{
	"type": "function",
	"function": map[string]any{
		"name":        "shell",
		"description": "Run a command with /bin/sh and return its output and exit status.",
		"parameters": map[string]any{
			"type":                 "object",
			"properties":           map[string]any{"command": map[string]any{"type": "string", "description": "the command line"}},
			"required":             []string{"command"},
			"additionalProperties": false,
		},
	},
}

func said(role, s string) message { return message{Role: role, Content: &s} }

func (a *agent) run(ctx context.Context) error {
	cfg := a.cfg
	system := cfg.System
	if system == "" {
		system = fmt.Sprintf(defaultSystem, cfg.Workdir)
	}
	system += skillList(cfg.Skills)
	a.out.row(bodycam.RowMeta, "builtin agent, model "+cfg.Model)
	history := []message{said("system", system), said("user", cfg.Instruction)}
	a.tools.open(ctx, a)
	defer a.tools.close()
	sh := &shell{argv: cfg.Shell, dir: cfg.Workdir, timeout: seconds(cfg.CommandSeconds), limit: cfg.OutputBytes}
	for range cfg.MaxTurns {
		m, err := a.ask(ctx, history)
		if err != nil {
			return err
		}
		history = append(history, m)
		if m.Content != nil && *m.Content != "" || cfg.KeepReasoning && m.Reasoning != "" {
			l := transcript.RowLine{Event: "row", Kind: bodycam.RowMessage}
			if m.Content != nil {
				l.Text = *m.Content
			}
			if cfg.KeepReasoning {
				l.Reason = m.Reasoning
			}
			a.out.print(l)
		}
		if len(m.ToolCalls) == 0 {
			return nil
		}
		for _, c := range m.ToolCalls {
			out, err := a.call(ctx, sh, c)
			if err != nil {
				return err
			}
			history = append(history, message{Role: "tool", Content: &out, ToolCallID: c.ID})
		}
	}
	return fmt.Errorf("the agent was not done after %d turns", cfg.MaxTurns)
}

// call runs one tool call and returns what the model is told.
func (a *agent) call(ctx context.Context, sh *shell, c toolCall) (string, error) {
	var args struct {
		Command *string `json:"command"`
	}
	start := transcript.RowLine{Event: "start", Kind: bodycam.RowTool, CallID: c.ID, Tool: c.Function.Name, Args: c.Function.Arguments}
	refuse := func(why string) string {
		a.out.print(start)
		a.out.print(transcript.RowLine{Event: "end", CallID: c.ID, Output: why, Failed: true})
		return why
	}
	if c.Function.Name != "shell" {
		if t, ok := a.tools.byName[c.Function.Name]; ok {
			return a.callServer(ctx, t, start), nil
		}
		return refuse(fmt.Sprintf("there is no tool %q, only %s", c.Function.Name, strings.Join(a.tools.names(), ", "))), nil
	}
	if err := json.Unmarshal([]byte(c.Function.Arguments), &args); err != nil || args.Command == nil {
		return refuse("the arguments must be a JSON object with the string \"command\""), nil
	}
	start.Command = *args.Command
	a.out.print(start)
	r, err := sh.run(ctx, *args.Command)
	if err != nil {
		a.out.print(transcript.RowLine{Event: "end", CallID: c.ID, Output: err.Error(), Failed: true})
		if ctx.Err() != nil {
			return "", err
		}
		return err.Error(), nil
	}
	a.out.print(r.line(c.ID))
	if ctx.Err() != nil {
		return "", fmt.Errorf("stopped during a command: %w", ctx.Err())
	}
	return r.tell(), nil
}

// line is the transcript's line for a result.
func (r result) line(id string) transcript.RowLine {
	out := r.output
	if r.timedOut {
		out += "\n[the command took too long and was killed]"
	}
	return transcript.RowLine{Event: "end", CallID: id, Output: out, Cut: r.cut, Exit: &r.exit, Failed: r.exit != 0}
}

// tell is what the model reads.
func (r result) tell() string {
	var b strings.Builder
	fmt.Fprintf(&b, "exit status %d\n", r.exit)
	if r.timedOut {
		b.WriteString("the command took too long and was killed\n")
	}
	if r.left {
		b.WriteString("a process that the command started still runs\n")
	}
	b.WriteString(strings.ToValidUTF8(r.output, "\uFFFD"))
	return b.String()
}

// maxReply is the largest answer that is read from the model.
const maxReply = 32 << 20

// ask sends the history and returns the model's answer. Errors that may pass are tried again.
func (a *agent) ask(ctx context.Context, history []message) (message, error) {
	body, err := json.Marshal(map[string]any{"model": a.cfg.Model, "messages": history, "tools": append([]any{shellTool}, a.tools.offered...)})
	if err != nil {
		return message{}, fmt.Errorf("write model request: %w", err)
	}
	pause := a.retry
	if pause == 0 {
		pause = 500 * time.Millisecond
	}
	for try := 1; ; try++ {
		m, again, err := a.post(ctx, body)
		if err == nil {
			return m, nil
		}
		if !again || try == 5 || ctx.Err() != nil {
			return message{}, err
		}
		a.out.row(bodycam.RowError, fmt.Sprintf("try %d: %v", try, err))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return message{}, ctx.Err()
		}
		pause *= 2
	}
}

// post makes one request. again tells whether another try makes sense.
func (a *agent) post(ctx context.Context, body []byte) (m message, again bool, err error) {
	url := strings.TrimSuffix(a.cfg.ModelURL, "/") + "/chat/completions"
	rctx, cancel := context.WithTimeout(ctx, seconds(a.cfg.RequestSeconds))
	defer cancel()
	req, err := http.NewRequestWithContext(rctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return m, false, fmt.Errorf("ask model at %s: %w", url, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+a.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return m, true, fmt.Errorf("ask model: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return m, true, fmt.Errorf("read the answer of %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		retry := resp.StatusCode == 408 || resp.StatusCode == 429 || resp.StatusCode >= 500
		return m, retry, fmt.Errorf("the model at %s answered %s: %s", url, resp.Status, errorMessage(data))
	}
	var reply struct {
		Choices []struct {
			Message message `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(data, &reply); err != nil {
		return m, false, fmt.Errorf("read the answer of %s: %w", url, err)
	}
	if len(reply.Choices) == 0 {
		return m, false, fmt.Errorf("the answer of %s has no choices", url)
	}
	m = reply.Choices[0].Message
	m.Role = "assistant"
	return m, false, nil
}

func errorMessage(data []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(data, &e) == nil && e.Error.Message != "" {
		return e.Error.Message
	}
	return string(data[:min(len(data), 300)])
}

// skillList tells the model which skills there are: name and description, as their front matter has them.
func skillList(dirs []string) string {
	var b strings.Builder
	for _, dir := range dirs {
		file := filepath.Join(dir, "SKILL.md")
		name, description := frontMatter(file)
		if name == "" {
			name = filepath.Base(dir)
		}
		fmt.Fprintf(&b, "- %s (%s): %s\n", name, file, description)
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n\nThere are skills: guidance for some tasks. Read a skill's file before you do what it is about.\n" + b.String()
}

// frontMatter reads two keys from the head of a skill's file; no more of the file than that.
func frontMatter(file string) (name, description string) {
	f, err := os.Open(file)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	head := make([]byte, 4<<10)
	n, _ := io.ReadFull(f, head)
	rest, ok := strings.CutPrefix(string(head[:n]), "---\n")
	if !ok {
		return "", ""
	}
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if line == "---" {
			break
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		switch key {
		case "name":
			name = value
		case "description":
			description = value
		}
	}
	return name, description
}
