package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/examples"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// The value of the example that the demo changes.
const (
	changedFile = "dev/configs/dev.yaml"
	oldValue    = "LOG_LEVEL: debug"
	newValue    = "LOG_LEVEL: trace"
)

// maxStreams bounds the streams that get an agent.
const maxStreams = 3

// sample is the platform repository of the demo, and the change of one of its values.
type sample struct {
	sources      platform.Source
	environments []string
	// folder returns the folder of an environment's objects.
	folder func(environment string) string
	// overlay is a folder with one more ConfigMap, which changes a value of the reader's platform without editing
	// that; empty for the example.
	overlay string
	change  func() error
	changed string // a description of the change, for people
	streams []bundle.Stream
}

// offer takes a stream for an agent to follow, up to maxStreams.
func (p *sample) offer(s bundle.Stream) {
	if len(p.streams) < maxStreams {
		p.streams = append(p.streams, s)
	}
}

// readPlatform writes the example, or takes the reader's own platform.
func (s *demonstration) readPlatform(ctx context.Context) error {
	if s.Sources.Platform != "" {
		return s.takeOwn(ctx)
	}
	return s.writeExample()
}

func (s *demonstration) writeExample() error {
	dir := s.path("platform")
	example, err := fs.Sub(examples.FS, examples.Demo)
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, example); err != nil {
		return err
	}
	registrations, err := fs.ReadDir(example, "workloads")
	if err != nil {
		return err
	}
	s.platform = sample{
		sources:      platform.Source{Bases: []string{filepath.Join(dir, "main")}, Workloads: map[string]string{}},
		environments: examples.DemoEnvironments(),
		folder:       func(environment string) string { return filepath.Join(dir, environment) },
		change:       func() error { return replaceIn(filepath.Join(dir, changedFile), oldValue, newValue) },
		changed:      fmt.Sprintf("%s: %q becomes %q", changedFile, oldValue, newValue),
	}
	for _, r := range registrations {
		s.platform.sources.Workloads[r.Name()] = filepath.Join(dir, "workloads", r.Name())
	}
	s.say("platform", "wrote the example with environments %s to %s", strings.Join(s.platform.environments, " and "), dir)
	return nil
}

// replaceIn edits a file as a person would.
func replaceIn(name, old, replacement string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if bytes.Count(data, []byte(old)) != 1 {
		return fmt.Errorf("%s does not hold %q once", name, old)
	}
	return os.WriteFile(name, bytes.Replace(data, []byte(old), []byte(replacement), 1), 0o644)
}

func (s *demonstration) takeOwn(ctx context.Context) error {
	s.platform = sample{
		sources: s.Sources,
		folder:  func(string) string { return s.Sources.Platform },
		overlay: s.path("overlay"),
		change:  func() error { return s.writeOverlay("second") },
		changed: `WHERRY_DEMO, a value beside yours, changes from "first" to "second"`,
	}
	if err := s.writeOverlay("first"); err != nil {
		return err
	}
	nothing := fmt.Errorf("%s: %w in environment %s", s.Sources.Platform, ErrNothingAssigned, strings.Join(s.candidates(), " or "))
	for _, environment := range s.candidates() {
		rendered, _, err := s.render(ctx, environment)
		var unknown *finding.Error
		if errors.As(err, &unknown) && unknown.Code == finding.CodeUnknownEnvironment {
			nothing = fmt.Errorf("%s: %w", s.Sources.Platform, err) // the error lists the environments
			continue
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(rendered.ClusterTypes, func(ct scheduler.ClusterTypeResult) bool { return len(ct.Assignments) > 0 }) {
			s.platform.environments = []string{environment}
			s.say("platform", "reads environment %s of %s", environment, s.Sources.Platform)
			return nil
		}
	}
	return nothing
}

// candidates returns possible names of the environment of the reader's platform: the given one, else those
// that the branch or folder suggests, as in Kalypso's repositories.
func (s *demonstration) candidates() []string {
	if s.Sources.Environment != "" {
		return []string{s.Sources.Environment}
	}
	names := []string{filepath.Base(s.Sources.Platform), "dev"}
	if _, branch, isGit := strings.Cut(s.Sources.Platform, "#"); isGit {
		branch, _, _ = strings.Cut(branch, ":")
		names = []string{branch}
	} else if abs, err := filepath.Abs(s.Sources.Platform); err == nil {
		names[0] = filepath.Base(abs)
	}
	return slices.Compact(names)
}

const overlay = `apiVersion: v1
kind: ConfigMap
metadata:
  name: wherry-demo
  labels:
    platform-config: "true"
data:
  WHERRY_DEMO: %s
`

// writeOverlay writes a ConfigMap that every assignment gets. Nothing else is added to the reader's platform.
func (s *demonstration) writeOverlay(value string) error {
	if err := os.MkdirAll(s.platform.overlay, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.platform.overlay, "wherry-demo.yaml"), fmt.Appendf(nil, overlay, value), 0o644)
}
