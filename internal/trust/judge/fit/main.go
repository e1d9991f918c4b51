// Command fit writes the heads of the embedded judge and the vectors of its background corpus, from the data beside it:
//
//	go run ./internal/trust/judge/fit             write ../data/heads.json and ../data/background.bin
//	go run ./internal/trust/judge/fit -cv scope   say how well a head does on what it wasn't fitted to, and write nothing
//
// The same data gives the same bytes.
package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"

	"github.com/bodycam-dev/bodycam/internal/trust/judge"
	"github.com/bodycam-dev/bodycam/internal/trust/judge/minilm"
)

//go:embed data/*.jsonl
var data embed.FS

func main() {
	log.SetFlags(0)
	cv := flag.String("cv", "", "print cross-validated figures of a head (scope, reply, tool) instead of writing")
	flag.Parse()
	if err := run(*cv); err != nil {
		log.Fatal(err)
	}
}

func run(cv string) error {
	m, err := minilm.Default()
	if err != nil {
		return err
	}
	vectors := judge.PackBackground(m)
	l, err := judge.NewLocalWith(nil, string(vectors))
	if err != nil {
		return err
	}
	if cv != "" {
		return validate(l, cv)
	}
	heads, err := fitAll(l)
	if err != nil {
		return err
	}
	dir, err := home()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "background.bin"), vectors, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "heads.json"), heads, 0o644)
}

// home is the judge's data directory, found from this source file, so that it can be run from anywhere in the module.
func home() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "", fmt.Errorf("the path of the source isn't known")
	}
	return filepath.Join(filepath.Dir(file), "..", "data"), nil
}

func validate(l *judge.Local, head string) error {
	switch head {
	case "scope":
		return validateScope(l)
	case "reply":
		return validateReply(l)
	case "tool":
		return validateTool(l)
	}
	return fmt.Errorf("no head %q: scope, reply or tool", head)
}

// fitAll returns heads.json.
func fitAll(l *judge.Local) ([]byte, error) {
	decls, err := declarations()
	if err != nil {
		return nil, err
	}
	var h judge.Heads
	fitScope(&h, scopeSamples(l, decls))
	replies, _, err := replySamples(l)
	if err != nil {
		return nil, err
	}
	if err := fitReply(&h, replies); err != nil {
		return nil, err
	}
	tools, _, err := toolSamples(l, decls)
	if err != nil {
		return nil, err
	}
	fitTool(&h, tools)
	return encode(&h)
}

func encode(h *judge.Heads) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	if err := e.Encode(h); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b.Bytes(), "", " "); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// read returns the labelled lines of one data file.
func read(name string) ([]judge.Labelled, error) {
	f, err := data.Open("data/" + name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines, err := judge.ReadLabelled(f)
	if err != nil {
		return nil, fmt.Errorf("data/%s: %w", name, err)
	}
	return lines, nil
}
