package kind

// Copy puts a file, a directory's contents, or given bytes into the box. [Copy.Walk] lists what it comes to.
type Copy struct {
	From string `json:"from,omitempty"` // absolute, outside: a file or a directory; empty: Content
	// Root is the directory that From lies in and that no symbolic link may lead out of.
	Root    string `json:"root,omitempty"`
	Content string `json:"content,omitempty"`
	To      string `json:"to"` // absolute, in the box. A directory's contents go into it
	// Name is set where it depends on the box what To means, as in Docker: if To is a directory there, the file
	// goes into it under this name; otherwise To is the file's own path.
	Name    string   `json:"name,omitempty"`
	Owner   string   `json:"owner,omitempty"`   // name, uid, or either:either; empty: root
	Mode    string   `json:"mode,omitempty"`    // octal, of files and directories alike; empty: the source's
	Exclude []string `json:"exclude,omitempty"` // patterns as in .dockerignore, relative to Root
	Files   int      `json:"files"`             // how many entries there are, directories not counted
	Bytes   int64    `json:"bytes"`
	SHA256  string   `json:"sha256"` // over the entries, as [Manifest.SHA256]
}
