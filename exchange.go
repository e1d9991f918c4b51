package bodycam

import "net/netip"

// Exchange is something that passed through the recorder's proxy in the clear: a request and its response, or both
// directions of another protocol. Values of header fields are not kept: they carry credentials.
type Exchange struct {
	Time   int64          `json:"time"` // when it began: wall clock, nanoseconds since 1970
	Boot   uint64         `json:"boot"`
	Proto  string         `json:"proto"`  // HTTP/1.1, HTTP/2.0, smtp, git, tcp, tls
	Client netip.AddrPort `json:"client"` // the sandbox's end
	Remote netip.AddrPort `json:"remote"` // the other end, as the sandbox knows it
	Host   string         `json:"host"`
	Target string         `json:"target"` // what answered: upstream, forward, stand-in
	Method string         `json:"method,omitempty"`
	URL    string         `json:"url,omitempty"`
	Status int            `json:"status,omitempty"`

	RequestHeader  []string `json:"request_header,omitempty"` // names of the fields
	ResponseHeader []string `json:"response_header,omitempty"`
	Request        Body     `json:"request"`
	Response       Body     `json:"response"`
	Error          string   `json:"error,omitempty"` // why it did not end well
}

// Body is what an exchange carried one way.
type Body struct {
	Bytes  uint64 `json:"bytes"`
	SHA256 string `json:"sha256"`         // of the whole
	File   string `json:"file,omitempty"` // where its bytes are kept, relative to the run directory; empty: they are not
	Cut    bool   `json:"cut,omitempty"`  // File has the beginning only
}

// Decoy is a credential without use that was planted in a sandbox. Its value is unique to the run: wherever it turns
// up, something has read it.
type Decoy struct {
	Name  string `json:"name"` // for people
	Path  string `json:"path"`
	Value string `json:"value"`
}
