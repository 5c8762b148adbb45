package bundle_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wherry-dev/wherry/bundle"
)

func TestAClustersIdentityHasAForm(t *testing.T) {
	for _, c := range []struct {
		text      string
		uid, name bool
	}{
		{"", false, false},
		{"a", true, true},
		{"plant-7", true, true},
		{"Plant_7.east", true, true},
		{"6ba7b810:9dad", true, false},
		{"plant-", true, false},
		{"-plant", false, false},
		{"plant 7", false, false},
		{"plant\n", false, false},
		{"plänt", false, false},
		{strings.Repeat("a", 128), true, true},
		{strings.Repeat("a", 129), false, true},
		{strings.Repeat("a", 253), false, true},
		{strings.Repeat("a", 254), false, false},
	} {
		assert.Equal(t, c.uid, bundle.IsClusterUID(c.text), "uid %q", c.text)
		assert.Equal(t, c.name, bundle.IsClusterName(c.text), "name %q", c.text)
	}
}
