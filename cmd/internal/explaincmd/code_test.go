package explaincmd

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestExplainCode(t *testing.T) {
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	x := &question{format: "table"}
	require.NoError(t, x.printCode(cmd, "w1202"))
	require.Equal(t, `W1202 (warning): a key that is read as a boolean

In YAML 1.1, which Kalypso reads values with, y, n, yes, no, on and off are booleans, also as keys:
y becomes true.

Example
  data:
    AXES: |
      x: 1
      y: 2          # rendered as true: 2

What to do
  Put the key in quotes: "y": 2.
`, out.String())
	require.EqualError(t, x.printCode(cmd, "W9999"), `unknown code "W9999"`)
}
