package a2a

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	grpc03 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	grpc10 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"google.golang.org/grpc"
)

// echo is an agent on the official SDK's server.
type echo struct{}

func (echo) Execute(_ context.Context, x *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		text := ""
		for _, p := range x.Message.Parts {
			text += p.Text()
		}
		if strings.HasPrefix(text, "task") {
			if !yield(sdk.NewSubmittedTask(x, x.Message), nil) || !yield(sdk.NewArtifactEvent(x, sdk.NewTextPart("art "+text)), nil) {
				return
			}
			yield(sdk.NewStatusUpdateEvent(x, sdk.TaskStateCompleted, sdk.NewMessageForTask(sdk.MessageRoleAgent, x, sdk.NewTextPart("done"))), nil)
			return
		}
		yield(sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("echo "+text)), nil)
	}
}

func (echo) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(func(sdk.Event, error) bool) {}
}

// Every binding and version of the official SDK's servers, streaming and not.
func TestOfficialServers(t *testing.T) {
	h := a2asrv.NewHandler(echo{})
	serve := func(x http.Handler) string {
		s := httptest.NewServer(x)
		t.Cleanup(s.Close)
		return s.URL
	}
	g := grpc.NewServer()
	grpc10.NewHandler(h).RegisterWith(g)
	grpc03.NewHandler(h).RegisterWith(g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go g.Serve(l)
	t.Cleanup(g.Stop)
	for _, i := range []Interface{
		{URL: serve(a2asrv.NewJSONRPCHandler(h)), Binding: JSONRPC, Version: "1.0"},
		{URL: serve(a2asrv.NewJSONRPCHandler(h)), Binding: JSONRPC}, // the version must be found out
		{URL: serve(a2av0.NewJSONRPCHandler(h)), Binding: JSONRPC, Version: "0.3"},
		{URL: serve(a2asrv.NewRESTHandler(h)), Binding: REST, Version: "1.0"},
		{URL: serve(a2av0.NewRESTHandler(h)), Binding: REST, Version: "0.3"},
		{URL: l.Addr().String(), Binding: GRPC, Version: "1.0"},
		{URL: "grpc://" + l.Addr().String(), Binding: GRPC, Version: "0.3"},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %s stream=%v", i.Binding, i.Version, stream), func(t *testing.T) {
				c := &Client{HTTP: http.DefaultClient, Interface: i, Stream: stream}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				for text, want := range map[string]string{"hi": "echo hi", "task it": "art task it\ndone"} {
					r, err := c.Send(ctx, Message{Text: text})
					if err != nil {
						t.Fatal(err)
					}
					if r.Text != want {
						t.Errorf("got %q, want %q (%+v)", r.Text, want, r)
					}
				}
			})
		}
	}
}

func TestForms(t *testing.T) {
	for _, c := range []struct{ name, kind, body, text, state string }{
		{"gemini: history only, tool in a data part", "application/json", `{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"t","contextId":"c","status":{"state":"input-required"},
			"history":[{"role":"user","parts":[{"kind":"text","text":"q"}]},{"role":"agent","messageId":"1","parts":[{"kind":"data","data":{"request":{"callId":"x","name":"run_shell_command","args":{"command":"id"}},"status":"success"}}]},
			{"role":"agent","messageId":"2","parts":[{"kind":"text","text":"I can't."}]}]}}`, "I can't.", "input-required"},
		{"earlier turns are left out", "application/json", `{"result":{"id":"t","status":{"state":"completed"},"history":[{"role":"agent","parts":[{"text":"old"}]},{"role":"ROLE_USER","parts":[]},{"role":"ROLE_AGENT","parts":[{"text":"new"}]}]}}`, "new", "completed"},
		{"events over several data lines, CR LF, comments", "text/event-stream; charset=utf-8", ": hi\r\nevent: x\r\ndata: {\"result\":\r\ndata: {\"kind\":\"artifact-update\",\"taskId\":\"t\",\"artifact\":{\"artifactId\":\"a\",\"parts\":[{\"kind\":\"text\",\"text\":\"one \"}]}}}\r\n\r\n" +
			"data: {\"result\":{\"kind\":\"artifact-update\",\"taskId\":\"t\",\"append\":true,\"artifact\":{\"artifactId\":\"a\",\"parts\":[{\"kind\":\"text\",\"text\":\"two\"}]}}}\r\n\r\ndata: {\"result\":{\"kind\":\"status-update\",\"taskId\":\"t\",\"status\":{\"state\":\"completed\"}}}", "one two", "completed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				_, _ = io.WriteString(w, c.body)
			}))
			defer s.Close()
			r, err := (&Client{HTTP: s.Client(), Interface: Interface{URL: s.URL, Binding: JSONRPC, Version: "0.3"}}).Send(t.Context(), Message{Text: "q"})
			if err != nil {
				t.Fatal(err)
			}
			if r.Text != c.text || r.State != c.state {
				t.Errorf("got %q, %q", r.Text, r.State)
			}
			if strings.Contains(c.name, "gemini") {
				if calls := r.ToolCalls(); len(calls) != 1 || calls[0].Tool != "run_shell_command" || calls[0].Args != `{"command":"id"}` {
					t.Errorf("tool calls: %+v", calls)
				}
			}
		})
	}
}
