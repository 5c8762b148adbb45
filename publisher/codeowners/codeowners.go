// Package codeowners derives CODEOWNERS from a platform: which team a forge asks about a change of which file.
//
// Begin with [Derive], which reads the objects in a repository's files, and write the result with [Owned.Text]. A file whose
// objects all belong to one workspace is that team's: its registrations, and the configuration that its own deployment
// targets alone can get. Everything else is the platform team's, among it every file that does not exist yet.
//
// Only whole files have owners, so a team could put another team's object into a file of its own. Then the derived text is
// another one, and a check of it in CI fails. The same input gives the same bytes, and nothing here touches a network.
package codeowners

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Format is a forge's form of CODEOWNERS.
type Format string

// The forms of CODEOWNERS. They differ in the owners that they know; in both, the last line that matches a path counts.
const (
	GitHub Format = "github"
	GitLab Format = "gitlab"
)

// Formats lists the formats.
func Formats() []Format { return []Format{GitHub, GitLab} }

// Places lists the paths at which the forge looks for CODEOWNERS, in its order.
func (f Format) Places() []string {
	if f == GitLab {
		return []string{"CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS"}
	}
	return []string{".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS"}
}

// MaxBytes bounds the text: GitHub ignores a longer file, and then nobody owns anything.
const MaxBytes = 3 << 20

// Header begins each text of this package. A file that begins otherwise was written by somebody else.
const Header = "# Written by \"wherry codeowners\" from the Platform: change that instead.\n"

// Errors of [Derive] and [Owned.Text].
var (
	ErrNoPlatform = errors.New("there is no Platform object")
	ErrNoOwners   = errors.New("the Platform names no owners")
	ErrTooLarge   = fmt.Errorf("CODEOWNERS would be larger than %d bytes", MaxBytes)
)

// Owned is who owns the files of a repository.
type Owned struct {
	// Below is the platform's folder in the repository, "." for all of it.
	Below string
	// Platform lists the platform team.
	Platform []string
	// Files are those of workspaces, sorted by path.
	Files []File
	// Unspeakable are files of workspaces whose paths CODEOWNERS cannot hold for sure. The platform team owns them.
	Unspeakable []string
	// Unbound names the workspaces, sorted, that own registrations and may name every repository in them.
	Unbound []string
}

// File is a file of a workspace.
type File struct {
	Path      string // below the repository's top
	Workspace string
	Owners    []string
}

// Derive reads files, which lie at below in their repository. The platform is the Platform object; if it is nil, files must
// have one.
func Derive(files fs.FS, below string, platform *kinds.Platform) (Owned, error) {
	s := scan{workspaces: map[string][]string{}, platform: platform}
	if err := s.walk(files); err != nil {
		return Owned{}, err
	}
	if s.platform == nil {
		return Owned{}, ErrNoPlatform
	}
	o := Owned{Below: path.Clean(below), Platform: s.platform.Spec.Owners}
	if len(o.Platform) == 0 {
		return o, fmt.Errorf("%s: %w", s.platform.At, ErrNoOwners)
	}
	for _, w := range s.platform.Spec.Workspaces {
		if len(w.Owners) == 0 {
			continue
		}
		for _, name := range s.workspaces[w.Name] {
			name = path.Join(o.Below, name)
			if !speakable(name) {
				o.Unspeakable = append(o.Unspeakable, name)
				continue
			}
			o.Files = append(o.Files, File{name, w.Name, w.Owners})
		}
		if s.registers[w.Name] && len(w.Repositories) == 0 {
			o.Unbound = append(o.Unbound, w.Name)
		}
	}
	slices.SortFunc(o.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	slices.Sort(o.Unspeakable)
	slices.Sort(o.Unbound)
	return o, nil
}

// speakable reports whether both forges read the path as it is, with spaces escaped. They disagree about other escapes.
func speakable(name string) bool {
	odd := strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
	return utf8.ValidString(name) && !odd && !strings.ContainsAny(name, `*?[]{}!#\`)
}

// Text returns CODEOWNERS. The line for everything comes first, since the last line that matches a path counts.
func (o Owned) Text(format Format) ([]byte, error) {
	var b strings.Builder
	b.WriteString(Header)
	all := "*"
	if o.Below != "." {
		all = pattern(o.Below) + "/"
	}
	fmt.Fprintf(&b, "\n# The platform team: everything that no team below owns.\n%s %s\n", all, strings.Join(o.Platform, " "))
	byTeam := map[string][]File{}
	for _, f := range o.Files {
		byTeam[f.Workspace] = append(byTeam[f.Workspace], f)
	}
	owners := slices.Clone(o.Platform)
	for _, team := range slices.Sorted(func(yield func(string) bool) {
		for name := range byTeam {
			if !yield(name) {
				return
			}
		}
	}) {
		fmt.Fprintf(&b, "\n# Workspace %s\n", team)
		for _, f := range byTeam[team] {
			fmt.Fprintf(&b, "%s %s\n", pattern(f.Path), strings.Join(f.Owners, " "))
		}
		owners = append(owners, byTeam[team][0].Owners...)
	}
	if b.Len() > MaxBytes {
		return nil, ErrTooLarge
	}
	return []byte(b.String()), format.check(owners)
}

// pattern returns the pattern of one path: from the repository's top, and nothing else.
func pattern(name string) string { return "/" + strings.ReplaceAll(name, " ", `\ `) }

// OwnerError means that a forge knows no owner of this form, and would ignore its line.
type OwnerError struct {
	Format Format
	Owner  string
}

func (e *OwnerError) Error() string {
	return fmt.Sprintf("%s knows no owner of the form %q", e.Format, e.Owner)
}

// check returns an error for the first owner that the forge does not know.
func (f Format) check(owners []string) error {
	for _, o := range owners {
		if f == GitHub && (strings.HasPrefix(o, "@@") || strings.Count(o, "/") > 1) {
			return &OwnerError{f, o}
		}
	}
	return nil
}
