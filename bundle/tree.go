package bundle

// File is one regular file of a tree or of an assignment's folder.
type File struct {
	// Path is relative, clean and separated by slashes.
	Path string
	// Executable gives mode 0755 instead of 0644.
	Executable bool
	Data       []byte
}
