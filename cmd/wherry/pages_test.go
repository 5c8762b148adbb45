package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/docs"
)

// pagesOf returns the text of each page: those of the documentation, of examples, and the README.
func pagesOf(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, fs.WalkDir(docs.Pages, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".md" || name == "reference/commands.md" {
			return err
		}
		text, err := fs.ReadFile(docs.Pages, name)
		all["docs/"+name] = string(text)
		return err
	}))
	others, err := filepath.Glob("../../examples/*/README.md")
	require.NoError(t, err)
	for _, name := range append(others, "../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md") {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		all[strings.TrimPrefix(filepath.ToSlash(name), "../../")] = string(text)
	}
	return all
}

var (
	codeBlock  = regexp.MustCompile("(?ms)^ *```[^\n]*\n(.*?)^ *```$")
	inlineCode = regexp.MustCompile("`([^`\n]+)`")
	// typed matches a command of ours in a line: after a prompt, an assignment of a variable, or another command.
	typed = regexp.MustCompile(`(?:^|[$|;(&] ?|^[A-Z_]+=\S* |\bexec |-- )(wherry(?:-agent)? [^|;&>#)]+)`)
	words = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
)

// shownIn returns the commands of ours that a page shows, in blocks and between backticks.
func shownIn(page string) (all []string) {
	add := func(line string) {
		for _, m := range typed.FindAllStringSubmatch(strings.TrimSpace(line), -1) {
			all = append(all, strings.TrimSpace(m[1]))
		}
	}
	for _, block := range codeBlock.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			add(line)
		}
	}
	for _, code := range inlineCode.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
		if m := typed.FindString(code[1]); m != "" && !strings.HasSuffix(code[1], "…") {
			add(code[1])
		}
	}
	return all
}

// Every command of ours that a page shows exists, and has the flags that the page gives it.
func TestThePagesNameCommandsThatExist(t *testing.T) {
	checked := 0
	roots := map[string]*cobra.Command{}
	for _, name := range []string{program, agentProgram} {
		roots[name] = rootOf(name)
		roots[name].InitDefaultHelpCmd()
	}
	for name, page := range pagesOf(t) {
		for _, line := range shownIn(page) {
			checked++
			if err := exists(roots, line); err != nil {
				t.Errorf("%s: %s: %v", name, line, err)
			}
		}
	}
	require.Greater(t, checked, 500)
}

// exists returns an error if a command or one of its flags does not exist.
func exists(roots map[string]*cobra.Command, line string) error {
	given := words.FindAllString(strings.NewReplacer("[", " ", "]", " ").Replace(line), -1)
	root := roots[given[0]]
	given = given[1:]
	cmd, rest, err := root.Find(given)
	if err != nil {
		return err
	}
	if cmd == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("there is no command %s", rest[0])
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	for i, word := range rest {
		if word == "--" {
			return nil
		}
		if err := hasFlag(cmd, word, rest[i+1:]); err != nil {
			return err
		}
	}
	return nil
}

func hasFlag(cmd *cobra.Command, word string, rest []string) error {
	name, long := strings.CutPrefix(word, "--")
	if !long {
		if short, is := strings.CutPrefix(word, "-"); is && short != "" && cmd.Flags().ShorthandLookup(short[:1]) == nil {
			return fmt.Errorf("there is no flag %s", word)
		}
		return nil
	}
	name, _, with := strings.Cut(name, "=")
	flag := cmd.Flag(name)
	switch {
	case flag == nil:
		return fmt.Errorf("there is no flag %s", word)
	case !with && flag.NoOptDefVal == "" && len(rest) > 0 && strings.HasPrefix(rest[0], "--"):
		return fmt.Errorf("%s has a value", word)
	}
	return nil
}
