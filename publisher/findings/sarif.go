package findings

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/lint"
)

// SARIF returns the result for code scanning, found by this version of wherry.
func (r *Result) SARIF(version string) lint.Log {
	found := make([]finding.Finding, len(r.Findings))
	for i, f := range r.Findings {
		found[i] = finding.Finding{
			Position: finding.Position{File: f.File, Line: f.Line}, Code: f.Code, Column: f.Column,
			Note: f.Severity == finding.SeverityNote, Message: f.Message, Hint: f.Hint,
		}
	}
	return lint.SARIF(found, version, sarifPlaces{top: repositoryTop(), platform: r.platform}.uri)
}

// sarifPlaces turns the names of files into URIs: relative ones for files in the repository that is
// checked out here, as code scanning requires.
type sarifPlaces struct{ top, platform string }

func (p sarifPlaces) uri(file string) string {
	if file == "" { // about the platform as a whole
		file = "."
		if !strings.Contains(p.platform, "://") {
			file, _, _ = strings.Cut(p.platform, "#")
		}
	}
	if strings.Contains(file, "://") || strings.Contains(file, "#") { // a file of another repository
		return fileURI(strings.ReplaceAll(file, "#", "/"), false)
	}
	full, err := filepath.Abs(file)
	if err != nil {
		return fileURI(file, false)
	}
	if rel, err := filepath.Rel(p.top, full); err == nil && filepath.IsLocal(rel) {
		return fileURI(filepath.ToSlash(rel), false)
	}
	return fileURI(filepath.ToSlash(full), true)
}

func fileURI(path string, absolute bool) string {
	if scheme, rest, ok := strings.Cut(path, "://"); ok {
		return fmt.Sprintf("%s://%s", scheme, (&url.URL{Path: rest}).EscapedPath())
	}
	u := url.URL{Path: path}
	if absolute {
		u.Scheme = "file"
	}
	return u.String()
}

// repositoryTop returns the top of the work tree around the working directory, or else that directory.
func repositoryTop() string {
	here, err := os.Getwd()
	if err != nil {
		return ""
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return here
		}
	}
}
