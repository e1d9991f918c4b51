// Command fit writes the heads of the embedded judge and the vectors of its background corpus, from the data beside it:
//
//	go run ./internal/trust/judge/fit         write ../data/heads.json and ../data/background.bin
//	go run ./internal/trust/judge/fit -cv     say how well heads do on what they weren't fitted to, and write nothing
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
	cv := flag.Bool("cv", false, "print cross-validated figures instead of writing")
	flag.Parse()
	if err := run(*cv); err != nil {
		log.Fatal(err)
	}
}

func run(cv bool) error {
	m, err := minilm.Default()
	if err != nil {
		return err
	}
	vectors := judge.PackBackground(m)
	l, err := judge.NewLocalWith(nil, string(vectors))
	if err != nil {
		return err
	}
	if cv {
		return validate(l)
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

func validate(l *judge.Local) error {
	return validateScope(l)
}

// fitAll returns heads.json.
func fitAll(l *judge.Local) ([]byte, error) {
	decls, err := declarations()
	if err != nil {
		return nil, err
	}
	var h judge.Heads
	fitScope(&h, scopeSamples(l, decls))
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
