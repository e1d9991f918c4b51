// Command gen writes the man pages of every command into the directory that it is given.
package main

import (
	"log"
	"os"
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
}
