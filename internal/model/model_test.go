package model

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const example = `
model: scripted
stock: A title
conversations:
  - name: bib
    match: fabricated
    turns:
      - text: Let me look.
        sh: cat refs.bib
      - expect: 'key=(?P<key>\w+)'
        sh: echo {{key}} {{i}}
        repeat: 2
        else:
          - text: 'nothing in {{last_output}}'
      - write: {path: /w/answer.json, content: "{\"keys\": [\"{{key}}\"]}\n"}
      - calls:
          - sh: echo one
          - call: {tool: view, args: {path: /w, depth: 2}}
      - error: {status: 503, times: 0}
      - text: 'Done: {{key}}.'
  - name: judge
    without_tools: true
    match: '^judge:'
    turns:
      - text: '{"score": 1}'
  - name: rest
    turns:
      - text: hello
`

func mustParse(t *testing.T, src string) *Script {
	t.Helper()
	s, err := Parse("script.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// client drives one API as an agent does: it keeps a history and answers each call.
type client struct {
	t      *testing.T
	api    string
	stream bool
	url    string
	hist   []any
	tools  any
}

type reply struct {
	text   string
	calls  [][2]string // tool, arguments
	ids    []string
	status int
	err    string
}

var toolSchema = map[string]any{"type": "object", "required": []any{"command", "description"},
	"properties": map[string]any{"command": map[string]any{"type": "string"}, "description": map[string]any{"type": "string"}}}

func newClient(t *testing.T, url, api string, stream bool, instruction string) *client {
	c := &client{t: t, api: api, stream: stream, url: url}
	view := map[string]any{"type": "object", "properties": map[string]any{}}
	switch api {
	case "responses":
		c.hist = []any{map[string]any{"type": "message", "role": "user", "content": []any{map[string]any{"type": "input_text", "text": instruction}}}}
		c.tools = []any{map[string]any{"type": "function", "name": "exec_command", "parameters": map[string]any{"type": "object", "properties": map[string]any{"cmd": map[string]any{"type": "string"}}}},
			map[string]any{"type": "custom", "name": "apply_patch"}, map[string]any{"type": "namespace", "name": "x", "tools": []any{map[string]any{"type": "function", "name": "view", "parameters": view}}}}
	case "chat":
		c.hist = []any{map[string]any{"role": "system", "content": "s"}, map[string]any{"role": "user", "content": instruction}}
		fn := func(name string, s any) any {
			return map[string]any{"type": "function", "function": map[string]any{"name": name, "parameters": s}}
		}
		c.tools = []any{fn("shell", map[string]any{"type": "object", "properties": map[string]any{"command": map[string]any{"type": "array"}}}), fn("view", view)}
	case "messages":
		c.hist = []any{map[string]any{"role": "user", "content": instruction}}
		c.tools = []any{map[string]any{"name": "Bash", "input_schema": toolSchema}, map[string]any{"name": "view", "input_schema": view},
			map[string]any{"name": "Write", "input_schema": map[string]any{"properties": map[string]any{"file_path": map[string]any{}, "content": map[string]any{}}}}}
	case "gemini":
		c.hist = []any{map[string]any{"role": "user", "parts": []any{map[string]any{"text": instruction}}}}
		c.tools = []any{map[string]any{"functionDeclarations": []any{map[string]any{"name": "run_shell_command", "parametersJsonSchema": toolSchema}, map[string]any{"name": "view", "parameters": view}}}}
	}
	return c
}

func (c *client) ask(withTools bool) reply {
	c.t.Helper()
	body := map[string]any{"model": "m", "stream": c.stream}
	path := map[string]string{"responses": "/run-1/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}[c.api]
	switch c.api {
	case "responses":
		body["input"] = c.hist
	case "chat", "messages":
		body["messages"] = c.hist
	case "gemini":
		delete(body, "stream")
		body["contents"] = c.hist
		path = "/v1beta/models/m:generateContent"
		if c.stream {
			path = "/v1beta/models/m:streamGenerateContent"
		}
	}
	if withTools {
		body["tools"] = c.tools
	}
	b, _ := json.Marshal(body)
	resp, err := http.Post(c.url+path, "application/json", bytes.NewReader(b))
	if err != nil {
		return reply{err: err.Error()}
	}
	defer resp.Body.Close()
	out := reply{status: resp.StatusCode}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		out.err = err.Error()
		return out
	}
	if resp.StatusCode != 200 {
		out.err = string(data)
		return out
	}
	if c.stream {
		c.readStream(data, &out)
	} else {
		c.readWhole(data, &out)
	}
	return out
}

func (c *client) readWhole(data []byte, out *reply) {
	c.t.Helper()
	var v map[string]any
	if err := json.Unmarshal(data, &v); err != nil {
		c.t.Fatalf("answer %s: %v", data, err)
	}
	switch c.api {
	case "responses":
		c.items(v["output"].([]any), out)
	case "chat":
		m := v["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)
		c.hist = append(c.hist, m)
		out.text, _ = m["content"].(string)
		calls, _ := m["tool_calls"].([]any)
		for _, x := range calls {
			f := x.(map[string]any)["function"].(map[string]any)
			out.add(x.(map[string]any)["id"], f["name"], f["arguments"])
		}
	case "messages":
		c.blocks(v["content"].([]any), out)
	case "gemini":
		c.parts(v["candidates"].([]any)[0].(map[string]any)["content"], out)
	}
}

func (r *reply) add(id, name, args any) {
	s, ok := args.(string)
	if !ok {
		b, _ := json.Marshal(args)
		s = string(b)
	}
	r.calls = append(r.calls, [2]string{name.(string), s})
	r.ids = append(r.ids, id.(string))
}

func (c *client) items(items []any, out *reply) {
	for _, x := range items {
		it := x.(map[string]any)
		c.hist = append(c.hist, it)
		switch it["type"] {
		case "message":
			out.text = it["content"].([]any)[0].(map[string]any)["text"].(string)
		case "function_call":
			out.add(it["call_id"], it["name"], it["arguments"])
		case "custom_tool_call":
			out.add(it["call_id"], it["name"], it["input"])
		}
	}
}

func (c *client) blocks(blocks []any, out *reply) {
	c.hist = append(c.hist, map[string]any{"role": "assistant", "content": blocks})
	for _, x := range blocks {
		b := x.(map[string]any)
		if b["type"] == "text" {
			out.text = b["text"].(string)
		} else {
			out.add(b["id"], b["name"], b["input"])
		}
	}
}

func (c *client) parts(content any, out *reply) {
	c.hist = append(c.hist, content)
	for _, x := range content.(map[string]any)["parts"].([]any) {
		p := x.(map[string]any)
		if f, ok := p["functionCall"].(map[string]any); ok {
			out.add(f["id"], f["name"], f["args"])
		} else {
			out.text, _ = p["text"].(string)
		}
	}
}

// readStream puts a stream together as a strict client does, from deltas alone.
func (c *client) readStream(data []byte, out *reply) {
	c.t.Helper()
	var items []any
	blocks := []map[string]any{}
	partial := map[int]string{}
	calls := map[int]map[string]any{}
	text, done := "", false
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, 1<<20)
	deltas := map[string]string{}
	for sc.Scan() {
		line, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok {
			continue
		}
		if line == "[DONE]" {
			done = true
			continue
		}
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			c.t.Fatalf("event %q: %v", line, err)
		}
		switch c.api {
		case "responses":
			switch v["type"] {
			case "response.output_text.delta", "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
				deltas[v["item_id"].(string)] += v["delta"].(string)
			case "response.output_item.done":
				it := v["item"].(map[string]any)
				want := it["arguments"]
				if it["type"] == "message" {
					want = it["content"].([]any)[0].(map[string]any)["text"]
				} else if it["type"] == "custom_tool_call" {
					want = it["input"]
				}
				if deltas[it["id"].(string)] != want {
					c.t.Errorf("deltas say %q, the item %q", deltas[it["id"].(string)], want)
				}
				items = append(items, it)
			case "response.completed":
				done = true
			}
		case "chat":
			ch := v["choices"].([]any)[0].(map[string]any)
			d := ch["delta"].(map[string]any)
			if s, ok := d["content"].(string); ok {
				text += s
			}
			tc, _ := d["tool_calls"].([]any)
			for _, x := range tc {
				m := x.(map[string]any)
				i := int(m["index"].(float64))
				if calls[i] == nil {
					calls[i] = m
					continue
				}
				f := calls[i]["function"].(map[string]any)
				f["arguments"] = f["arguments"].(string) + m["function"].(map[string]any)["arguments"].(string)
			}
		case "messages":
			switch v["type"] {
			case "content_block_start":
				blocks = append(blocks, v["content_block"].(map[string]any))
			case "content_block_delta":
				i := int(v["index"].(float64))
				d := v["delta"].(map[string]any)
				if d["type"] == "text_delta" {
					blocks[i]["text"] = blocks[i]["text"].(string) + d["text"].(string)
				} else {
					partial[i] += d["partial_json"].(string)
				}
			case "message_stop":
				done = true
			}
		case "gemini":
			done = true
			c.parts(v["candidates"].([]any)[0].(map[string]any)["content"], out)
		}
	}
	if !done {
		out.err = "the stream did not end"
		return
	}
	switch c.api {
	case "responses":
		c.items(items, out)
	case "chat":
		msg := map[string]any{"role": "assistant", "content": text}
		out.text = text
		var list []any
		for i := range len(calls) {
			f := calls[i]["function"].(map[string]any)
			out.add(calls[i]["id"], f["name"], f["arguments"])
			list = append(list, calls[i])
		}
		if list != nil {
			msg["tool_calls"] = list
		}
		c.hist = append(c.hist, msg)
	case "messages":
		var list []any
		for i, b := range blocks {
			if s, ok := partial[i]; ok {
				var in any
				if err := json.Unmarshal([]byte(s), &in); err != nil {
					c.t.Fatalf("input %q: %v", s, err)
				}
				b["input"] = in
			}
			list = append(list, b)
		}
		c.blocks(list, out)
	}
}

// result answers calls, one history entry each.
func (c *client) result(ids []string, outputs ...string) {
	var blocks, parts []any
	for i, id := range ids {
		o := outputs[i]
		switch c.api {
		case "responses":
			c.hist = append(c.hist, map[string]any{"type": "function_call_output", "call_id": id, "output": o})
		case "chat":
			c.hist = append(c.hist, map[string]any{"role": "tool", "tool_call_id": id, "content": o})
		case "messages":
			blocks = append(blocks, map[string]any{"type": "tool_result", "tool_use_id": id, "content": []any{map[string]any{"type": "text", "text": o}}})
		case "gemini":
			parts = append(parts, map[string]any{"functionResponse": map[string]any{"id": id, "name": "x", "response": map[string]any{"output": o}}})
		}
	}
	if blocks != nil {
		c.hist = append(c.hist, map[string]any{"role": "user", "content": blocks})
	}
	if parts != nil {
		c.hist = append(c.hist, map[string]any{"role": "user", "parts": parts})
	}
}

func TestConversationInEveryAPI(t *testing.T) {
	src := strings.Replace(example, "error: {status: 503, times: 0}", "error: {status: 503, message: busy}\n        times: 2", 1)
	wants := map[string][5]string{
		"responses": {`exec_command {"cmd":"cat refs.bib"}`, `exec_command {"cmd":"echo k9 1"}`, `exec_command {"cmd":"echo k9 2"}`,
			"apply_patch *** Begin Patch\n*** Add File: /w/answer.json\n+{\"keys\": [\"k9\"]}\n*** End Patch", `exec_command {"cmd":"echo one"};view {"depth":2,"path":"/w"}`},
		"chat": {`shell {"command":["bash","-lc","cat refs.bib"]}`, `shell {"command":["bash","-lc","echo k9 1"]}`, `shell {"command":["bash","-lc","echo k9 2"]}`,
			`shell {"command":["bash","-lc","mkdir -p '/w' \u0026\u0026 printf '%s' '{\"keys\": [\"k9\"]}\n' \u003e '/w/answer.json'"]}`,
			`shell {"command":["bash","-lc","echo one"]};view {"depth":2,"path":"/w"}`},
		"messages": {`Bash {"command":"cat refs.bib","description":"scripted step"}`, `Bash {"command":"echo k9 1","description":"scripted step"}`, `Bash {"command":"echo k9 2","description":"scripted step"}`,
			`Write {"content":"{\"keys\": [\"k9\"]}\n","file_path":"/w/answer.json"}`, `Bash {"command":"echo one","description":"scripted step"};view {"depth":2,"path":"/w"}`},
		"gemini": {`run_shell_command {"command":"cat refs.bib","description":"scripted step"}`, `run_shell_command {"command":"echo k9 1","description":"scripted step"}`, `run_shell_command {"command":"echo k9 2","description":"scripted step"}`,
			`run_shell_command {"command":"mkdir -p '/w' \u0026\u0026 printf '%s' '{\"keys\": [\"k9\"]}\n' \u003e '/w/answer.json'","description":"scripted step"}`,
			`run_shell_command {"command":"echo one","description":"scripted step"};view {"depth":2,"path":"/w"}`},
	}
	for api, want := range wants {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%v", api, stream), func(t *testing.T) {
				var log bytes.Buffer
				srv := New(mustParse(t, src), Options{Log: &log})
				ts := httptest.NewServer(srv)
				defer ts.Close()
				c := newClient(t, ts.URL, api, stream, "Find fabricated entries")
				norm := func(r reply) string {
					var s []string
					for _, x := range r.calls {
						var v any
						if json.Unmarshal([]byte(x[1]), &v) == nil {
							b, _ := json.Marshal(v)
							x[1] = string(b)
						}
						s = append(s, x[0]+" "+strings.ReplaceAll(x[1], `\\u`, `\u`))
					}
					return strings.Join(s, ";")
				}
				for i, w := range want {
					before := len(c.hist)
					again := c.ask(true)
					c.hist = c.hist[:before]
					r := c.ask(true) // a retry gets the same answer
					if norm(again) != norm(r) || fmt.Sprint(again.ids) != fmt.Sprint(r.ids) {
						t.Fatalf("turn %d: a retry changed the answer: %v, then %v", i, again, r)
					}
					if got := norm(r); got != w {
						t.Fatalf("turn %d: got %s\nwant %s\n%+v", i, got, w, r)
					}
					if i == 0 && r.text != "Let me look." {
						t.Errorf("text before the call is %q", r.text)
					}
					outs := []string{"key=k9 found", "second"}
					if i == 1 {
						outs[0] = "anything"
					}
					c.result(r.ids, outs[:len(r.ids)]...)
				}
				for range 2 {
					if r := c.ask(true); r.status != 503 || !strings.Contains(r.err, "busy") {
						t.Fatalf("want an error, got %+v", r)
					}
				}
				if r := c.ask(true); r.text != "Done: k9." {
					t.Fatalf("want the end, got %+v", r)
				}
				if r := c.ask(true); r.status != 400 || !strings.Contains(r.err, "has ended after 6 turns") {
					t.Errorf("a request after the end got %+v", r)
				}
				if r := c.ask(false); r.text != "A title" {
					t.Errorf("a request without tools got %+v", r)
				}
				if m := srv.Misfits(); len(m) != 1 || m[0].API != api {
					t.Errorf("misfits: %+v", m)
				}
				var last Record
				lines := strings.Split(strings.TrimSpace(log.String()), "\n")
				if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Answer != "stock" {
					t.Errorf("log's last line %s: %v", lines[len(lines)-1], err)
				}
				if len(lines) != srv.Requests() {
					t.Errorf("%d lines in the log for %d requests", len(lines), srv.Requests())
				}
				if api == "responses" && last.Session != "run-1" {
					t.Errorf("session is %q", last.Session)
				}
			})
		}
	}
}

func TestElseAndOtherConversations(t *testing.T) {
	ts := httptest.NewServer(New(mustParse(t, strings.Replace(example, "error: {status: 503, times: 0}", "text: middle", 1)), Options{}))
	defer ts.Close()
	c := newClient(t, ts.URL, "chat", false, "fabricated?")
	r := c.ask(true)
	c.result(r.ids, "empty file")
	if r = c.ask(true); r.text != "nothing in empty file" {
		t.Errorf("else gave %+v", r)
	}
	if r = newClient(t, ts.URL, "chat", false, "something else").ask(true); r.text != "hello" {
		t.Errorf("the last conversation gave %+v", r)
	}
	if r = newClient(t, ts.URL, "chat", false, "judge: x").ask(false); r.text != `{"score": 1}` {
		t.Errorf("the conversation without tools gave %+v", r)
	}
}

func TestUserSpeaksBetweenTexts(t *testing.T) {
	ts := httptest.NewServer(New(mustParse(t, "turns:\n  - text: one\n  - text: two\n"), Options{}))
	defer ts.Close()
	for _, api := range []string{"responses", "chat", "messages", "gemini"} {
		c := newClient(t, ts.URL, api, true, "hi")
		if r := c.ask(true); r.text != "one" {
			t.Errorf("%s: %+v", api, r)
		}
		switch api {
		case "gemini":
			c.hist = append(c.hist, map[string]any{"role": "user", "parts": []any{map[string]any{"text": "and?"}}})
		default:
			c.hist = append(c.hist, map[string]any{"role": "user", "type": "message", "content": "and?"})
		}
		if r := c.ask(true); r.text != "two" {
			t.Errorf("%s: %+v", api, r)
		}
	}
}

func TestFailures(t *testing.T) {
	src := "turns:\n  - drop: before\n  - drop: middle\n  - stall: 30ms\n    times: 2\n  - error: {status: 429, retry_after: 7}\n  - text: fine\n"
	for _, api := range []string{"responses", "chat", "messages"} {
		var log bytes.Buffer
		srv := New(mustParse(t, src), Options{Log: &log})
		ts := httptest.NewServer(srv)
		c := newClient(t, ts.URL, api, true, "hi")
		for i := range 4 {
			if r := c.ask(true); r.err == "" {
				t.Errorf("%s: request %d got %+v, not a broken connection", api, i, r)
			}
		}
		if r := c.ask(true); r.status != 429 {
			t.Errorf("%s: want 429, got %+v", api, r)
		}
		if r := c.ask(true); r.text != "fine" {
			t.Errorf("%s: want the text, got %+v", api, r)
		}
		// Another session begins anew.
		other := newClient(t, ts.URL+"/other", api, true, "hi")
		if r := other.ask(true); r.err == "" {
			t.Errorf("%s: the other session's first request got %+v", api, r)
		}
		ts.Close()
		if n := strings.Count(log.String(), "\n"); n != srv.Requests() || n != 7 {
			t.Errorf("%s: %d lines in the log, %d requests, want 7", api, n, srv.Requests())
		}
	}
}

func TestMisfits(t *testing.T) {
	ts := httptest.NewServer(New(mustParse(t, "turns:\n  - call: {tool: browse, args: {}}\n  - text: x\n"), Options{}))
	defer ts.Close()
	c := newClient(t, ts.URL, "chat", false, "hi")
	if r := c.ask(true); r.status != 400 || !strings.Contains(r.err, `calls the tool \"browse\", but the client offers shell, view`) {
		t.Errorf("got %+v", r)
	}
	for path, want := range map[string]int{"/v1/responses": 400, "/v1/nothing": 404, "/v1/messages": 400} {
		resp, err := http.Post(ts.URL+path, "application/json", strings.NewReader("{broken"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s with broken JSON: %s", path, resp.Status)
		}
	}
	resp, err := http.Get(ts.URL + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); !strings.Contains(string(b), `"id":"scripted"`) {
		t.Errorf("models: %s", b)
	}
}

func TestServeEnds(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, ln, mustParse(t, "turns:\n  - stall: 1h\n  - text: x\n"), Options{})
	}()
	go func() { // a stalled client must not hold the server up
		newClient(t, "http://"+ln.Addr().String(), "chat", false, "hi").ask(true)
	}()
	time.Sleep(50 * time.Millisecond)
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Serve did not return")
	}
}

func TestScriptErrors(t *testing.T) {
	for name, c := range map[string]struct{ src, want string }{
		"empty":            {"", "s.yaml: the script is empty"},
		"not a map":        {"- a\n", "s.yaml:1: "},
		"key out of place": {"turns:\n  - text: a\n  - name: x\n    sh: ls\n", `s.yaml:3: unknown key "name" here: it belongs to an entry of conversations`},
		"unknown key":      {"turns:\n  - text: a\n  - shh: ls\n", `s.yaml:3: unknown key "shh" (did you mean "sh"?)`},
		"wrong type":       {"turns:\n  - text: a\n    repeat: many\n", "s.yaml:3: "},
		"broken YAML":      {"turns:\n  - text: [a\n", "s.yaml:"},
		"both":             {"turns:\n  - text: a\nconversations:\n  - turns: [{text: a}]\n", "s.yaml:2: a script has either turns or conversations"},
		"no turns":         {"model: x\n", "no turns"},
		"two actions":      {"turns:\n  - text: a\n  - sh: a\n    patch: b\n", "s.yaml:3: a turn does one thing"},
		"no action":        {"turns:\n  - delay: 1s\n", "s.yaml:2: the turn does nothing"},
		"bad regexp":       {"turns:\n  - expect: '('\n    text: a\n", "s.yaml:2: expect: "},
		"unknown variable": {"turns:\n  - sh: echo {{nme}}\n  - text: a\n", "unknown variable {{nme}}"},
		"ends in a call":   {"turns:\n  - text: a\n  - sh: ls\n", "s.yaml:3: the last turn calls a tool"},
		"else ends so":     {"turns:\n  - expect: a\n    text: a\n    else:\n      - sh: ls\n", "s.yaml:5: the last turn calls a tool"},
		"bad drop":         {"turns:\n  - drop: late\n  - text: a\n", `drop is "before" or "middle"`},
		"bad status":       {"turns:\n  - error: {status: 200}\n  - text: a\n", "status from 400 to 599"},
		"times":            {"turns:\n  - text: a\n    times: 2\n", "times goes with error"},
		"same name":        {"conversations:\n  - {name: a, turns: [{text: a}]}\n  - {name: a, turns: [{text: a}]}\n", `two conversations are named "a"`},
		"nested calls":     {"turns:\n  - calls: [{text: a}]\n  - text: a\n", "an entry of calls"},
		"two documents":    {"turns: [{text: a}]\n---\nturns: [{text: a}]\n", "one YAML document"},
	} {
		if _, err := Parse("s.yaml", []byte(c.src)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "no.yaml")); err == nil || !strings.Contains(err.Error(), "docs/MODEL.md") {
		t.Errorf("a missing script gives %v", err)
	}
}

func FuzzScript(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte("turns:\n  - expect: a\n    text: a\n    else: [{text: b}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("s", data)
		if err == nil && len(s.Conversations) == 0 {
			t.Error("a script without conversations was accepted")
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add("/v1/responses", []byte(`{"model":"m","input":[{"type":"function_call_output","output":[{"text":"x"}]}],"tools":[{"type":"custom","name":"exec"}]}`))
	f.Add("/v1/chat/completions", []byte(`{"messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"bash","parameters":{"required":["command",3],"properties":{"command":{"type":["array"]}}}}}]}`))
	f.Add("/v1/messages", []byte(`{"messages":[{"role":"user","content":[{"type":"tool_result","content":"a"}]}],"tools":[{"name":"Bash","input_schema":{}}]}`))
	f.Add("/v1beta/models/m:streamGenerateContent", []byte(`{"contents":[{"parts":[{"text":"x"}]}],"tools":[{"functionDeclarations":[{"name":"run_shell_command","parameters":{"properties":{"command":{"type":"STRING"}}}}]}]}`))
	srv := New(mustParseF(f, "turns:\n  - sh: ls\n  - expect: a\n    write: {path: p, content: c}\n    else: [{text: no}]\n  - text: x\n"), Options{})
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.URL.Path = path
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, r)
		if w.Code != 200 && w.Code != 400 && w.Code != 404 {
			t.Errorf("status %d", w.Code)
		}
	})
}

func mustParseF(f *testing.F, src string) *Script {
	s, err := Parse("s", []byte(src))
	if err != nil {
		f.Fatal(err)
	}
	return s
}
