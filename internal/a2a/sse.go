package a2a

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// events reads a stream of server-sent events (WHATWG HTML §9.2) and calls f with the data of each: several data: lines
// are one event. A stream that ends within an event gives what there is, as many servers forget the last empty line.
func events(r io.Reader, limit int, f func(data []byte) error) error {
	br := bufio.NewReaderSize(r, 64<<10)
	var data []byte
	has := false
	total := 0
	give := func() error {
		if !has {
			return nil
		}
		d := bytes.TrimSuffix(data, []byte("\n"))
		data, has = nil, false
		if len(bytes.TrimSpace(d)) == 0 {
			return nil
		}
		return f(d)
	}
	for first := true; ; first = false {
		line, err := readLine(br, limit)
		total += len(line)
		if total > limit {
			return fmt.Errorf("the event stream is longer than %d bytes", limit)
		}
		if first {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 && err == nil {
			if err := give(); err != nil {
				return err
			}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		if string(field) == "data" {
			data = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
			has = true
		}
		if err != nil {
			if gerr := give(); gerr != nil {
				return gerr
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// readLine reads up to LF, CR or CRLF and leaves the end out.
func readLine(br *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		b, err := br.ReadByte()
		if err != nil {
			return line, err
		}
		switch b {
		case '\n':
			return line, nil
		case '\r':
			if next, err := br.Peek(1); err == nil && next[0] == '\n' {
				_, _ = br.Discard(1) // it was just seen
			}
			return line, nil
		}
		if len(line) >= limit {
			return line, fmt.Errorf("a line of the event stream is longer than %d bytes", limit)
		}
		line = append(line, b)
	}
}
