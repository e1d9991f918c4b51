// Package link joins the rows of a transcript with the events that a sensor saw.
//
// A row says "I ran this command"; events say which process ran what. The two are joined by the text of the
// command in a process's argv, by the process tree below it, by the time the row arrived, and for files that the
// harness touched itself by path. Each [bodycam.Link] carries its method, a confidence from 0 to 1, and a reason in
// words. What stays over on either side is reported too: a claimed call that no process bears out ([Missing]), and
// a process that no row explains ([Subtree]).
package link

import (
	"github.com/bodycam-dev/bodycam"
)

// Result is how rows and events fit together.
type Result struct {
	Links    []bodycam.Link // in the order of rows; a row can have several
	Unlinked []Subtree      // process subtrees that the harness started and no row explains, in the order of time
	Missing  []Missing      // tool rows that claim an effect on the box but have no event
}

// Subtree is a process that the harness started, with all its descendants.
type Subtree struct {
	Root      bodycam.Proc `json:"root"`
	Seq       uint64       `json:"seq"` // the first event that shows the root: its fork, or its exec
	Exe       string       `json:"exe,omitempty"`
	Argv      []string     `json:"argv,omitempty"`
	From      uint64       `json:"from"` // boot time of its start
	To        uint64       `json:"to"`   // boot time of the last exit in it; of the last event seen where one still lives
	Processes int          `json:"processes"`
	Startup   bool         `json:"startup,omitempty"` // it began before the transcript's first tool row arrived
}

// Missing is a row without events.
type Missing struct {
	Row int    `json:"row"`
	Why string `json:"why"`
}
