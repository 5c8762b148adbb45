//go:build e2e

package e2e

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

// blockTime bounds one block of a page, and outputTime the wait for its output.
const (
	blockTime  = 10 * time.Minute
	outputTime = 3 * time.Minute
)

var (
	section = regexp.MustCompile(`(?m)^## (.*)\n`)
	fenced  = regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$")
)

// page is a page of docs/ whose commands are run in a single shell, and have to give the printed output.
type page struct {
	*site
	sections map[string]string // the sections that are left to run
	in       io.Writer
	out      *os.File
	lines    *bufio.Reader // of out
}

// openPage starts a shell for a page in the site's folder. What the page starts in the background ends with
// the test.
func openPage(s *site, name string, replace *strings.Replacer, env []string) *page {
	t := s.t
	t.Helper()
	text, err := os.ReadFile("../docs/" + name)
	require.NoError(t, err)
	cmd := exec.Command("bash", "-euo", "pipefail")
	cmd.Dir, cmd.Env = s.dir, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, shell, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = shell, shell
	require.NoError(t, cmd.Start())
	require.NoError(t, shell.Close())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		_ = cmd.Wait()
		require.NoError(t, out.Close())
	})
	p := &page{site: s, sections: map[string]string{}, in: in, out: out, lines: bufio.NewReader(out)}
	p.enter("trap 'kill $(jobs -p) 2>/dev/null || :' EXIT") // for a test that is killed
	for _, found := range section.FindAllStringSubmatchIndex(string(text), -1) {
		end := len(text)
		if next := section.FindIndex(text[found[1]:]); next != nil {
			end = found[1] + next[0]
		}
		p.sections[string(text[found[2]:found[3]])] = replace.Replace(string(text[found[1]:end]))
	}
	return p
}

// follow does what a section of the page says.
func (p *page) follow(heading string) {
	p.t.Helper()
	require.Contains(p.t, p.sections, heading)
	var shown string
	for _, found := range fenced.FindAllStringSubmatch(p.sections[heading], -1) {
		if found[1] == "sh" {
			shown = p.enter(found[2])
		} else {
			p.requireShown(shown, found[2])
		}
	}
	delete(p.sections, heading)
}

// enter makes the shell run a script, which must not fail, and returns its output.
func (p *page) enter(script string) (shown string) {
	p.t.Helper()
	end := rand.Text()
	_, err := fmt.Fprintf(p.in, "{\n%s\n} </dev/null\necho %s\n", script, end)
	require.NoError(p.t, err)
	require.NoError(p.t, p.out.SetReadDeadline(time.Now().Add(blockTime)))
	for {
		line, err := p.lines.ReadString('\n')
		if before, found := strings.CutSuffix(line, end+"\n"); found {
			p.t.Logf("%s\n%s", script, shown+before)
			return shown + before
		}
		shown += line
		require.NoError(p.t, err, "%s\n%s", script, shown)
	}
}

// requireShown requires that the lines of want are shown in their order, perhaps with others between. What
// runs in the background may show them later than the shell comes back.
func (p *page) requireShown(shown, want string) {
	p.t.Helper()
	require.NoError(p.t, p.out.SetReadDeadline(time.Now().Add(outputTime)))
	rest := bufio.NewReader(io.MultiReader(strings.NewReader(shown), p.lines))
	for line := range strings.Lines(want) {
		words := oneSpaced(line)
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(words), "…", ".*") + "$")
		for next := ""; !pattern.MatchString(oneSpaced(next)); {
			var err error
			next, err = rest.ReadString('\n')
			require.NoError(p.t, err, "%q is not shown where the page says so, in\n%s", words, shown)
		}
	}
}

func oneSpaced(line string) string { return strings.Join(strings.Fields(line), " ") }
