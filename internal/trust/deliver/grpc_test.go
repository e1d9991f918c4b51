package deliver

import (
	"context"
	"encoding/json"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/internal/a2a"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	grpc03 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	grpc10 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// greeter is an agent on the official SDK's server.
type greeter struct{}

func (greeter) Execute(_ context.Context, x *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		yield(sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("hello "+x.Message.Parts[0].Text())), nil)
	}
}

func (greeter) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(func(sdk.Event, error) bool) {}
}

// locked serves the agent over gRPC to callers that ok knows.
func locked(t *testing.T, ok func(metadata.MD) bool, opts ...grpc.ServerOption) (addr string) {
	t.Helper()
	check := func(ctx context.Context) error {
		md, _ := metadata.FromIncomingContext(ctx)
		if !ok(md) {
			return status.Error(codes.Unauthenticated, "who are you?")
		}
		return nil
	}
	g := grpc.NewServer(append(opts, grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		if err := check(ctx); err != nil {
			return nil, err
		}
		return h(ctx, req)
	}), grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		if err := check(s.Context()); err != nil {
			return err
		}
		return h(srv, s)
	}))...)
	h := a2asrv.NewHandler(greeter{})
	grpc10.NewHandler(h).RegisterWith(g)
	grpc03.NewHandler(h).RegisterWith(g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go g.Serve(l)
	t.Cleanup(g.Stop)
	return l.Addr().String()
}

// Bearer token, API key, client certificate and OAuth, each over TLS to the official server, in both versions, streaming
// and not; and without them, refused in a way that ends an audit.
func TestGRPCCredentials(t *testing.T) {
	dir := t.TempDir()
	cert, key, pool := selfSigned(t, dir)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "fresh", "expires_in": 100})
	}))
	defer tokens.Close()
	has := func(field, want string) func(metadata.MD) bool {
		return func(md metadata.MD) bool { v := md.Get(field); return len(v) == 1 && v[0] == want }
	}
	server := serverTLS(t, cert, key, pool)
	open := server.Clone()
	open.ClientAuth = 0
	from := Secret("file:" + secret)
	for name, c := range map[string]struct {
		creds Credentials
		ok    func(metadata.MD) bool
		mtls  bool
	}{
		"bearer":  {Credentials{Bearer: from}, has("authorization", "Bearer s3cret"), false},
		"api key": {Credentials{APIKey: map[string]Secret{"X-API-Key": from}}, has("x-api-key", "s3cret"), false},
		"oauth":   {Credentials{OAuth: &OAuth{TokenURL: tokens.URL, ClientID: "me", Secret: from}}, has("authorization", "Bearer fresh"), false},
		"mtls":    {Credentials{Cert: cert, Key: key}, func(metadata.MD) bool { return true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			conf := open
			if c.mtls {
				conf = server
			}
			addr := locked(t, c.ok, grpc.Creds(credentials.NewTLS(conf)))
			say := func(creds Credentials, version string, stream bool, hosts ...string) error {
				creds.CA = cert
				client, err := creds.New(hosts...)
				if err != nil {
					t.Fatal(err)
				}
				a, err := NewA2A(client.Client, &a2a.Card{Streaming: true, Interfaces: []a2a.Interface{{URL: addr, Binding: a2a.GRPC, Version: version}}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				r, err := a.Over(client.GRPC()).Say(ctx, Message{Text: "you", Stream: stream})
				if err == nil && r.Text != "hello you" {
					t.Errorf("%q", r.Text)
				}
				if err != nil && strings.Contains(err.Error(), "s3cret") {
					t.Errorf("the error shows the secret: %v", err)
				}
				return err
			}
			for _, version := range []string{"1.0", "0.3"} {
				for _, stream := range []bool{false, true} {
					if err := say(c.creds, version, stream, "127.0.0.1"); err != nil {
						t.Errorf("%s, stream %v: %v", version, stream, err)
					}
					err := say(Credentials{}, version, stream)
					if err == nil || !c.mtls && kindOf(err) != isAuth {
						t.Errorf("%s, stream %v, as nobody: %v is %q", version, stream, err, kindOf(err))
					}
				}
			}
			if !c.mtls {
				if err := say(c.creds, "1.0", false, "elsewhere"); err == nil {
					t.Error("credentials for another host were sent")
				}
			}
		})
	}
}

// Credentials don't go over a network in the clear; on this machine they may.
func TestGRPCPlaintext(t *testing.T) {
	t.Setenv("TEST_TOKEN", "t0ken")
	client, err := Credentials{Bearer: "env:TEST_TOKEN"}.New()
	if err != nil {
		t.Fatal(err)
	}
	say := func(url string) error {
		a, err := NewA2A(client.Client, &a2a.Card{Interfaces: []a2a.Interface{{URL: url, Binding: a2a.GRPC, Version: "1.0"}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Over(client.GRPC()).Say(t.Context(), Message{Text: "you"})
		return err
	}
	addr := locked(t, func(md metadata.MD) bool { return len(md.Get("authorization")) == 1 })
	if err := say(addr); err != nil {
		t.Error(err)
	}
	if err := say("agent.invalid:50051"); err == nil || !strings.Contains(err.Error(), "not encrypted") {
		t.Error(err)
	}
}
