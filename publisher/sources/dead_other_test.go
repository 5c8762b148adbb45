//go:build !unix

package sources

import "testing"

func deadPort(t *testing.T) string {
	t.Skip("needs a port to which no connection is made")
	return ""
}
