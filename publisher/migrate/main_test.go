package migrate

import (
	"os"
	"testing"

	"github.com/wherry-dev/wherry/publisher/sandbox"
)

// TestMain is a child of a sandbox where it is told to be one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == sandbox.Name {
		os.Exit(sandbox.Child(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}
