package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// typed matches a command of ours in a page: a line of a block, or text between backticks.
var typed = regexp.MustCompile("(?m)^(wherry(?:-agent)? [^\n]*)$|`(wherry(?:-agent)? [a-z][^`\n]*)`")

// Every command of the page on air gaps exists, and has the flags that the page gives it.
func TestThePageOnAirGapsNamesCommandsThatExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/sites/air-gap.md")
	require.NoError(t, err)
	found := typed.FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(found), 10)
	for _, f := range found {
		line, _, _ := strings.Cut(f[1]+f[2], " #")
		words := strings.Fields(strings.NewReplacer("'", "", `"`, "").Replace(line))
		root := rootOf(words[0])
		if words[0] == root.Name() {
			words = words[1:]
		}
		cmd, rest, err := root.Find(words)
		require.NoError(t, err, line)
		require.True(t, cmd.Runnable() && cmd.HasParent(), "%s: no such command", line)
		for i, word := range rest {
			name, ok := strings.CutPrefix(word, "--")
			if !ok {
				if short, ok := strings.CutPrefix(word, "-"); ok && short != "" {
					require.NotNil(t, cmd.Flags().ShorthandLookup(short), "%s: -%s", line, short)
				}
				continue
			}
			name, _, _ = strings.Cut(name, "=")
			flag := cmd.Flags().Lookup(name)
			require.NotNil(t, flag, "%s: there is no flag %s", line, word)
			if i+1 < len(rest) && flag.NoOptDefVal == "" {
				require.False(t, strings.HasPrefix(rest[i+1], "--"), "%s: %s has a value", line, word)
			}
		}
	}
}
