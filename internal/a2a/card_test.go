package a2a

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

func at(t *testing.T, s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestCardForms(t *testing.T) {
	for _, c := range []struct {
		name, json, form, url, binding string
		deviations                     []string
	}{
		{"1.0", `{"name":"a","description":"d","version":"1","capabilities":{"streaming":true},"defaultInputModes":["text"],"defaultOutputModes":["text"],
			"supportedInterfaces":[{"url":"https://h/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],
			"skills":[{"id":"s","name":"S","description":"x","tags":["t"]}]}`, "1.0", "https://h/rpc", JSONRPC, nil},
		{"0.3 without preferredTransport", `{"name":"a","description":"d","version":"1","protocolVersion":"0.3.0","capabilities":{},"defaultInputModes":["text"],"defaultOutputModes":["text"],
			"url":"https://h/","skills":[{"id":"s","name":"S","description":"x","tags":[]}]}`, "0.3", "https://h/", JSONRPC, nil},
		{"relative URL, null and missing fields", `{"name":"a","description":null,"url":"/rpc","skills":[{"name":"S"}]}`, "0.2", "http://host:1/rpc", JSONRPC,
			[]string{"description: it is null", "version: it is missing", "url: the URL is relative", "skills[0].id: it is missing", "skills[0].tags: it is missing"}},
		{"unreachable URL", `{"name":"a","description":"d","version":"1","url":"http://0.0.0.0:41242/","skills":[]}`, "0.2", "http://host:1/", JSONRPC,
			[]string{"which no caller can reach", "no skill is declared"}},
		{"gRPC at an address", `{"name":"a","description":"d","version":"1","supportedInterfaces":[{"url":"127.0.0.1:50051","protocolBinding":"GRPC","protocolVersion":"1.0"}],"skills":[]}`,
			"1.0", "host:50051", GRPC, []string{"which no caller can reach"}},
		{"REST by another name, same id twice", `{"name":"a","description":"d","version":"1","supportedInterfaces":[{"url":"http://h","protocolBinding":"REST","protocolVersion":"1.0"}],
			"skills":[{"id":"s","name":"S","description":"x","tags":"t"},{"id":"s","name":"S","description":"x","tags":["t"]}]}`, "1.0", "http://h", REST,
			[]string{`binding "REST" is taken for HTTP+JSON`, "not a list", "not unique"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			card, err := ParseCard([]byte(c.json), at(t, "http://host:1/.well-known/agent-card.json"))
			if err != nil {
				t.Fatal(err)
			}
			if card.Form != c.form || len(card.Interfaces) == 0 || card.Interfaces[0].URL != c.url || card.Interfaces[0].Binding != c.binding {
				t.Errorf("got form %s, interfaces %+v", card.Form, card.Interfaces)
			}
			var all []string
			for _, d := range card.Deviations {
				if d.Rule == "" || d.Place == "" {
					t.Errorf("a deviation without its place: %+v", d)
				}
				all = append(all, d.String())
			}
			text := strings.Join(all, "\n")
			for _, want := range c.deviations {
				if !strings.Contains(text, want) {
					t.Errorf("no deviation says %q in:\n%s", want, text)
				}
			}
			if c.deviations == nil && text != "" {
				t.Errorf("a faultless card has deviations:\n%s", text)
			}
		})
	}
	for _, bad := range []string{"", "[]", `{"a":1}`, "<html>", `{"name":`} {
		if _, err := ParseCard([]byte(bad), nil); err == nil {
			t.Errorf("%q was taken for a card", bad)
		}
	}
}

// The examples of RFC 8785, appendix B and section 3.2.
func TestCanonical(t *testing.T) {
	in := `{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001,-0,1e21,123456789012345680000,1e-7],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false],"\ufb33":1,"\ud83d\ude02":2}`
	want := `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27,0,1e+21,123456789012345680000,1e-7],"string":"€$\u000f\nA'B\"\\\\\"/","😂":2,"` + "\ufb33" + `":1}`
	d := json.NewDecoder(strings.NewReader(in))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	got, err := canonical(nil, v)
	if err != nil || string(got) != want {
		t.Errorf("got  %s\nwant %s (%v)", got, want, err)
	}
}

func TestSignature(t *testing.T) {
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := priv.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	enc := base64.RawURLEncoding.EncodeToString
	jwks, _ := json.Marshal(map[string]any{"keys": []any{map[string]string{"kty": "EC", "crv": "P-256", "kid": "k1", "x": enc(pub[1:33]), "y": enc(pub[33:])}}})
	keys, err := ParseKeys(jwks)
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"without-defaults", "as-served"} {
		card := map[string]any{"name": "a", "description": "d", "version": "1", "capabilities": map[string]any{"streaming": false}, "url": "http://h/",
			"skills": []any{map[string]any{"id": "s", "name": "S", "description": "é", "tags": []any{}}}}
		signed := any(card)
		if form == "without-defaults" {
			signed = withoutDefaults(card)
		}
		payload, err := canonical(nil, signed)
		if err != nil {
			t.Fatal(err)
		}
		protected := enc([]byte(`{"alg":"ES256","kid":"k1","typ":"JOSE"}`))
		digest := sha256.Sum256([]byte(protected + "." + enc(payload)))
		r, s, err := ecdsa.Sign(rand.Reader, priv, digest[:])
		if err != nil {
			t.Fatal(err)
		}
		sig := make([]byte, 64)
		r.FillBytes(sig[:32])
		s.FillBytes(sig[32:])
		card["signatures"] = []any{map[string]any{"protected": protected, "signature": enc(sig)}}
		raw, _ := json.Marshal(card)
		c, err := ParseCard(raw, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Verify(keys); len(got) != 1 || !got[0].Valid || got[0].Form != form {
			t.Errorf("%s: %+v", form, got)
		}
		c, err = ParseCard([]byte(strings.Replace(string(raw), `"description":"d"`, `"description":"e"`, 1)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Verify(keys); got[0].Valid || got[0].Why == "" {
			t.Errorf("%s: a changed card is valid: %+v", form, got)
		}
		if got := c.Verify(nil); got[0].Valid {
			t.Error("valid without any key")
		}
	}
}

func FuzzParseCard(f *testing.F) {
	f.Add([]byte(`{"name":"a","url":"/x","skills":[{"id":1,"tags":null},3],"signatures":[{"protected":"e30","signature":""}]}`))
	f.Add([]byte(`{"supportedInterfaces":{"url":"http://[::1","protocolBinding":[]},"capabilities":[]}`))
	u := &url.URL{Scheme: "http", Host: "h"}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseCard(data, u)
		if err != nil {
			return
		}
		for _, k := range c.Skills {
			if k.ID == "" {
				t.Fatal("a skill without id")
			}
		}
		c.Verify(nil)
	})
}

func FuzzReply(f *testing.F) {
	f.Add([]byte("data: {\"jsonrpc\":\"2.0\",\"result\":{\"kind\":\"message\",\"role\":\"agent\",\"parts\":[{\"kind\":\"text\",\"text\":\"a\"}]}}\r\n\r\n"))
	f.Add([]byte("data: {\"task\":\ndata: {\"id\":\"1\",\"status\":{\"state\":\"TASK_STATE_COMPLETED\"},\"history\":[1],\"artifacts\":[{\"parts\":[{\"data\":{\"request\":{\"name\":\"x\"}}}]}]}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := &builder{}
		_ = events(strings.NewReader(string(data)), 1<<16, b.add)
		b.reply().ToolCalls()
	})
}
