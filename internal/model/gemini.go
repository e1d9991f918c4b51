package model

import (
	"encoding/json"
	"net/http"
	"strings"
)

// geminiAPI is Google's Generative Language API (generateContent and streamGenerateContent with alt=sse).
var geminiAPI = dialect{name: "gemini", idPrefix: "call", decode: decodeGemini, encode: encodeGemini, failure: geminiFailure}

type geminiRequest struct {
	Contents []struct {
		Role  string `json:"role"`
		Parts []struct {
			Text         string `json:"text"`
			Thought      bool   `json:"thought"`
			FunctionCall *struct {
				ID string `json:"id"`
			} `json:"functionCall"`
			FunctionResponse *struct {
				Response json.RawMessage `json:"response"`
			} `json:"functionResponse"`
		} `json:"parts"`
	} `json:"contents"`
	Tools []struct {
		FunctionDeclarations []struct {
			Name                 string         `json:"name"`
			Parameters           map[string]any `json:"parameters"`
			ParametersJSONSchema map[string]any `json:"parametersJsonSchema"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
	GenerationConfig struct {
		ResponseMIMEType   string          `json:"responseMimeType"`
		ResponseJSONSchema json.RawMessage `json:"responseJsonSchema"`
		ResponseSchema     json.RawMessage `json:"responseSchema"`
	} `json:"generationConfig"`
}

func decodeGemini(url string, body []byte) (*request, error) {
	var in geminiRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	name, method, _ := strings.Cut(strings.TrimPrefix(url, "/models/"), ":")
	r := &request{Model: name, Stream: strings.HasPrefix(method, "stream")}
	cfg := in.GenerationConfig
	r.JSON = cfg.ResponseMIMEType == "application/json" || cfg.ResponseJSONSchema != nil || cfg.ResponseSchema != nil
	for _, t := range in.Tools {
		for _, f := range t.FunctionDeclarations {
			schema := f.ParametersJSONSchema
			if schema == nil {
				schema = f.Parameters
			}
			r.Tools = append(r.Tools, tool{Name: f.Name, Schema: schema})
		}
	}
	for _, c := range in.Contents {
		kind := itemUser
		if c.Role == "model" {
			kind = itemModel
		}
		for _, p := range c.Parts {
			switch {
			case p.FunctionResponse != nil:
				r.Items = append(r.Items, item{kind: itemOutput, text: contentText(p.FunctionResponse.Response)})
			case p.FunctionCall != nil:
				r.Items = append(r.Items, item{kind: itemModel, ids: []string{p.FunctionCall.ID}})
			case p.Text != "" && !p.Thought:
				r.Items = append(r.Items, item{kind: kind, text: p.Text})
			}
		}
	}
	return r, nil
}

func encodeGemini(r *request, a answer, id string, number int) (any, []event) {
	var parts []any
	if a.Text != "" || len(a.Calls) == 0 {
		parts = append(parts, object{"text": a.Text})
	}
	for _, c := range a.Calls {
		args := c.Args
		if args == nil {
			args = object{}
		}
		parts = append(parts, object{"functionCall": object{"id": c.ID, "name": c.Tool.Name, "args": args}})
	}
	in, out := tokens(r.Bytes), tokens(len(a.Text)+64*len(a.Calls))
	resp := object{
		"candidates": []any{object{"index": 0, "content": object{"role": "model", "parts": parts}, "finishReason": "STOP"}},
		"usageMetadata": object{"promptTokenCount": in, "candidatesTokenCount": out,
			"totalTokenCount": in + out},
		"modelVersion": r.Model, "responseId": id,
	}
	return resp, []event{{data: resp}}
}

func geminiFailure(status int, message string) any {
	return object{"error": object{"code": status, "message": message, "status": strings.ToUpper(strings.ReplaceAll(http.StatusText(status), " ", "_"))}}
}
