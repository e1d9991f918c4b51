package a2a

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	grpc03 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	grpc10 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// sendGRPC sends through the official SDK's transport. Its results are read like those of the other bindings.
func (c *Client) sendGRPC(ctx context.Context, m Message) (*Reply, error) {
	target, secure := grpcTarget(c.Interface.URL)
	creds := insecure.NewCredentials()
	if secure {
		var conf *tls.Config
		if t, ok := c.HTTP.Transport.(*http.Transport); ok && t.TLSClientConfig != nil {
			conf = t.TLSClientConfig.Clone()
		}
		creds = credentials.NewTLS(conf)
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxReply)))
	if err != nil {
		return nil, fmt.Errorf("the agent's gRPC endpoint %s: %w", c.Interface.URL, err)
	}
	var t a2aclient.Transport
	if v := c.Interface.Version; strings.HasPrefix(v, "1") || v == "" && c.Form == "1.0" {
		t = grpc10.NewGRPCTransport(conn)
	} else {
		t = grpc03.NewGRPCTransport(conn)
	}
	defer t.Destroy()
	params := a2aclient.ServiceParams{}
	for k, v := range m.Header {
		params[strings.ToLower(k)] = v
	}
	req := &sdk.SendMessageRequest{Tenant: c.Interface.Tenant, Message: &sdk.Message{ID: newID(), Role: sdk.MessageRoleUser,
		ContextID: m.Context, TaskID: sdk.TaskID(m.Task), Parts: sdk.ContentParts{sdk.NewTextPart(m.Text)}, Metadata: m.Metadata}}
	b := &builder{sent: req.Message.ID}
	add := func(v any) error {
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("reading the agent's answer: %w", err)
		}
		return b.add(data)
	}
	if c.Stream {
		for e, err := range t.SendStreamingMessage(ctx, params, req) {
			if err != nil {
				return nil, fmt.Errorf("streaming over gRPC: %w", err)
			}
			if err := add(e); err != nil {
				return nil, err
			}
		}
		if b.r.Events == 0 {
			return nil, errors.New("the stream ended without a result")
		}
		return b.reply(), nil
	}
	res, err := t.SendMessage(ctx, params, req)
	if err != nil {
		return nil, fmt.Errorf("calling over gRPC: %w", err)
	}
	if err := add(res); err != nil {
		return nil, err
	}
	return b.reply(), nil
}

// grpcTarget turns a card's endpoint (host:port, grpc://…, https://…) into what gRPC dials.
func grpcTarget(raw string) (target string, secure bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return raw, false
	}
	secure = u.Scheme == "https" || u.Scheme == "grpcs"
	if u.Port() == "" {
		if secure {
			return u.Host + ":443", true
		}
		return u.Host + ":80", false
	}
	return u.Host, secure
}
