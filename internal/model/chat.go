package model

import (
	"encoding/json"
	"strings"
)

// chatAPI is OpenAI's Chat Completions API.
var chatAPI = dialect{name: "chat", idPrefix: "call", decode: decodeChat, encode: encodeChat, failure: openAIFailure}

type chatRequest struct {
	Model    string        `json:"model"`
	Stream   bool          `json:"stream"`
	Messages []chatMessage `json:"messages"`
	Tools    []struct {
		Function struct {
			Name       string         `json:"name"`
			Parameters map[string]any `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
	ResponseFormat struct {
		Type string `json:"type"`
	} `json:"response_format"`
}

type chatMessage struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls []struct {
		ID string `json:"id"`
	} `json:"tool_calls"`
}

func decodeChat(_ string, body []byte) (*request, error) {
	var in chatRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	r := &request{Model: in.Model, Stream: in.Stream, JSON: strings.HasPrefix(in.ResponseFormat.Type, "json")}
	for _, t := range in.Tools {
		r.Tools = append(r.Tools, tool{Name: t.Function.Name, Schema: t.Function.Parameters})
	}
	for _, m := range in.Messages {
		it := item{text: contentText(m.Content)}
		switch m.Role {
		case "user":
			it.kind = itemUser
		case "assistant":
			it.kind = itemModel
			for _, c := range m.ToolCalls {
				it.ids = append(it.ids, c.ID)
			}
		case "tool", "function":
			it.kind = itemOutput
		default: // system, developer
			continue
		}
		r.Items = append(r.Items, it)
	}
	return r, nil
}

func encodeChat(r *request, a answer, id string, number int) (any, []event) {
	var text any
	if a.Text != "" || len(a.Calls) == 0 {
		text = a.Text
	}
	var calls []any
	for i, c := range a.Calls {
		calls = append(calls, object{"index": i, "id": c.ID, "type": "function",
			"function": object{"name": c.Tool.Name, "arguments": c.argsJSON()}})
	}
	finish := "stop"
	if len(calls) > 0 {
		finish = "tool_calls"
	}
	in, out := tokens(r.Bytes), tokens(len(a.Text)+64*len(a.Calls))
	usage := object{"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out}
	base := object{"id": "chatcmpl-" + id, "created": number, "model": r.Model}
	if !r.Stream {
		msg := object{"role": "assistant", "content": text}
		if calls != nil {
			msg["tool_calls"] = calls
		}
		full := with(base, "choices", []any{object{"index": 0, "message": msg, "finish_reason": finish}})
		return with(with(full, "object", "chat.completion"), "usage", usage), nil
	}
	var evs []event
	chunk := func(delta object, finish any) object {
		c := with(base, "choices", []any{object{"index": 0, "delta": delta, "finish_reason": finish}})
		return with(c, "object", "chat.completion.chunk")
	}
	first := object{"role": "assistant", "content": nil}
	if text != nil {
		first["content"] = ""
	}
	evs = append(evs, event{data: chunk(first, nil)})
	if text != nil {
		for _, p := range pieces(a.Text) {
			evs = append(evs, event{data: chunk(object{"content": p}, nil)})
		}
	}
	for i, c := range a.Calls {
		begin := object{"index": i, "id": c.ID, "type": "function", "function": object{"name": c.Tool.Name, "arguments": ""}}
		evs = append(evs, event{data: chunk(object{"tool_calls": []any{begin}}, nil)})
		for _, p := range pieces(c.argsJSON()) {
			more := object{"index": i, "function": object{"arguments": p}}
			evs = append(evs, event{data: chunk(object{"tool_calls": []any{more}}, nil)})
		}
	}
	evs = append(evs, event{data: with(chunk(object{}, finish), "usage", usage)}, event{data: "[DONE]"})
	return nil, evs
}
