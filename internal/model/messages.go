package model

import "encoding/json"

// messagesAPI is Anthropic's Messages API.
var messagesAPI = dialect{name: "messages", idPrefix: "toolu", decode: decodeMessages, encode: encodeMessages, failure: messagesFailure}

type messagesRequest struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name        string         `json:"name"`
		InputSchema map[string]any `json:"input_schema"`
	} `json:"tools"`
}

func decodeMessages(_ string, body []byte) (*request, error) {
	var in messagesRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	r := &request{Model: in.Model, Stream: in.Stream}
	for _, t := range in.Tools {
		if t.InputSchema != nil { // server tools (web search) have none
			r.Tools = append(r.Tools, tool{Name: t.Name, Schema: t.InputSchema})
		}
	}
	for _, m := range in.Messages {
		var blocks []struct {
			Type    string          `json:"type"`
			ID      string          `json:"id"`
			Text    string          `json:"text"`
			Content json.RawMessage `json:"content"`
		}
		kind := itemUser
		if m.Role == "assistant" {
			kind = itemModel
		}
		if json.Unmarshal(m.Content, &blocks) != nil {
			r.Items = append(r.Items, item{kind: kind, text: contentText(m.Content)})
			continue
		}
		for _, b := range blocks {
			switch b.Type {
			case "tool_result":
				r.Items = append(r.Items, item{kind: itemOutput, text: contentText(b.Content)})
			case "tool_use":
				r.Items = append(r.Items, item{kind: itemModel, ids: []string{b.ID}})
			case "text":
				r.Items = append(r.Items, item{kind: kind, text: b.Text})
			}
		}
	}
	return r, nil
}

func encodeMessages(r *request, a answer, id string, number int) (any, []event) {
	var blocks []object
	if a.Text != "" || len(a.Calls) == 0 {
		blocks = append(blocks, object{"type": "text", "text": a.Text})
	}
	for _, c := range a.Calls {
		args := c.Args
		if args == nil {
			args = object{}
		}
		blocks = append(blocks, object{"type": "tool_use", "id": c.ID, "name": c.Tool.Name, "input": args})
	}
	stop := "end_turn"
	if len(a.Calls) > 0 {
		stop = "tool_use"
	}
	usage := object{"input_tokens": tokens(r.Bytes), "output_tokens": tokens(len(a.Text) + 64*len(a.Calls)),
		"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
	msg := object{"id": "msg_" + id, "type": "message", "role": "assistant", "model": r.Model, "content": blocks,
		"stop_reason": stop, "stop_sequence": nil, "usage": usage}
	if !r.Stream {
		return msg, nil
	}
	begun := with(with(msg, "content", []any{}), "stop_reason", nil)
	begun["content"], begun["stop_reason"] = []any{}, nil
	var evs []event
	emit := func(typ string, fields object) { evs = append(evs, event{name: typ, data: with(fields, "type", typ)}) }
	emit("message_start", object{"message": begun})
	for i, b := range blocks {
		at := object{"index": i}
		if b["type"] == "text" {
			emit("content_block_start", with(at, "content_block", object{"type": "text", "text": ""}))
			for _, p := range pieces(b["text"].(string)) {
				emit("content_block_delta", with(at, "delta", object{"type": "text_delta", "text": p}))
			}
		} else {
			empty := object{"type": "tool_use", "id": b["id"], "name": b["name"], "input": object{}}
			emit("content_block_start", with(at, "content_block", empty))
			input, _ := marshal(b["input"])
			for _, p := range pieces(string(input)) {
				emit("content_block_delta", with(at, "delta", object{"type": "input_json_delta", "partial_json": p}))
			}
		}
		emit("content_block_stop", at)
	}
	emit("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": usage})
	emit("message_stop", object{})
	return nil, evs
}

func messagesFailure(status int, message string) any {
	typ := "api_error"
	switch {
	case status == 429:
		typ = "rate_limit_error"
	case status == 529:
		typ = "overloaded_error"
	case status < 500:
		typ = "invalid_request_error"
	}
	return object{"type": "error", "error": object{"type": typ, "message": message}}
}
