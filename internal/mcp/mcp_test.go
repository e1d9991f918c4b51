package mcp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

type args struct {
	City string `json:"city"`
}

func server() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "weather", Version: "2"}, nil)
	yes := true
	sdk.AddTool(s, &sdk.Tool{Name: "get_weather", Description: "weather of a city", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, DestructiveHint: &yes}},
		func(_ context.Context, _ *sdk.CallToolRequest, a args) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{IsError: a.City == "", Content: []sdk.Content{&sdk.TextContent{Text: "sunny in " + a.City}}}, nil, nil
		})
	return s
}

func TestMain(m *testing.M) {
	if os.Getenv("MCP_TEST_SERVER") != "" {
		if err := server().Run(context.Background(), &sdk.StdioTransport{}); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestServers(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server() }, nil))
	defer h.Close()
	for name, target := range map[string]Target{
		"stdio": {Command: []string{self}, Env: []string{"MCP_TEST_SERVER=1"}},
		"http":  {URL: h.URL},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			s, err := Connect(ctx, target)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			d, err := s.Describe(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if d.Name != "weather" || len(d.Tools) != 1 || d.Tools[0].ReadOnly == nil || !*d.Tools[0].ReadOnly || len(d.Tools[0].Schema) == 0 {
				t.Errorf("%+v", d)
			}
			if len(d.Deviations) != 1 { // read-only and destructive
				t.Errorf("%+v", d.Deviations)
			}
			r, err := s.Call(ctx, "get_weather", map[string]any{"city": "Oslo"})
			if err != nil || r.Text != "sunny in Oslo" || r.Failed {
				t.Errorf("%+v %v", r, err)
			}
			if r, err := s.Call(ctx, "get_weather", map[string]any{"city": ""}); err != nil || !r.Failed {
				t.Errorf("%+v %v", r, err)
			}
		})
	}
	if _, err := Connect(t.Context(), Target{Command: []string{"/bin/true"}}); err == nil {
		t.Error("a command that isn't a server was connected to")
	}
}

// A server that is there and says nothing doesn't hold anybody up for ever.
func TestSilentServer(t *testing.T) {
	_, err := Connect(t.Context(), Target{Command: []string{"sleep", "600"}, Patience: 200 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "didn't answer within 200ms") {
		t.Fatal(err)
	}
}
