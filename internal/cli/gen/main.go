// Command gen writes the man pages of every command, and of the program bodycam-verify, into the directory that it is given.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/internal/cli"
	"github.com/spf13/cobra/doc"
)

func main() {
	dir := os.Args[1]
	if err := os.RemoveAll(dir); err != nil {
		log.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		log.Fatal(err)
	}
	root := cli.Root()
	root.DisableAutoGenTag = true
	// A fixed date: the pages must rebuild identically.
	date := time.Unix(0, 0).UTC()
	header := &doc.GenManHeader{Title: "BODYCAM", Section: "1", Source: "bodycam", Manual: "bodycam", Date: &date}
	if err := doc.GenManTree(root, header, dir); err != nil {
		log.Fatal(err)
	}
	if err := apart(dir); err != nil {
		log.Fatal(err)
	}
	if err := program(filepath.Join(dir, verifier+".1")); err != nil {
		log.Fatal(err)
	}
}

// The program has the name that the page of "bodycam verify" would have.
const (
	verifier = "bodycam-verify"
	command  = "bodycam-verify-command"
)

// apart gives the page of "bodycam verify" another name.
func apart(dir string) error {
	if err := os.Rename(filepath.Join(dir, verifier+".1"), filepath.Join(dir, command+".1")); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		b, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		b = bytes.ReplaceAll(b, []byte(verifier+"(1)"), []byte(command+"(1)"))
		b = bytes.ReplaceAll(b, []byte(".SH NAME\n"+verifier+" - "), []byte(".SH NAME\n"+command+" - "))
		if err := os.WriteFile(page, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// program writes the page of the program from what its -h prints.
func program(page string) error {
	help, err := exec.Command("go", "run", "github.com/bodycam-dev/bodycam/cmd/"+verifier, "-h").Output()
	if err != nil {
		return fmt.Errorf("asking %s for its help: %w", verifier, err)
	}
	var b strings.Builder
	b.WriteString(".nh\n.TH \"BODYCAM-VERIFY\" \"1\" \"Jan 1970\" \"bodycam\" \"bodycam\"\n\n.SH NAME\n")
	b.WriteString("bodycam-verify - Verify a ledger or a bundle, without the network and without writing anything\n\n.SH DESCRIPTION\n")
	b.WriteString("This is the separate program. The page of the command \"bodycam verify\" is \\fB" + esc(command) + "(1)\\fP.\n\n.EX\n")
	for line := range strings.Lines(string(help)) {
		if text := strings.TrimSuffix(line, "\n"); text != "" && text == strings.ToUpper(text) && text[0] != ' ' {
			b.WriteString(".EE\n.SH " + text + "\n.EX\n")
			continue
		}
		b.WriteString("\\&" + esc(line))
	}
	b.WriteString(".EE\n")
	return os.WriteFile(page, []byte(b.String()), 0o644)
}

// esc writes text as roff has it.
func esc(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\e`), "-", `\-`)
}
