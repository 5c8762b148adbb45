package promote

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/rollout/content"
)

// Bounds on the statuses of commits of application teams in one look at an environment.
const (
	// arrivedFor is how long a commit that an environment has gets its status.
	arrivedFor = 24 * time.Hour
	// teamsTime is how long the statuses may take. What is not set in time is set by the next look.
	teamsTime = time.Minute
	// forgesAtOnce is how many are set at a time.
	forgesAtOnce = 8
)

// Statuses remembers, for the looks of one process, the statuses of commits of application teams that are set, and the repositories whose
// forge refused one. The zero value is empty.
type Statuses struct {
	mu      sync.Mutex
	set     map[string]forge.Status // by repository, commit and context
	refused map[string]bool         // repositories, of which a warning was given
	pins    map[string]int          // the change requests of pins, by environment and commit; zero for none
}

// teams sets the statuses of the commits of application teams that wait for the environment, or came to it. That it cannot is one warning a
// repository, and keeps nothing else back. No token goes to a host that the platform does not name: teams name repositories, too.
func (v *visit) teams(ctx context.Context) error {
	if v.Content == nil || !v.holdsContent() {
		return nil
	}
	if err := v.at("teams"); err != nil {
		return err
	}
	decision, err := v.Content(ctx, v.target, v.policy)
	if err != nil || decision == nil {
		if err != nil && ctx.Err() == nil {
			v.warn("the statuses of application teams' commits were not set: " + err.Error())
		}
		return ctx.Err()
	}
	within, cancel := context.WithTimeout(ctx, teamsTime)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(forgesAtOnce)
	hosts := v.hosts()
	for _, c := range decision.Commits(v.options.Now.Add(-arrivedFor)) {
		status := forge.Status{Context: "wherry/content/" + v.result.Environment, Description: c.Text(v.result.Environment, v.policy.Below())}
		status.State = map[content.Progress]forge.StatusState{content.KeptOut: forge.Failure, content.Coming: forge.Pending, content.Arrived: forge.Success}[c.Progress]
		key := c.Repo + " " + c.ID + " " + status.Context
		if gitrepo.IsLocal(c.Repo) || !v.Statuses.wants(c.Repo, key, status) {
			continue
		}
		to, err := v.forgeOf(c.Repo, hosts)
		if err != nil {
			v.refuse(c.Repo, err)
			continue
		}
		group.Go(func() error {
			if err := to.SetStatus(within, c.ID, status); err == nil {
				v.Statuses.note(key, status)
			} else if within.Err() == nil {
				v.refuse(c.Repo, err)
			}
			return nil
		})
	}
	_ = group.Wait() // none fails
	return ctx.Err()
}

// hosts lists the hosts that the platform names.
func (v *visit) hosts() (hosts []string) {
	hosts = append(hosts, forge.HostOf(v.Source.Platform), forge.HostOf(v.base.Repo))
	for _, r := range v.target.Model.Registrations() {
		hosts = append(hosts, forge.HostOf(r.Workload.Repo))
	}
	return hosts
}

// forgeOf returns the forge of a repository at one of these hosts.
func (v *visit) forgeOf(repo string, hosts []string) (Requests, error) {
	if host := forge.HostOf(repo); host == "" || !slices.Contains(hosts, host) {
		return nil, errors.New("the platform names no repository at its host, so no token is sent there")
	}
	access := v.Access(repo)
	if access.Forge == nil {
		return nil, access.ForgeErr
	}
	return access.Forge, nil
}

// refuse gives one warning of a repository, and leaves its commits alone from now on.
func (v *visit) refuse(repo string, err error) {
	v.Statuses.mu.Lock()
	defer v.Statuses.mu.Unlock()
	if v.Statuses.refused == nil {
		v.Statuses.refused = map[string]bool{}
	}
	if !v.Statuses.refused[repo] {
		v.Statuses.refused[repo] = true
		v.warn("the commits of " + repo + " get no status: " + err.Error())
	}
}

func (v *visit) warn(text string) { v.result.Warnings = append(v.result.Warnings, oneLine(text)) }

// wants reports whether a status is to be set.
func (s *Statuses) wants(repo, key string, status forge.Status) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.refused[repo] && s.set[key] != status
}

func (s *Statuses) note(key string, status forge.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		s.set = map[string]forge.Status{}
	}
	s.set[key] = status
}
