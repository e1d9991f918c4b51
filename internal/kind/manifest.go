package kind

// Manifest lists a directory's files in the order of their paths' bytes.
type Manifest struct {
	Files  []ManifestFile `json:"files"`
	SHA256 string         `json:"sha256"`
}

// ManifestFile is one file, symbolic link or empty directory.
type ManifestFile struct {
	Path   string `json:"path"` // relative, slashes, escaped as bodycam.Escape has it
	Mode   string `json:"mode"` // "-rw-r--r--", as Go's fs.FileMode writes it
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"` // of a regular file's content
	Link   string `json:"link,omitempty"`   // what a symbolic link says, escaped
}
