package publisher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/program"
	"github.com/wherry-dev/wherry/publisher/releases"
)

// The names in the folder that a check gets.
const (
	checkTree      = "tree"
	checkArtifacts = "artifacts.ndjson"
)

// maxCheckLine bounds what is kept of a check's output until its line ends, in bytes. A longer line is
// shown as several.
const maxCheckLine = 4 << 10

// CheckError means that checks refuse what was to be released.
type CheckError struct {
	// Late says that some cluster types had been published, and a race with another publisher then made
	// another release than the one that the checks had agreed to. Otherwise nothing was published.
	Late bool
	// Refusals has an error for each command that refuses, in their order.
	Refusals []error
}

func (e *CheckError) Error() string {
	var texts []string
	for _, err := range e.Refusals {
		texts = append(texts, err.Error())
	}
	what := "nothing was published"
	if e.Late {
		what = "what had been published before another publisher came stays"
	}
	return "refused by a check: " + strings.Join(texts, "; ") + ": " + what
}

func (e *CheckError) Unwrap() []error { return e.Refusals }

// checkedArtifact is a line of what a check is told to be needed.
type checkedArtifact struct {
	ClusterType string `json:"clusterType"`
	bundle.Artifact
}

// check has all commands look at what plans would release, but for what this run has had them look at
// already. What is unchanged is not released.
func (p *publication) check(ctx context.Context, plans []*plan) error {
	if len(p.opts.Checks) == 0 {
		return nil
	}
	var due []*plan
	for _, pl := range plans {
		isDue, err := p.isDue(ctx, pl)
		if err != nil {
			return err
		}
		if isDue && p.checked[pl.clusterType.Name] != pl.content.Content.DiffID {
			due = append(due, pl)
		}
	}
	if len(due) == 0 {
		return nil
	}
	dir, err := os.MkdirTemp("", "wherry-check-")
	if err != nil {
		return err
	}
	err = writeProposal(dir, due)
	if err == nil {
		err = p.runChecks(ctx, dir, due)
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		return err
	}
	for _, pl := range due {
		p.checked[pl.clusterType.Name] = pl.content.Content.DiffID
	}
	return nil
}

// isDue reports whether pl would be released.
func (p *publication) isDue(ctx context.Context, pl *plan) (bool, error) {
	if pl.result.Result == releases.OutcomeFailed {
		return false, nil
	}
	if pl.standing.verified == nil {
		return true, nil
	}
	if len(pl.lanes) > 0 { // what a ring has only made anew was judged when it was new
		all, err := p.issues(ctx, pl)
		return slices.ContainsFunc(all, func(i *issue) bool { return i.from == nil }), err
	}
	same, _, err := p.isCurrent(ctx, pl, pl.standing.verified)
	return !same, err
}

// writeProposal writes the trees of plans, as agents will have them, and the list of what they need.
func writeProposal(dir string, plans []*plan) error {
	var list bytes.Buffer
	lines := json.NewEncoder(&list)
	lines.SetEscapeHTML(false)
	for _, pl := range plans {
		tree := filepath.Join(dir, checkTree, pl.clusterType.Name)
		if err := os.MkdirAll(tree, 0o755); err != nil {
			return err
		}
		artifacts, err := unpackTo(tree, pl.content)
		if err != nil {
			return fmt.Errorf("%s: %w", pl.clusterType.Name, err)
		}
		for _, a := range artifacts {
			if err := lines.Encode(checkedArtifact{pl.clusterType.Name, a}); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(dir, checkArtifacts), list.Bytes(), 0o644)
}

func unpackTo(dir string, content *bundle.Packed) ([]bundle.Artifact, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := bundle.Unpack(bytes.NewReader(content.Gzip), root, content.Content); err != nil {
		return nil, err
	}
	data, err := root.ReadFile(bundle.ArtifactsPath)
	if errors.Is(err, fs.ErrNotExist) { // nothing is needed
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return bundle.ParseArtifacts(data)
}

// runChecks runs all commands, so that a person sees what each of them has to say.
func (p *publication) runChecks(ctx context.Context, dir string, plans []*plan) error {
	var names []string
	for _, pl := range plans {
		names = append(names, pl.clusterType.Name)
	}
	env := append(withoutSecrets(os.Environ()),
		"WHERRY_CHECK_DIR="+dir, "WHERRY_PLATFORM="+p.done.Platform, "WHERRY_ENVIRONMENT="+p.done.Environment,
		"WHERRY_BASE_COMMIT="+p.done.BaseCommit, "WHERRY_CLUSTER_TYPES="+strings.Join(names, " "))
	refused := &CheckError{Late: len(p.pushed) > 0}
	for _, command := range p.opts.Checks {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir, cmd.Env = dir, env
		out := &prefixWriter{w: p.opts.CheckOutput, prefix: "check: "}
		if out.w == nil {
			out.w = io.Discard
		}
		cmd.Stdout, cmd.Stderr = out, out
		err := program.Run(ctx, cmd)
		out.flush()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			refused.Refusals = append(refused.Refusals, fmt.Errorf("%q: %w", command, err))
		}
	}
	if len(refused.Refusals) > 0 {
		return refused
	}
	return nil
}

// withoutSecrets leaves out what opens the keys that sign: a check has no use for them.
func withoutSecrets(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool {
		return strings.HasPrefix(v, keys.PasswordVariable+"=") || strings.HasPrefix(v, keys.PINVariable+"=")
	})
}

// prefixWriter writes whole lines, each behind a prefix. It is not for several goroutines.
type prefixWriter struct {
	w      io.Writer
	prefix string
	line   []byte
}

func (w *prefixWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		b := rest[0]
		rest = rest[1:]
		if b != '\n' {
			w.line = append(w.line, b)
		}
		if b == '\n' || len(w.line) == maxCheckLine {
			w.flushLine()
		}
	}
	return len(p), nil
}

func (w *prefixWriter) flushLine() {
	fmt.Fprintf(w.w, "%s%s\n", w.prefix, w.line)
	w.line = w.line[:0]
}

// flush writes a last line that has not ended.
func (w *prefixWriter) flush() {
	if len(w.line) > 0 {
		w.flushLine()
	}
}
