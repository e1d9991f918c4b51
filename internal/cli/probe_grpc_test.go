package cli

import (
	"context"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	a2agrpc "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
)

// forecaster is an agent on the official server.
type forecaster struct{}

func (forecaster) Execute(_ context.Context, x *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		text := "Sorry, I can only help with the weather."
		if q := strings.ToLower(x.Message.Parts[0].Text()); strings.Contains(q, "weather") || strings.Contains(q, "rain") {
			text = "It is sunny and 20 degrees there, with light wind and no rain until Friday."
		}
		yield(sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart(text)), nil)
	}
}

func (forecaster) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(func(sdk.Event, error) bool) {}
}

// An agent that is declared over HTTP and spoken to over gRPC, at another port of the same host, by callers with a key.
func TestProbeGRPC(t *testing.T) {
	g := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("x-api-key")) != 1 || md.Get("x-api-key")[0] != "k3y" {
			return nil, grpcstatus.Error(codes.Unauthenticated, "who are you?")
		}
		return next(ctx, req)
	}))
	a2agrpc.NewHandler(a2asrv.NewHandler(forecaster{})).RegisterWith(g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go g.Serve(l)
	t.Cleanup(g.Stop)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/.well-known/agent-card.json" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"name":"weather","description":"Weather forecasts","version":"1","capabilities":{},"defaultInputModes":["text"],"defaultOutputModes":["text"],
			"supportedInterfaces":[{"url":%q,"protocolBinding":"GRPC","protocolVersion":"1.0"}],
			"skills":[{"id":"forecast","name":"Weather forecast","description":"Provides the weather forecast for a city.","tags":["weather"],
			"examples":["What's the weather in Oslo?","Will it rain in Lima tomorrow?"]}]}`, l.Addr())
	}))
	defer s.Close()
	t.Setenv("TEST_KEY", "k3y")
	status, out, errs := probeAs(t, nil, s.URL, "--probes", "6", "-o", t.TempDir(), "--api-key", "X-API-Key=env:TEST_KEY", "--threshold", "60")
	if status != ExitOK || strings.Contains(out+errs, "k3y") {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
	status, _, errs = probeAs(t, nil, s.URL, "--probes", "2", "-o", t.TempDir(), "-q")
	if status != ExitEnvironment || !strings.Contains(errs, "refuses the credentials") {
		t.Errorf("as nobody: status %d: %s", status, errs)
	}
}
