package judge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// request is the body of a question in the API's form. The answer's schema is enforced by the API: a JSON schema in Chat
// Completions, the input of a tool that has to be called in Messages.
func (m *Model) request(system, user string, labels []string) map[string]any {
	if m.o.API == Messages {
		return map[string]any{
			"model": m.o.Model, "max_tokens": 1024, "system": system,
			"messages":    []any{map[string]any{"role": "user", "content": user}},
			"tools":       []any{map[string]any{"name": "verdict", "description": "Give your verdict.", "input_schema": schema(labels)}},
			"tool_choice": map[string]any{"type": "tool", "name": "verdict"},
		}
	}
	return map[string]any{
		"model":    m.o.Model,
		"messages": []any{map[string]any{"role": "system", "content": system}, map[string]any{"role": "user", "content": user}},
		"response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{
			"name": "verdict", "strict": true, "schema": schema(labels)}},
	}
}

const (
	attempts      = 3
	longestAnswer = 4 << 20
)

// send asks the endpoint and returns the structured verdict. Overload and server errors are tried again.
func (m *Model) send(ctx context.Context, body []byte) ([]byte, error) {
	wait := time.Second
	for n := 1; ; n++ {
		raw, again, err := m.once(ctx, body)
		if err == nil || !again || n == attempts {
			return raw, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
			wait *= 2
		}
	}
}

func (m *Model) once(ctx context.Context, body []byte) (raw []byte, again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.o.Timeout)
	defer cancel()
	url := strings.TrimRight(m.o.Endpoint, "/")
	if !strings.HasSuffix(url, "/v1") {
		url += "/v1"
	}
	if m.o.API == Messages {
		url += "/messages"
	} else {
		url += "/chat/completions"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	if m.o.API == Messages {
		req.Header.Set("anthropic-version", "2023-06-01")
		if m.o.Key != "" {
			req.Header.Set("x-api-key", m.o.Key)
		}
	} else if m.o.Key != "" {
		req.Header.Set("Authorization", "Bearer "+m.o.Key)
	}
	resp, err := m.o.HTTP.Do(req)
	if err != nil {
		return nil, ctx.Err() == nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, longestAnswer))
	if err != nil {
		return nil, true, fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500,
			fmt.Errorf("the endpoint answered %s: %.300q", resp.Status, answer)
	}
	raw, err = verdictOf(m.o.API, answer)
	return raw, false, err
}

// verdictOf takes the verdict out of an API's envelope.
func verdictOf(api string, answer []byte) ([]byte, error) {
	if api == Messages {
		var env struct {
			Content []struct {
				Type  string          `json:"type"`
				Name  string          `json:"name"`
				Input json.RawMessage `json:"input"`
			} `json:"content"`
			Stop string `json:"stop_reason"`
		}
		if err := json.Unmarshal(answer, &env); err != nil {
			return nil, fmt.Errorf("read the answer: %w", err)
		}
		for _, c := range env.Content {
			if c.Type == "tool_use" && c.Name == "verdict" {
				return c.Input, nil
			}
		}
		return nil, fmt.Errorf("the model gave no verdict (stop reason %q)", env.Stop)
	}
	var env struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
				Refusal string `json:"refusal"`
			} `json:"message"`
			Finish string `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(answer, &env); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if len(env.Choices) == 0 {
		return nil, fmt.Errorf("the answer has no choices: %.300q", answer)
	}
	c := env.Choices[0]
	if c.Message.Refusal != "" {
		return nil, fmt.Errorf("the model refused to judge: %.200q", c.Message.Refusal)
	}
	if c.Message.Content == "" || c.Finish == "length" {
		return nil, fmt.Errorf("the model gave no complete verdict (finish reason %q)", c.Finish)
	}
	if !json.Valid([]byte(c.Message.Content)) {
		return nil, fmt.Errorf("the verdict isn't JSON: %.300q", c.Message.Content)
	}
	return []byte(c.Message.Content), nil
}
