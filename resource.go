package bodycam

import "strconv"

// ResourceKind is the kind of a resource.
type ResourceKind string

// The kinds of resources.
const (
	Command ResourceKind = "command"
	File    ResourceKind = "file"
	Host    ResourceKind = "host"
)

// Resource is a command, file or host, named so that it compares between runs.
type Resource struct {
	Kind ResourceKind `json:"kind"`
	Name string       `json:"name"`
}

func plural(n uint64, what string) string {
	s := strconv.FormatUint(n, 10) + " " + what
	if n != 1 {
		s += "s"
	}
	return s
}
