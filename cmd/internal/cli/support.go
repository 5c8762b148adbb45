package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/show"
)

// Support is a bundle of files for those who help: a tar with gzip. It begins with the version of the program and the names of the
// environment variables that are set. Secrets are taken out of all that is added. The zero Support is ready.
type Support struct {
	files map[string][]byte
}

// maxSupportFile bounds a file of a bundle, in bytes; of a longer one the end is kept.
const maxSupportFile = 1 << 20

// secretNames are parts of the names of environment variables whose values are secret, and secrets are secrets by their form:
// tokens of hubs, private keys, and PINs in the URIs of keys.
var (
	secretNames = []string{"TOKEN", "PASSWORD", "SECRET", "PIN", "CREDENTIAL", "API_KEY", "ACCESS_KEY", "DATABASE"}
	secrets     = lazyregexp.New(`wh[at]_[0-9a-f]{12}_[A-Za-z0-9_-]+|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(-----END [A-Z ]*PRIVATE KEY-----)?|pin-(value|source)=[^&;\s"]*`)
)

// OutputSupport adds -o to a command that writes a bundle.
func OutputSupport(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "output", "o", "", "write the bundle to this `FILE`, or to standard output if it is -")
	_ = cmd.MarkFlagRequired("output")
	NotEmpty(cmd, "output")
}

// Add adds a value as JSON, unless err is why it could not be read: then that is added.
func (s *Support) Add(name string, value any, err error) {
	var data []byte
	if err == nil {
		data, err = json.MarshalIndent(value, "", "  ")
	}
	if err != nil {
		s.AddText(name+".error", []byte(err.Error()))
		return
	}
	s.AddText(name, data)
}

// AddText adds a text.
func (s *Support) AddText(name string, text []byte) {
	if s.files == nil {
		s.files = map[string][]byte{}
	}
	s.files[name] = append(redacted(text[max(0, len(text)-maxSupportFile):]), '\n')
}

// redacted returns a text without secrets.
func redacted(text []byte) []byte {
	var lines strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "://") { // the search is slow
			line = show.Redact(line)
		}
		lines.WriteString(line)
	}
	out := lines.String()
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		if isSecret(name) && len(value) > 3 {
			quoted, _ := json.Marshal(value) // which cannot fail
			out = strings.NewReplacer(value, "REDACTED", string(quoted[1:len(quoted)-1]), "REDACTED").Replace(out)
		}
	}
	return []byte(secrets.ReplaceAllString(out, "REDACTED"))
}

func isSecret(name string) bool {
	return slices.ContainsFunc(secretNames, func(part string) bool { return strings.Contains(strings.ToUpper(name), part) })
}

// Write writes the bundle, whose bytes depend on what was added alone.
func (s *Support) Write(cmd *cobra.Command, path string) error {
	s.Add("version.json", map[string]string{"version": Version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}, nil)
	var names []string
	ours := regexp.MustCompile(`^(WHERRY_|COSIGN_|DOCKER_|XDG_|GIT_|GO)|_proxy$|_PROXY$|_TOKEN$|^(HOME|TMPDIR|KUBECONFIG|CI)$`)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); ours.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	s.Add("environment.json", names, nil)
	if path == "-" {
		if term.IsTerminal(int(os.Stdout.Fd())) {
			return Fail(Usage, errors.New("a bundle is no text for a terminal"), "redirect it, or name a file")
		}
		return s.write(os.Stdout) // not the command's, which escapes
	}
	if err := diskfile.ReplaceBy(path, 0o644, s.write); err != nil {
		return Fail(Failed, err, "name another file with -o")
	}
	cmd.PrintErrf("wrote %s with %s; look through it before you send it\n", path, show.Count(len(s.files), "file"))
	return nil
}

func (s *Support) write(w io.Writer) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		header := &tar.Header{Name: "wherry-support/" + name, Mode: 0o600, Size: int64(len(s.files[name])), Format: tar.FormatPAX}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(t, bytes.NewReader(s.files[name])); err != nil {
			return err
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	return nil
}
