package otlp

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"
)

// maxRequest bounds one export, unpacked, in bytes.
const maxRequest = 64 << 20

// The paths of the protocol, over HTTP and over gRPC.
const (
	pathTraces     = "/v1/traces"
	pathLogs       = "/v1/logs"
	pathMetrics    = "/v1/metrics"
	grpcTraces     = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	grpcLogs       = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
	grpcMetrics    = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
	typeProtobuf   = "application/x-protobuf"
	typeJSON       = "application/json"
	grpcOK         = "0"
	grpcInvalid    = "3"
	grpcUnexpected = "12" // unimplemented
)

// Sink takes what was received. It is called from several goroutines.
type Sink func(spans []Span, logs []Log)

// Serve receives on a listener until ctx ends: OTLP over gRPC (HTTP/2 without TLS) and over HTTP (protobuf, JSON) alike.
func Serve(ctx context.Context, l net.Listener, sink Sink) error {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: Handler(sink), Protocols: p, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("receiving traces on %s: %w", l.Addr(), err)
	}
	return nil
}

// Handler is the receiver as an HTTP handler.
func Handler(sink Sink) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.Error(w, "POST only", http.StatusMethodNotAllowed)
			return
		}
		kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil {
			kind = ""
		}
		if kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+proto") {
			serveGRPC(w, r, sink)
			return
		}
		serveHTTP(w, r, kind, sink)
	})
}

func serveHTTP(w http.ResponseWriter, r *http.Request, kind string, sink Sink) {
	body, err := unpacked(r.Body, r.Header.Get("Content-Encoding"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	asJSON := kind == typeJSON
	if !asJSON && kind != typeProtobuf {
		http.Error(w, "want application/x-protobuf or application/json", http.StatusUnsupportedMediaType)
		return
	}
	// Some senders are given the base URL and leave the signal's path out, or put it below another.
	switch {
	case strings.HasSuffix(r.URL.Path, pathTraces):
		err = traces(body, asJSON, sink)
	case strings.HasSuffix(r.URL.Path, pathLogs):
		err = logs(body, asJSON, sink)
	case strings.HasSuffix(r.URL.Path, pathMetrics): // not wanted, and no error
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", kind)
	if asJSON {
		_, _ = io.WriteString(w, "{}") // the sender may be gone; what it sent was taken
	}
}

func traces(body []byte, asJSON bool, sink Sink) error {
	decode := DecodeTraces
	if asJSON {
		decode = DecodeTracesJSON
	}
	spans, err := decode(body)
	if err == nil && len(spans) > 0 {
		sink(spans, nil)
	}
	return err
}

func logs(body []byte, asJSON bool, sink Sink) error {
	decode := DecodeLogs
	if asJSON {
		decode = DecodeLogsJSON
	}
	records, err := decode(body)
	if err == nil && len(records) > 0 {
		sink(nil, records)
	}
	return err
}

// serveGRPC answers one unary call: a message is a flag, a length and its bytes; the status goes in the trailer.
func serveGRPC(w http.ResponseWriter, r *http.Request, sink Sink) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
	status, message := grpcOK, ""
	body, err := grpcMessage(r)
	if err == nil {
		switch r.URL.Path {
		case grpcTraces:
			err = traces(body, false, sink)
		case grpcLogs:
			err = logs(body, false, sink)
		case grpcMetrics:
		default:
			status, message = grpcUnexpected, "only Export of traces and logs is served"
		}
	}
	if err != nil {
		status, message = grpcInvalid, err.Error()
	}
	w.WriteHeader(http.StatusOK)
	if status == grpcOK {
		_, _ = w.Write(make([]byte, 5)) // an empty message; the sender may be gone
	}
	w.Header().Set("Grpc-Status", status)
	w.Header().Set("Grpc-Message", strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '%' {
			return '?'
		}
		return c
	}, message))
}

func grpcMessage(r *http.Request) ([]byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r.Body, head[:]); err != nil {
		return nil, fmt.Errorf("reading the message's head: %w", err)
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxRequest {
		return nil, fmt.Errorf("the message has %d bytes, more than %d", n, maxRequest)
	}
	encoding := ""
	if head[0] == 1 {
		encoding = r.Header.Get("Grpc-Encoding")
	}
	return unpacked(io.LimitReader(r.Body, int64(n)), encoding)
}

func unpacked(r io.Reader, encoding string) ([]byte, error) {
	switch encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("unpacking: %w", err)
		}
		r = z
	default:
		return nil, fmt.Errorf("encoding %q is not supported", encoding)
	}
	b, err := io.ReadAll(io.LimitReader(r, maxRequest+1))
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	if len(b) > maxRequest {
		return nil, fmt.Errorf("the request has more than %d bytes", maxRequest)
	}
	return b, nil
}
