package mirror

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// seedLog makes a mirror that holds a log, and returns the log's name and the bytes of its files.
func seedLog(tb testing.TB) (d *Dir, root, log string, files map[string][]byte) {
	tb.Helper()
	root = tb.TempDir()
	d = NewDir(filepath.Join(root, "mirror"))
	src := tb.TempDir()
	w := writer(tb, src)
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	if _, err := Send(context.Background(), src, d, SendOptions{}); err != nil {
		tb.Fatal(err)
	}
	files = map[string][]byte{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files[path] = b
		if strings.HasSuffix(path, "genesis") {
			log = filepath.Base(filepath.Dir(filepath.Dir(path)))
		}
		return err
	})
	if err != nil || len(log) != 64 {
		tb.Fatalf("log %q, %v", log, err)
	}
	return d, root, log, files
}

// FuzzRequest: whatever a client with the token asks, the mirror doesn't fall over, nothing that is there shrinks or
// changes, and nothing is written outside of its folder.
func FuzzRequest(f *testing.F) {
	d, root, log, files := seedLog(f)
	for _, path := range []string{log, log + "/heads", log + "/files/ledger/genesis?offset=0", log + "/files/ledger/epochs?digest=7",
		log + "/files/../../x?offset=0", log + "/files/ledger/00000000.log?offset=18446744073709551615", strings.Repeat("0", 64), "%2e%2e/files/a?offset=0"} {
		f.Add("GET", path, []byte(nil))
		f.Add("POST", path, []byte("x\n1\nAAAA\n\n"))
	}
	h := Handler(d, "token")
	f.Fuzz(func(t *testing.T, method, path string, body []byte) {
		req, err := http.NewRequest(method, "https://mirror/v1/logs/"+path, bytes.NewReader(body))
		if err != nil {
			t.Skip()
		}
		req.Header.Set("Authorization", "Bearer token")
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		if rec.Code == http.StatusInternalServerError {
			t.Errorf("%s %q: %d %s", method, path, rec.Code, rec.Body)
		}
		for name, old := range files {
			if now, err := os.ReadFile(name); err != nil || !bytes.HasPrefix(now, old) {
				t.Fatalf("%s %q changed %s: %v", method, path, name, err)
			}
		}
		list, err := os.ReadDir(root)
		if err != nil || len(list) != 1 {
			t.Fatalf("%s %q: beside the mirror lies %v, %v", method, path, list, err)
		}
	})
}

// answers is a server that always says the same.
type answers struct {
	code int
	body []byte
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Status: "x", Body: io.NopCloser(bytes.NewReader(a.body)), Header: http.Header{}, Request: r}, nil
}

// FuzzAnswer: whatever a mirror answers, a client that compares with it ends with an answer of its own.
func FuzzAnswer(f *testing.F) {
	src := f.TempDir()
	w := writer(f, src)
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(200, []byte(`{"files":{"ledger/genesis":3}}`))
	f.Add(200, []byte(`[{"time":1,"note":"x\n1\nAAAA\n\n"}]`))
	f.Add(409, []byte("no"))
	f.Add(200, []byte(`"00"`))
	f.Fuzz(func(t *testing.T, code int, body []byte) {
		c := &client{base: "https://mirror", http: &http.Client{Transport: answers{code, body}}}
		ctx := context.Background()
		if files, err := c.Files(ctx, strings.Repeat("0", 64)); err == nil {
			for name, n := range files {
				if n < 0 || strings.Contains(name, "..") {
					t.Errorf("file %q of %d bytes", name, n)
				}
			}
		}
		_, _ = c.Heads(ctx, "x")
		_, _ = c.Digest(ctx, "x", "y", 1)
		if cmp, err := Compare(ctx, src, c, CompareOptions{}); err == nil && cmp.Status == "verified" && len(body) < 64 {
			t.Errorf("%d bytes of answer are a verified copy", len(body))
		}
	})
}
