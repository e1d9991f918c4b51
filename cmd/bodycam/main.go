// Command bodycam records what AI agents do, from the kernel, and judges it.
package main

import (
	"os"

	"github.com/bodycam-dev/bodycam/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr)) }
