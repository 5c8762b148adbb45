package fleet

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// The kinds of what a search finds.
const (
	FoundCluster     = "cluster"
	FoundEnvironment = "environment"
	FoundType        = "type"
	FoundWorkspace   = "workspace"
	FoundWorkload    = "workload"
	FoundCommit      = "commit"
	FoundImage       = "image"
	FoundLabel       = "label"
)

// Bounds of a search: MinSearch letters are needed, and MaxFound names are in an answer.
const (
	MinSearch = 2
	MaxFound  = 50
)

// Found is what a search found.
type Found struct {
	ReadAt time.Time `json:"readAt,omitzero"` // see Clusters
	// Results are exact names first, then names that begin with the text, then the others; of those the most frequent first.
	Results []FoundName `json:"results"`
	// More is the number of names that are left out.
	More int `json:"more,omitempty"`
}

// FoundName is a name that something in the fleet has.
type FoundName struct {
	// Kind is cluster, environment, type, workspace, workload, commit, image or label.
	Kind string `json:"kind"`
	// Name is KEY=VALUE for a label.
	Name string `json:"name"`
	// UID is that of a cluster.
	UID string `json:"uid,omitempty"`
	// Workspace is that of a workload.
	Workspace string `json:"workspace,omitempty"`
	// Clusters is the number of clusters that have it now.
	Clusters int `json:"clusters"`
}

// Search implements Answers. Text is looked for in names, whatever the case, and at the beginning of commits.
func (v *View) Search(ctx context.Context, text string) (Found, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	if len(text) < MinSearch {
		return Found{}, invalid("a search needs at least %d letters", MinSearch)
	}
	m, done, err := v.moment(ctx, Query{}, true)
	if err != nil {
		return Found{}, err
	}
	defer done()
	s := search{m: m, text: text, found: map[FoundName]int{}, named: m.test(func(name string) bool { return strings.Contains(strings.ToLower(name), text) })}
	for r := range m.rows() {
		s.row(r)
	}
	if err := s.images(ctx); err != nil {
		return Found{}, err
	}
	return Found{ReadAt: m.readAt, Results: s.best(), More: max(0, len(s.found)-MaxFound)}, nil
}

// search is one search among the clusters of a moment.
type search struct {
	m     *moment
	text  string
	found map[FoundName]int
	named *test
}

// row looks at the names that one cluster has.
func (s *search) row(r *row) {
	if strings.Contains(strings.ToLower(r.name), s.text) || r.uid == s.text {
		s.found[FoundName{Kind: FoundCluster, Name: r.name, UID: r.uid}]++
	}
	for kind, handle := range map[string]uint32{FoundEnvironment: r.environment, FoundType: r.typ} {
		if s.named.has(handle) {
			s.found[FoundName{Kind: kind, Name: s.m.texts[handle]}]++
		}
	}
	for _, l := range r.labels {
		if s.named.has(l.value) {
			s.found[FoundName{Kind: FoundLabel, Name: s.m.texts[l.key] + "=" + s.m.texts[l.value]}]++
		}
	}
	base, environment := s.m.commits(r.observed)
	for _, commit := range []string{base, environment} {
		if len(s.text) >= minBeginning && strings.HasPrefix(commit, s.text) {
			s.found[FoundName{Kind: FoundCommit, Name: commit}]++
		}
	}
	counted := map[FoundName]bool{} // a cluster may have several targets of a workload
	for d := range r.all() {
		k := &s.m.snapshot.kinds[d.kind]
		for _, n := range []struct {
			handle uint32
			name   FoundName
		}{
			{k.workload, FoundName{Kind: FoundWorkload, Name: s.m.texts[k.workload], Workspace: s.m.texts[k.workspace]}},
			{k.workspace, FoundName{Kind: FoundWorkspace, Name: s.m.texts[k.workspace]}},
		} {
			if s.named.has(n.handle) && !counted[n.name] {
				counted[n.name] = true
				s.found[n.name]++
			}
		}
	}
}

// images looks at the images of the releases that run. A view of some workspaces sees only those of its assignments.
func (s *search) images(ctx context.Context) error {
	byRelease := map[uint32][]*row{}
	for r := range s.m.rows() {
		kept := *r
		byRelease[r.observed] = append(byRelease[r.observed], &kept)
	}
	for observed, rows := range byRelease {
		release, err := s.m.view.fleet.contentsOf(ctx, s.m.published, s.m.releases[observed].Digest)
		if err != nil {
			return err
		}
		if release == nil {
			continue
		}
		for i := range release.Artifacts {
			a := &release.Artifacts[i]
			name := strings.TrimPrefix(a.Reference, "oci://")
			if !strings.Contains(strings.ToLower(name), s.text) && !strings.HasPrefix(a.Digest, s.text) && !strings.HasPrefix(strings.TrimPrefix(a.Digest, "sha256:"), s.text) {
				continue
			}
			for _, r := range rows {
				for d := range r.all() {
					if slices.Contains(a.UsedBy, s.m.texts[s.m.snapshot.kinds[d.kind].assignment]) {
						s.found[FoundName{Kind: FoundImage, Name: name}]++
						break
					}
				}
			}
		}
	}
	return nil
}

// best returns the names in the order of Found.Results.
func (s *search) best() []FoundName {
	rank := func(n FoundName) int {
		name := strings.ToLower(n.Name)
		if _, value, isLabel := strings.Cut(name, "="); isLabel && n.Kind == FoundLabel {
			name = value
		}
		switch {
		case name == s.text:
			return 0
		case strings.HasPrefix(name, s.text):
			return 1
		}
		return 2
	}
	all := make([]FoundName, 0, len(s.found))
	for n, clusters := range s.found {
		n.Clusters = clusters
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b FoundName) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.Clusters, a.Clusters), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.UID, b.UID))
	})
	return all[:min(len(all), MaxFound)]
}
