// Package checks has commands of the shell look at what would be released; see [Commands].
package checks

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
	"github.com/wherry-dev/wherry/bundle/child"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/publisher/keys"
)

// The names in the folder that a check gets.
const (
	treeFolder    = "tree"
	artifactsFile = "artifacts.ndjson"
)

// maxLine bounds a line of a check's output, in bytes. A longer line is shown as several.
const maxLine = 4 << 10

// Commands are shell commands, all of which have to exit with 0 before a release. They run one after the other in a folder
// with the releases: the trees as tree/<cluster type>/…, and the list of their artifacts as artifacts.ndjson.
type Commands struct {
	Lines []string
	// Output gets their output; nil discards it.
	Output io.Writer
	// Platform, Environment and BaseCommit are passed to them as environment variables.
	Platform, Environment, BaseCommit string
	// Env names variables with secrets that they get all the same; see [Environment].
	Env []string
}

// Error means that checks refuse the releases.
type Error struct {
	// Late is true if some cluster types had been published before: after a race with another publisher, the content
	// differed from the one that the checks had accepted. Otherwise nothing was published.
	Late bool
	// Refusals has an error for each command that refuses, in their order.
	Refusals []error
}

func (e *Error) Error() string {
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

func (e *Error) Unwrap() []error { return e.Refusals }

// checkedArtifact is a line of the list of artifacts for a check.
type checkedArtifact struct {
	ClusterType string `json:"clusterType"`
	bundle.Artifact
}

// Proposal is what would be released of a cluster type.
type Proposal struct {
	ClusterType string
	Content     *bundle.Packed
}

// Run has all of c's commands look at proposals, so that a person sees what each of them has to say. The error is an
// *Error where one of them refuses; late is its Late.
func (c Commands) Run(ctx context.Context, proposals []Proposal, late bool) error {
	folder, err := diskfile.NewScratch()
	if err != nil {
		return err
	}
	err = writeProposals(folder.Path, proposals)
	if err == nil {
		err = c.run(ctx, folder.Path, proposals, late)
	}
	return errors.Join(err, folder.Close())
}

// writeProposals writes the trees of proposals, as agents will have them, and the list of their artifacts.
func writeProposals(dir string, proposals []Proposal) error {
	var list bytes.Buffer
	lines := json.NewEncoder(&list)
	lines.SetEscapeHTML(false)
	for _, p := range proposals {
		tree := filepath.Join(dir, treeFolder, p.ClusterType)
		if err := os.MkdirAll(tree, 0o755); err != nil {
			return err
		}
		artifacts, err := unpackTo(tree, p.Content)
		if err != nil {
			return fmt.Errorf("%s: %w", p.ClusterType, err)
		}
		for _, a := range artifacts {
			if err := lines.Encode(checkedArtifact{p.ClusterType, a}); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(dir, artifactsFile), list.Bytes(), 0o644)
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

func (c Commands) run(ctx context.Context, dir string, proposals []Proposal, late bool) error {
	var names []string
	for _, p := range proposals {
		names = append(names, p.ClusterType)
	}
	env := append(Environment(c.Env),
		"WHERRY_CHECK_DIR="+dir, "WHERRY_PLATFORM="+c.Platform, "WHERRY_ENVIRONMENT="+c.Environment,
		"WHERRY_BASE_COMMIT="+c.BaseCommit, "WHERRY_CLUSTER_TYPES="+strings.Join(names, " "))
	refused := &Error{Late: late}
	for _, command := range c.Lines {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir, cmd.Env = dir, env
		err := runCheck(ctx, cmd, c.Output)
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

// runCheck runs a check, and writes its output behind a prefix.
func runCheck(ctx context.Context, cmd *exec.Cmd, output io.Writer) error {
	out := &prefixWriter{w: output, prefix: "check: "}
	if out.w == nil {
		out.w = io.Discard
	}
	cmd.Stdout, cmd.Stderr = out, out
	err := child.Run(ctx, cmd)
	out.flush()
	return err
}

// Files has a shell command look at files that are to leave, such as a site package. It gets their paths as arguments, the
// first one in WHERRY_CHECK_FILE as well, and input on its standard input. Output gets its output; nil discards it. The error
// is an error of the command, which refuses them, or that of ctx. Env names variables with secrets that it gets all the same.
func Files(ctx context.Context, command string, files []string, input []byte, env []string, output io.Writer) error {
	cmd := exec.Command("sh", append([]string{"-c", command, "check"}, files...)...)
	cmd.Env = append(Environment(env), "WHERRY_CHECK_FILE="+files[0])
	cmd.Stdin = bytes.NewReader(input)
	if err := runCheck(ctx, cmd, output); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("refused by the check %q: %w", command, err)
	}
	return nil
}

// Environment returns the environment of this process for a command that looks at what is released, without the logins that
// this process has for itself: what opens and obtains keys that sign, and the tokens of the hub, of forges and of registries.
// Variables in keep stay.
func Environment(keep []string) []string {
	secret := slices.Concat(
		[]string{keys.PasswordVariable, keys.PINVariable, "SIGSTORE_ID_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "DOCKER_AUTH_CONFIG", "DOCKER_CONFIG", "NETRC"},
		forge.Variables(forge.GitHub), forge.Variables(forge.GitLab), forge.Variables(forge.Gitea), forge.Variables(forge.Azure),
	)
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return !slices.Contains(keep, name) && (slices.Contains(secret, name) || ownSecret.MatchString(name))
	})
}

// ownSecret finds the variables of wherry that hold secrets.
var ownSecret = lazyregexp.New(`^WHERRY_.*(TOKEN|PASSWORD|PIN|DATABASE)$`)

// CheckNames returns an error unless names can be those of variables to keep.
func CheckNames(names []string) error {
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf("expected the name of an environment variable, got %q", strings.SplitN(name, "=", 2)[0])
		}
	}
	return nil
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
		if b == '\n' || len(w.line) == maxLine {
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
