package session

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
)

// A value goes out where its placeholder was, and doesn't come back: a server that repeats what it was sent repeats the
// placeholder.
func TestSwap(t *testing.T) {
	const value, placeholder = "s3cret&x", "bodycam-KEY-0123"
	var seen *http.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		fmt.Fprintf(w, "you said %s and %s", r.Header.Get("Authorization"), r.URL.Query().Get("key"))
	}))
	defer s.Close()
	c := &http.Client{Transport: &swap{[]Secret{{Placeholder: placeholder, Value: value}}, http.DefaultTransport}}
	get := func(header string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, s.URL+"/?key="+placeholder, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", header)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if req.Header.Get("Authorization") != header {
			t.Error("the agent's own request was changed")
		}
		return resp, string(b)
	}
	resp, body := get("Bearer " + placeholder)
	if seen.Header.Get("Authorization") != "Bearer "+value || seen.URL.Query().Get("key") != value {
		t.Errorf("sent %q, %q", seen.Header.Get("Authorization"), seen.URL.RawQuery)
	}
	if want := "you said Bearer " + placeholder + " and " + placeholder; body != want || strings.Contains(resp.Header.Get("X-Echo"), value) {
		t.Errorf("got back %q, %q", body, resp.Header.Get("X-Echo"))
	}
	get("Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+placeholder)))
	if u, p, ok := seen.BasicAuth(); !ok || u != "me" || p != value {
		t.Errorf("sent %q %q", u, p)
	}
}

// The text is found wherever reads cut it.
func TestReplacing(t *testing.T) {
	for in, want := range map[string]string{"": "", "abc": "abc", "xsecretx": "x*x", "secsecret": "sec*", "secretsecret": "**", "secre": "secre", "sesecrettsecre": "se*tsecre"} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(in), "bytes": iotest.OneByteReader(strings.NewReader(in)), "half": iotest.HalfReader(strings.NewReader(in))} {
			got, err := io.ReadAll(&replacing{r: io.NopCloser(r), old: []byte("secret"), new: []byte("*")})
			if err != nil || string(got) != want {
				t.Errorf("%q in %s: %q, %v", in, name, got, err)
			}
		}
	}
}
