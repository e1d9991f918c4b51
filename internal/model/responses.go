package model

import (
	"encoding/json"
	"fmt"
	"strings"
)

// responsesAPI is OpenAI's Responses API.
var responsesAPI = dialect{name: "responses", idPrefix: "call", decode: decodeResponses, encode: encodeResponses, failure: openAIFailure}

type responsesRequest struct {
	Model              string          `json:"model"`
	Stream             bool            `json:"stream"`
	Instructions       string          `json:"instructions"`
	Input              json.RawMessage `json:"input"`
	Tools              []responsesTool `json:"tools"`
	PreviousResponseID string          `json:"previous_response_id"`
	Text               struct {
		Format struct {
			Type string `json:"type"`
		} `json:"format"`
	} `json:"text"`
}

type responsesTool struct {
	Type       string          `json:"type"`
	Name       string          `json:"name"`
	Parameters map[string]any  `json:"parameters"`
	Tools      []responsesTool `json:"tools"` // of a namespace
}

type responsesItem struct {
	Type    string          `json:"type"`
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	CallID  string          `json:"call_id"`
	Output  json.RawMessage `json:"output"`
}

func decodeResponses(_ string, body []byte) (*request, error) {
	var in responsesRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	if in.PreviousResponseID != "" {
		return nil, fmt.Errorf("previous_response_id is set: the scripted model keeps no responses, send the whole input")
	}
	r := &request{Model: in.Model, Stream: in.Stream, JSON: strings.HasPrefix(in.Text.Format.Type, "json")}
	r.Tools = responsesTools(in.Tools, "")
	var text string
	if json.Unmarshal(in.Input, &text) == nil {
		r.Items = []item{{kind: itemUser, text: text}}
		return r, nil
	}
	var items []responsesItem
	if err := json.Unmarshal(in.Input, &items); err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	for _, it := range items {
		switch {
		case strings.HasSuffix(it.Type, "_output"):
			r.Items = append(r.Items, item{kind: itemOutput, text: contentText(it.Output)})
		case strings.HasSuffix(it.Type, "_call"):
			r.Items = append(r.Items, item{kind: itemModel, ids: []string{it.CallID}})
		case it.Role == "assistant":
			r.Items = append(r.Items, item{kind: itemModel, text: contentText(it.Content)})
		case it.Role == "user":
			r.Items = append(r.Items, item{kind: itemUser, text: contentText(it.Content)})
		}
	}
	return r, nil
}

func responsesTools(in []responsesTool, namespace string) []tool {
	var out []tool
	for _, t := range in {
		switch t.Type {
		case "namespace":
			out = append(out, responsesTools(t.Tools, t.Name)...)
		case "function", "custom":
			out = append(out, tool{Name: t.Name, Namespace: namespace, Custom: t.Type == "custom", Schema: t.Parameters})
		}
	}
	return out
}

// contentText reads what every API allows as content: a string, or a list of parts of which some are text.
func contentText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		parts = []json.RawMessage{raw}
	}
	var out []string
	for _, p := range parts {
		var part struct {
			Text    string          `json:"text"`
			Content json.RawMessage `json:"content"`
			Output  json.RawMessage `json:"output"`
		}
		switch {
		case json.Unmarshal(p, &s) == nil:
			out = append(out, s)
		case json.Unmarshal(p, &part) != nil:
		case part.Text != "":
			out = append(out, part.Text)
		case len(part.Content) > 0:
			out = append(out, contentText(part.Content))
		case len(part.Output) > 0:
			out = append(out, contentText(part.Output))
		}
	}
	return strings.Join(out, "\n")
}

type object = map[string]any

func encodeResponses(r *request, a answer, id string, number int) (any, []event) {
	var items []object
	if a.Text != "" || len(a.Calls) == 0 {
		items = append(items, object{"type": "message", "id": "msg_" + id, "role": "assistant", "status": "completed",
			"content": []any{object{"type": "output_text", "text": a.Text, "annotations": []any{}}}})
	}
	for _, c := range a.Calls {
		it := object{"type": "function_call", "id": "fc_" + c.ID, "call_id": c.ID, "name": c.Tool.Name, "status": "completed"}
		if c.Tool.Custom {
			it["type"], it["id"], it["input"] = "custom_tool_call", "ctc_"+c.ID, c.Input
		} else {
			it["arguments"] = c.argsJSON()
		}
		if c.Tool.Namespace != "" {
			it["namespace"] = c.Tool.Namespace
		}
		items = append(items, it)
	}
	in, out := tokens(r.Bytes), tokens(len(a.Text)+64*len(a.Calls))
	resp := object{"id": "resp_" + id, "object": "response", "created_at": number, "model": r.Model, "status": "completed",
		"output": items, "parallel_tool_calls": true, "error": nil, "incomplete_details": nil,
		"usage": object{"input_tokens": in, "input_tokens_details": object{"cached_tokens": 0}, "output_tokens": out,
			"output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": in + out}}
	if !r.Stream {
		return resp, nil
	}
	return nil, responsesEvents(resp, items)
}

func responsesEvents(resp object, items []object) []event {
	var evs []event
	emit := func(typ string, fields object) {
		fields["type"], fields["sequence_number"] = typ, len(evs)
		evs = append(evs, event{name: typ, data: fields})
	}
	begun := object{}
	for k, v := range resp {
		begun[k] = v
	}
	begun["status"], begun["output"], begun["usage"] = "in_progress", []any{}, nil
	emit("response.created", object{"response": begun})
	emit("response.in_progress", object{"response": begun})
	for i, it := range items {
		id := it["id"]
		first := object{}
		for k, v := range it {
			first[k] = v
		}
		first["status"] = "in_progress"
		key, deltas, done := "", "", ""
		switch it["type"] {
		case "message":
			first["content"] = []any{}
		case "function_call":
			key, deltas, done = "arguments", "response.function_call_arguments.delta", "response.function_call_arguments.done"
			first[key] = ""
		case "custom_tool_call":
			key, deltas, done = "input", "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"
			first[key] = ""
		}
		emit("response.output_item.added", object{"output_index": i, "item": first})
		if key == "" {
			part := it["content"].([]any)[0].(object)
			text := part["text"].(string)
			at := object{"item_id": id, "output_index": i, "content_index": 0}
			emit("response.content_part.added", with(at, "part", object{"type": "output_text", "text": "", "annotations": []any{}}))
			for _, p := range pieces(text) {
				emit("response.output_text.delta", with(at, "delta", p))
			}
			emit("response.output_text.done", with(at, "text", text))
			emit("response.content_part.done", with(at, "part", part))
		} else {
			at := object{"item_id": id, "output_index": i}
			for _, p := range pieces(it[key].(string)) {
				emit(deltas, with(at, "delta", p))
			}
			emit(done, with(at, key, it[key]))
		}
		emit("response.output_item.done", object{"output_index": i, "item": it})
	}
	emit("response.completed", object{"response": resp})
	return evs
}

// with returns a copy of o with one more field.
func with(o object, key string, value any) object {
	out := object{key: value}
	for k, v := range o {
		out[k] = v
	}
	return out
}

func openAIFailure(status int, message string) any {
	typ := "server_error"
	switch {
	case status == 429:
		typ = "rate_limit_error"
	case status < 500:
		typ = "invalid_request_error"
	}
	return object{"error": object{"message": message, "type": typ, "param": nil, "code": nil}}
}
