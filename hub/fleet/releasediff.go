package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// ReleaseDiff is what differs between two releases.
type ReleaseDiff struct {
	Before Release `json:"before"`
	After  Release `json:"after"`
	// Same counts the assignments that do not differ.
	Same        int              `json:"same"`
	Assignments []AssignmentDiff `json:"assignments"`
	Artifacts   []ArtifactDiff   `json:"artifacts"`
}

// Total counts the assignments of both releases.
func (d ReleaseDiff) Total() int { return d.Same + len(d.Assignments) }

// AssignmentDiff is an assignment that differs between two releases.
type AssignmentDiff struct {
	Name      string `json:"name"`
	Workspace string `json:"workspace,omitempty"`
	Workload  string `json:"workload"`
	Target    string `json:"target"`
	// PreviousName is its name in the release before, if that has another target of the workload in its place: environments have targets of their own.
	PreviousName string `json:"previousName,omitempty"`
	// Differs lists what does: version, config, content. It is empty if one release lacks the assignment.
	Differs []string `json:"differs,omitempty"`
	// Before and After are absent in a release that lacks the assignment.
	Before *AssignmentContent `json:"before,omitempty"`
	After  *AssignmentContent `json:"after,omitempty"`
}

// AssignmentContent is what an assignment has.
type AssignmentContent struct {
	Version      string        `json:"version,omitempty"`
	ConfigDigest digest.Digest `json:"configDigest,omitempty"`
	Content      digest.Digest `json:"content"`
	Adapter      string        `json:"adapter"`
}

// ArtifactDiff is an image, a chart or another artifact that differs. Before and After are references, with a digest if it is known; empty for
// one that comes, or goes.
type ArtifactDiff struct {
	Type   bundle.ArtifactType `json:"type"`
	Name   string              `json:"name"`
	Before []string            `json:"before,omitempty"`
	After  []string            `json:"after,omitempty"`
}

// DiffReleases returns what differs between two releases, of the same stream or not. The error wraps store.ErrUnknownRelease if the hub lacks what
// one of them has.
func DiffReleases(before, after ReleaseDetail) (ReleaseDiff, error) {
	d := ReleaseDiff{Before: before.Release, After: after.Release, Assignments: []AssignmentDiff{}}
	for _, r := range []ReleaseDetail{before, after} {
		if !r.Known {
			return d, fmt.Errorf("what release %s has: %w: it was never published here", bundle.ReleaseName(r.Number, r.Digest), store.ErrUnknownRelease)
		}
	}
	byName := map[string]*AssignmentDiff{}
	for side, list := range [][]bundle.Assignment{before.Assignments, after.Assignments} {
		for _, a := range list {
			if byName[a.Name] == nil {
				byName[a.Name] = &AssignmentDiff{Name: a.Name, Workspace: a.Workspace, Workload: a.Workload, Target: a.Target}
			}
			has := &AssignmentContent{a.Version, a.ConfigDigest, a.Content, a.Adapter}
			if side == 0 {
				byName[a.Name].Before = has
			} else {
				byName[a.Name].After = has
			}
		}
	}
	pair(byName)
	for _, a := range byName {
		if a.differ() {
			d.Assignments = append(d.Assignments, *a)
		} else {
			d.Same++
		}
	}
	slices.SortFunc(d.Assignments, func(a, b AssignmentDiff) int {
		return cmp.Or(strings.Compare(a.Workspace, b.Workspace), strings.Compare(a.Name, b.Name))
	})
	d.Artifacts = diffArtifacts(before.Artifacts, after.Artifacts)
	return d, nil
}

// pair makes one of two assignments of the same workload, one in the release before alone and one in the release after alone, if it has no others.
func pair(all map[string]*AssignmentDiff) {
	type workload struct{ workspace, workload string }
	alone := map[workload][2][]*AssignmentDiff{}
	for _, a := range all {
		if a.Before != nil && a.After != nil {
			continue
		}
		side := 0
		if a.Before == nil {
			side = 1
		}
		of := workload{a.Workspace, a.Workload}
		sides := alone[of]
		sides[side] = append(sides[side], a)
		alone[of] = sides
	}
	for _, sides := range alone {
		if len(sides[0]) == 1 && len(sides[1]) == 1 {
			was, is := sides[0][0], sides[1][0]
			is.Before, is.PreviousName = was.Before, was.Name
			delete(all, was.Name)
		}
	}
}

// differ reports whether the assignment differs, and notes what does.
func (a *AssignmentDiff) differ() bool {
	if a.Before == nil || a.After == nil {
		return true
	}
	for _, f := range []struct {
		name string
		same bool
	}{
		{ChangedVersion, a.Before.Version == a.After.Version},
		{ChangedConfig, a.Before.ConfigDigest == a.After.ConfigDigest},
		{ChangedContent, a.Before.Content == a.After.Content},
	} {
		if !f.same {
			a.Differs = append(a.Differs, f.name)
		}
	}
	return len(a.Differs) > 0
}

// diffArtifacts returns the artifacts that differ between two lists, by type and name.
func diffArtifacts(before, after []bundle.Artifact) []ArtifactDiff {
	type key struct {
		of   bundle.ArtifactType
		name string
	}
	all := map[key]*ArtifactDiff{}
	for side, list := range [][]bundle.Artifact{before, after} {
		for _, a := range list {
			k := key{a.Type, a.Name}
			if all[k] == nil {
				all[k] = &ArtifactDiff{Type: a.Type, Name: a.Name}
			}
			refs := &all[k].Before
			if side == 1 {
				refs = &all[k].After
			}
			ref := a.Reference
			if a.Digest != "" && !strings.Contains(ref, a.Digest) {
				ref += "@" + a.Digest
			}
			if at, known := slices.BinarySearch(*refs, ref); !known {
				*refs = slices.Insert(*refs, at, ref)
			}
		}
	}
	list := []ArtifactDiff{}
	for _, d := range all {
		if !slices.Equal(d.Before, d.After) {
			list = append(list, *d)
		}
	}
	slices.SortFunc(list, func(a, b ArtifactDiff) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), strings.Compare(a.Name, b.Name))
	})
	return list
}
