package session

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor/names"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// What is kept of the contents that passed through the proxy in the clear.
const (
	mostExchanges = 5000
	mostBodies    = 2000
	mostBodyBytes = 128 << 20
)

// exchanges keeps what passed through the proxy in the clear. What was said with the model is left out: it is the
// transcript once more, with every turn repeated.
type exchanges struct {
	w *store.Writer

	mu      sync.Mutex
	list    []bodycam.Exchange
	dropped int
	files   int
	bytes   int
	err     error
}

// content takes an exchange. The proxy calls it from many goroutines.
func (x *exchanges) content(c *names.Content) {
	if c.Host == ModelHost && c.Target == "forward" {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.list) >= mostExchanges {
		x.dropped++
		return
	}
	n := len(x.list) + 1
	x.list = append(x.list, bodycam.Exchange{
		Time: c.Time, Boot: c.Boot, Proto: c.Proto, Client: c.Client, Remote: c.Remote, Host: c.Host, Target: c.Target,
		Method: c.Method, URL: bodycam.Escape(c.URL), Status: c.Status, RequestHeader: c.RequestHeader, ResponseHeader: c.ResponseHeader,
		Request: x.body(&c.Request, fmt.Sprintf("%05d.request", n)), Response: x.body(&c.Response, fmt.Sprintf("%05d.response", n)),
		Error: c.Err,
	})
}

// body writes a body's bytes to a file of the run.
func (x *exchanges) body(b *names.Body, name string) bodycam.Body {
	out := bodycam.Body{Bytes: b.Bytes, SHA256: hex.EncodeToString(b.SHA256[:])}
	if len(b.Data) == 0 || x.files >= mostBodies || x.bytes+len(b.Data) > mostBodyBytes || x.err != nil {
		return out
	}
	file := filepath.Join(store.NetworkDir, name)
	if x.files == 0 {
		x.err = os.MkdirAll(filepath.Join(x.w.Dir(), store.NetworkDir), 0o700)
	}
	if x.err == nil {
		x.err = os.WriteFile(filepath.Join(x.w.Dir(), file), b.Data, 0o600)
	}
	if x.err != nil {
		return out
	}
	x.files++
	x.bytes += len(b.Data)
	out.File, out.Cut = filepath.ToSlash(file), b.Cut()
	return out
}

// save writes the list, once the proxy has ended. It returns a note on what was left out, "" where nothing was.
func (x *exchanges) save() (note string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return "", fmt.Errorf("keeping network contents: %w", x.err)
	}
	if len(x.list) == 0 {
		return "", nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for i := range x.list {
		if err := enc.Encode(&x.list[i]); err != nil {
			return "", fmt.Errorf("keeping network contents: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Join(x.w.Dir(), store.NetworkDir), 0o700); err != nil {
		return "", fmt.Errorf("keeping network contents: %w", err)
	}
	if x.dropped > 0 {
		note = fmt.Sprintf("%d exchanges over the proxy were over the limit of %d: their contents are not kept", x.dropped, mostExchanges)
	}
	return note, x.w.File(store.ExchangesFile, b.Bytes())
}
