package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// consent is had before what can't be undone: on a terminal by a word that is typed, elsewhere by --yes.
type consent struct{ yes bool }

func (c *consent) add(fl *pflag.FlagSet) {
	fl.BoolVarP(&c.yes, "yes", "y", false, "don't ask; needed where standard input is no terminal")
}

// confirm says what will be done and what follows from it, and waits for the word. Its error says that nothing was done.
func (c *consent) confirm(s *streams, word, consequences string) error {
	if c.yes {
		return nil
	}
	if !asks(s) {
		return withHint(usage("nothing was done: this can't be undone, and nobody can be asked: standard input is no terminal"), "say --yes where it is meant")
	}
	fmt.Fprintf(s.err, "%s\nIt can't be undone. Type %s to go on: ", consequences, word)
	line, err := bufio.NewReader(s.in).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != word {
		return usage("nothing was done: it wasn't confirmed")
	}
	return nil
}

// asks tells whether somebody sits at standard input.
func asks(s *streams) bool {
	f, ok := s.in.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
