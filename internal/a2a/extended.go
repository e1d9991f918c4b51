package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
)

// Extended fetches the card for callers that are known, over the client's interface and in whichever form it has there:
// GetExtendedAgentCard (1.0) and agent/getAuthenticatedExtendedCard (0.3) over JSON-RPC, the paths of either version in the
// REST binding, gRPC. The client brings the credentials.
func (c *Client) Extended(ctx context.Context) (*Fetched, error) {
	switch c.Interface.Binding {
	case GRPC:
		return c.extendedGRPC(ctx)
	case REST:
		return c.extendedREST(ctx)
	}
	methods := []*wire{wire10, wire03}
	if v := c.Interface.Version; !strings.HasPrefix(v, "1") && (v != "" || c.Form != "1.0") {
		methods = []*wire{wire03, wire10}
	}
	var errs []error
	for _, w := range methods {
		f, err := c.extendedRPC(ctx, w)
		if err == nil {
			return f, nil
		}
		errs = append(errs, err)
		if !unknownMethod(err) {
			break
		}
	}
	return nil, fmt.Errorf("asking %s for its extended card: %w", c.Interface.URL, errors.Join(errs...))
}

func (c *Client) extendedRPC(ctx context.Context, w *wire) (*Fetched, error) {
	call := map[string]any{"jsonrpc": "2.0", "id": newID(), "method": "agent/getAuthenticatedExtendedCard"}
	header := http.Header{"Content-Type": {"application/json"}}
	if w == wire10 {
		params := map[string]any{}
		if c.Interface.Tenant != "" {
			params["tenant"] = c.Interface.Tenant
		}
		call["method"], call["params"] = "GetExtendedAgentCard", params
		header.Set("A2A-Version", w.version)
	}
	body, err := json.Marshal(call)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Interface.URL, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("the agent's endpoint: %w", err)
	}
	maps.Copy(req.Header, header)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, MaxCard+1))
	if err != nil {
		return nil, fmt.Errorf("reading the extended card: %w", err)
	}
	var a struct {
		Result json.RawMessage
		Error  *RPCError
	}
	switch err := json.Unmarshal(data, &a); {
	case err == nil && a.Error != nil:
		return nil, a.Error
	case resp.StatusCode/100 != 2:
		return nil, &HTTPError{Status: resp.StatusCode, RetryAfter: resp.Header.Get("Retry-After")}
	case err != nil:
		return nil, fmt.Errorf("the answer is no JSON: %w", err)
	}
	return c.extended(a.Result)
}

// extended reads a card that came in an answer: its relative URLs are the endpoint's.
func (c *Client) extended(data []byte) (*Fetched, error) {
	at, err := url.Parse(c.Interface.URL)
	if err != nil || at.Host == "" {
		at = nil
	}
	card, err := ParseCard(data, at)
	if err != nil {
		return nil, err
	}
	return &Fetched{card, c.Interface.URL}, nil
}

func (c *Client) extendedREST(ctx context.Context) (*Fetched, error) {
	base, err := url.Parse(c.Interface.URL)
	if err != nil {
		return nil, fmt.Errorf("the agent's endpoint: %w", err)
	}
	var errs []error
	for _, p := range []string{"/extendedAgentCard", "/v1/card", "/v1/extendedAgentCard", "/agent/authenticatedExtendedCard"} {
		u := *base
		u.Path, u.RawPath = strings.TrimSuffix(base.Path, "/")+p, ""
		f, err := fetch(ctx, c.HTTP, &u, nil)
		if err == nil {
			return f, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("fetching the extended card of %s: %w", c.Interface.URL, errors.Join(errs...))
}

func (c *Client) extendedGRPC(ctx context.Context) (*Fetched, error) {
	t, err := c.openGRPC(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer t.Destroy()
	card, err := t.GetExtendedAgentCard(ctx, t.params, &sdk.GetExtendedAgentCardRequest{Tenant: c.Interface.Tenant})
	if err != nil {
		return nil, t.because("asking for the extended card", err)
	}
	data, err := json.Marshal(card)
	if err != nil {
		return nil, fmt.Errorf("reading the extended card: %w", err)
	}
	return c.extended(data)
}
