package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// replayed are the tasks whose careful scripts are also replayed from transcripts.
var replayed = []string{"logs", "bundle", "cite"}

// replays writes transcripts of the careful scripts in the public formats, one format for each run, and makes the jobs
// that run their commands again. The transcript of codex is one that codex itself printed, where it was recorded.
func (r *recorder) replays(c *corpus, n int) ([]job, error) {
	forms := []struct {
		name, ext string
		write     func([]string) ([]byte, error)
	}{
		{"swe-agent", "traj", sweAgent}, {"mini-swe-agent", "traj.json", miniSWE}, {"openhands", "json", openHands},
		{"atif", "json", atif}, {"claude", "jsonl", claude},
	}
	var out []job
	for _, task := range replayed {
		scripts := c.Tasks[task]["careful"]
		add := func(form, file string, s script) {
			out = append(out, job{recorded: recorded{Task: task, Model: "replayed", Agent: "replay", Format: form, Plants: s.Plants, Also: s.Also, n: n + len(out)},
				script: s, task: filepath.Join(r.data, "tasks", task),
				args: []string{"--agent", "replay", "--model", "replayed", "--param", "transcript=" + file, "--param", "format=" + form}})
		}
		for i, f := range forms {
			s := scripts[i%len(scripts)]
			commands := make([]string, len(s.Steps))
			for k, st := range s.Steps {
				commands[k] = st.command()
			}
			b, err := f.write(commands)
			if err != nil {
				return nil, err
			}
			name := filepath.Join(r.work, fmt.Sprintf("replay-%s-%s.%s", task, f.name, f.ext))
			if err := os.WriteFile(name, b, 0o644); err != nil {
				return nil, err
			}
			add(f.name, name, s)
		}
		for _, d := range r.done {
			if d.Task == task && d.Model == "careful" && d.Agent == "codex" {
				add("codex-exec", filepath.Join(r.out, d.Run, "agent", "stdout"), scripts[0])
				break
			}
		}
	}
	return out, nil
}

func sweAgent(commands []string) ([]byte, error) {
	steps := []map[string]any{}
	for _, c := range commands {
		steps = append(steps, map[string]any{"action": c + "\n", "observation": "", "response": "", "thought": "", "state": map[string]any{}, "execution_time": 0.1})
	}
	steps = append(steps, map[string]any{"action": "submit", "observation": "", "thought": ""})
	return json.MarshalIndent(map[string]any{"trajectory": steps, "history": []any{}, "info": map[string]any{"exit_status": "submitted"}}, "", " ")
}

func miniSWE(commands []string) ([]byte, error) {
	messages := []map[string]any{{"role": "system", "content": "s"}, {"role": "user", "content": "Do it"}}
	for i, c := range commands {
		id := fmt.Sprintf("c%d", i)
		messages = append(messages,
			map[string]any{"role": "assistant", "content": "", "extra": map[string]any{"actions": []any{map[string]any{"command": c, "tool_call_id": id}}}},
			map[string]any{"role": "tool", "tool_call_id": id, "content": "<returncode>0</returncode>", "extra": map[string]any{"raw_output": "", "returncode": 0}})
	}
	messages = append(messages, map[string]any{"role": "exit", "content": "", "extra": map[string]any{"exit_status": "Submitted"}})
	return json.MarshalIndent(map[string]any{"info": map[string]any{"exit_status": "Submitted"}, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"}, "", " ")
}

func openHands(commands []string) ([]byte, error) {
	events := []map[string]any{{"id": 0, "source": "user", "action": "message", "args": map[string]any{"content": "Do it"}}}
	for _, c := range commands {
		id := len(events)
		events = append(events,
			map[string]any{"id": id, "source": "agent", "action": "run", "args": map[string]any{"command": c, "thought": ""}},
			map[string]any{"id": id + 1, "source": "agent", "cause": id, "observation": "run", "content": "",
				"extras": map[string]any{"command": c, "metadata": map[string]any{"exit_code": 0, "pid": 7}}})
	}
	events = append(events, map[string]any{"id": len(events), "source": "agent", "action": "finish", "args": map[string]any{}})
	return json.MarshalIndent(events, "", " ")
}

func atif(commands []string) ([]byte, error) {
	steps := []map[string]any{{"step_id": 1, "source": "user", "message": "Do it"}}
	for i, c := range commands {
		id := fmt.Sprintf("c%d", i)
		steps = append(steps, map[string]any{"step_id": i + 2, "source": "agent", "message": "",
			"tool_calls":  []any{map[string]any{"tool_call_id": id, "function_name": "bash", "arguments": map[string]any{"command": c}}},
			"observation": map[string]any{"results": []any{map[string]any{"source_call_id": id, "content": ""}}}})
	}
	return json.MarshalIndent(map[string]any{"schema_version": "ATIF-v1.7", "session_id": "s",
		"agent": map[string]any{"name": "terminus-2", "version": "1"}, "steps": steps}, "", " ")
}

func claude(commands []string) ([]byte, error) {
	var b strings.Builder
	line := func(v any) error {
		l, err := json.Marshal(v)
		b.Write(append(l, '\n'))
		return err
	}
	err := line(map[string]any{"type": "system", "subtype": "init", "session_id": "s", "model": "m", "tools": []string{"Bash"}})
	for i, c := range commands {
		id := fmt.Sprintf("t%d", i)
		if err == nil {
			err = line(map[string]any{"type": "assistant", "message": map[string]any{"role": "assistant", "content": []any{
				map[string]any{"type": "tool_use", "id": id, "name": "Bash", "input": map[string]any{"command": c}}}}})
		}
		if err == nil {
			err = line(map[string]any{"type": "user", "message": map[string]any{"role": "user", "content": []any{
				map[string]any{"type": "tool_result", "tool_use_id": id, "content": ""}}}})
		}
	}
	if err == nil {
		err = line(map[string]any{"type": "result", "subtype": "success", "is_error": false, "result": "Done."})
	}
	return []byte(b.String()), err
}
