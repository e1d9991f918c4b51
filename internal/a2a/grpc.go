package a2a

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	grpc03 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	grpc10 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Dialling is how a gRPC endpoint is reached and with what credentials. The zero value: directly, as nobody, with the
// system's certificate authorities.
type Dialling struct {
	// TLS has the client's certificate and the authorities to trust; nil: none, and the system's. An endpoint that doesn't
	// say whether it wants TLS gets it where this is set.
	TLS *tls.Config
	// Metadata gives the credentials for a host (host:port as the card has it), as header fields; nil: there are none.
	Metadata func(ctx context.Context, host string) (http.Header, error)
	// Dial connects; nil: the network's own way.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// grpcConn is an open transport of the official SDK.
type grpcConn struct {
	a2aclient.Transport
	params a2aclient.ServiceParams

	mu     sync.Mutex
	status *status.Status // of the last call that failed: the SDK's own errors leave it out
}

func (t *grpcConn) failed(err error) {
	if s, ok := status.FromError(err); ok && err != nil {
		t.mu.Lock()
		t.status = s
		t.mu.Unlock()
	}
}

// because wraps what the SDK made of a failed call, with the call's status.
func (t *grpcConn) because(doing string, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Errorf("%s over gRPC: %w", doing, &callError{err, t.status})
}

// callError is a failed call. google.golang.org/grpc/status finds its status.
type callError struct {
	err error
	s   *status.Status
}

func (e *callError) Error() string              { return e.err.Error() }
func (e *callError) Unwrap() error              { return e.err }
func (e *callError) GRPCStatus() *status.Status { return e.s }

func (t *grpcConn) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	t.failed(err)
	return err
}

func (t *grpcConn) stream(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, d, cc, method, opts...)
	if err != nil {
		t.failed(err)
		return nil, err
	}
	return watched{s, t}, nil
}

type watched struct {
	grpc.ClientStream
	t *grpcConn
}

func (w watched) RecvMsg(m any) error {
	err := w.ClientStream.RecvMsg(m)
	w.t.failed(err)
	return err
}

// openGRPC opens the SDK's transport to the client's interface, with its credentials as metadata of every call.
func (c *Client) openGRPC(ctx context.Context, header http.Header) (*grpcConn, error) {
	target, secure := grpcTarget(c.Interface.URL, c.GRPC.TLS != nil)
	params := a2aclient.ServiceParams{}
	for k, v := range header {
		params[strings.ToLower(k)] = v
	}
	if c.GRPC.Metadata != nil {
		h, err := c.GRPC.Metadata(ctx, target)
		if err != nil {
			return nil, err
		}
		if len(h) > 0 && !secure && c.GRPC.Dial == nil && !private(target) {
			return nil, fmt.Errorf("the gRPC endpoint %s is not encrypted: credentials are not sent to it", c.Interface.URL)
		}
		for k, v := range h {
			params[strings.ToLower(k)] = v
		}
	}
	t := &grpcConn{params: params}
	creds := insecure.NewCredentials()
	if secure {
		conf := &tls.Config{MinVersion: tls.VersionTLS12}
		if c.GRPC.TLS != nil {
			conf = c.GRPC.TLS.Clone()
		}
		creds = credentials.NewTLS(conf)
	}
	opts := []grpc.DialOption{grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxReply)), grpc.WithNoProxy(),
		grpc.WithUnaryInterceptor(t.unary), grpc.WithStreamInterceptor(t.stream)}
	if dial := c.GRPC.Dial; dial != nil {
		target = "passthrough:///" + target // names are the dialler's business
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, "tcp", addr) }))
	}
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		return nil, fmt.Errorf("the agent's gRPC endpoint %s: %w", c.Interface.URL, err)
	}
	if v := c.Interface.Version; strings.HasPrefix(v, "1") || v == "" && c.Form == "1.0" {
		t.Transport = grpc10.NewGRPCTransport(conn)
	} else {
		t.Transport = grpc03.NewGRPCTransport(conn)
	}
	return t, nil
}

// sendGRPC sends through the official SDK's transport. Its results are read like those of the other bindings.
func (c *Client) sendGRPC(ctx context.Context, m Message) (*Reply, error) {
	t, err := c.openGRPC(ctx, m.Header)
	if err != nil {
		return nil, err
	}
	defer t.Destroy()
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
		for e, err := range t.SendStreamingMessage(ctx, t.params, req) {
			if err != nil {
				return nil, t.because("streaming", err)
			}
			if err := add(e); err != nil {
				return nil, err
			}
		}
		if b.r.Events == 0 {
			return nil, errors.New("the stream ended without a result")
		}
	} else {
		res, err := t.SendMessage(ctx, t.params, req)
		if err != nil {
			return nil, t.because("calling", err)
		}
		if err := add(res); err != nil {
			return nil, err
		}
	}
	for wait := 200 * time.Millisecond; b.r.Waiting() && b.r.Task != ""; wait = min(2*wait, 2*time.Second) {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the task is still %s: %w", b.r.State, context.Cause(ctx))
		case <-time.After(wait):
		}
		task, err := t.GetTask(ctx, t.params, &sdk.GetTaskRequest{Tenant: c.Interface.Tenant, ID: sdk.TaskID(b.r.Task)})
		if err != nil {
			return nil, t.because("asking for the task", err)
		}
		if err := add(task); err != nil {
			return nil, err
		}
	}
	return b.reply(), nil
}

// grpcTarget turns a card's endpoint (host:port, grpc://…, https://…) into what gRPC dials. Where the endpoint doesn't say
// whether it is encrypted, port 443 is, and any other where the caller has certificates for it.
func grpcTarget(raw string, certificates bool) (target string, secure bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		_, port, err := net.SplitHostPort(raw)
		return raw, certificates || err == nil && port == "443"
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

// private tells whether host:port is on this machine or a private network, by its address alone.
func private(target string) bool {
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		host = target
	}
	a, err := netip.ParseAddr(host)
	return isLoopback(host) || err == nil && (a.IsLoopback() || a.IsPrivate())
}
