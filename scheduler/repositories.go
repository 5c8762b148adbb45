package scheduler

import (
	"fmt"
	"slices"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// CheckRegistration returns an error, with the reason WorkspaceNotAllowed, if the Platform does not allow the registration
// to name its repository. Call it with all bases loaded and before anything is fetched; [Model.Load] refuses the source too.
//
// A workspace with repositories may name these and what lies below them. As soon as one workspace has repositories, each
// registration must name a workspace that the Platform lists, since any other would be a way around the list.
func (m *Model) CheckRegistration(r WorkloadRegistration) error {
	w, listed := m.workspaces[r.Workspace]
	switch {
	case !listed && m.bindsRepositories():
		hint := finding.DidYouMean(r.Workspace, sortedKeys(m.workspaces))
		if hint == "" {
			hint = "list its workspace in spec.workspaces of the Platform"
		}
		message := fmt.Sprintf("workspace %q, which the Platform does not list", r.Workspace)
		if r.Workspace == "" {
			message = "no workspace"
		}
		return notAllowed(r, hint, "registration %q has %s: the Platform binds workspaces to repositories", r.Name, message)
	case !listed || !w.bound:
		return nil
	}
	hint := fmt.Sprintf("correct spec.workload.repo, or add the repository to repositories of workspace %q in the Platform", r.Workspace)
	place, err := parseGitPlace(r.Workload.Repo)
	if err != nil {
		return notAllowed(r, hint, "registration %q: workspace %q may not use its repository: %v", r.Name, r.Workspace, err)
	}
	if !slices.ContainsFunc(w.repositories, func(p gitPlace) bool { return p.holds(place) }) {
		return notAllowed(r, hint, "registration %q: workspace %q may not use repository %s", r.Name, r.Workspace, place)
	}
	return nil
}

// CheckSource returns an error if an assignment of a registration and a workspace may not embed what lies in a git
// repository: the publisher reads it with its own rights. The platform's own assignments, which have no registration, may
// embed everything.
func (m *Model) CheckSource(registration, workspace, repository string) error {
	w := m.workspaces[workspace]
	if registration == "" || !w.bound {
		return nil
	}
	place, err := parseGitPlace(repository)
	if err != nil {
		return fmt.Errorf("workspace %q may not use its repository: %w", workspace, err)
	}
	if !slices.ContainsFunc(w.repositories, func(p gitPlace) bool { return p.holds(place) }) {
		return fmt.Errorf("workspace %q may not use repository %s: add it to repositories of the workspace in the Platform", workspace, place)
	}
	return nil
}

func notAllowed(r WorkloadRegistration, hint, format string, args ...any) error {
	return because(WorkspaceNotAllowed, finding.Errorf(finding.CodeWorkspaceNotAllowed, r.Position, hint, format, args...))
}

// bindsRepositories reports whether any workspace has repositories.
func (m *Model) bindsRepositories() bool {
	for _, w := range m.workspaces {
		if w.bound {
			return true
		}
	}
	return false
}

// placesOf reads the repositories of a workspace. The Platform is refused if one of them has a mistake, see checkTenant.
func placesOf(repositories []string) []gitPlace {
	var places []gitPlace
	for _, r := range repositories {
		if p, err := parseGitPlace(r); err == nil {
			places = append(places, p)
		}
	}
	return places
}
