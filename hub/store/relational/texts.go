package relational

import (
	"sync"

	"github.com/wherry-dev/wherry/hub/store/timeline"
)

// texts gives equal texts the same memory. The deployments of a fleet have few different ones, a hundred thousand times each.
// Several goroutines may use it; the zero value works.
type texts struct {
	mu  sync.Mutex
	all map[string]string
}

// maxTexts bounds the texts that are remembered, about 10 MB of them. Then it begins anew, which costs memory only.
const maxTexts = 50_000

// share replaces texts by equal ones of before.
func (t *texts) share(all ...*string) {
	for _, s := range all {
		if *s == "" {
			continue
		}
		if known, ok := t.all[*s]; ok {
			*s = known
			continue
		}
		if t.all == nil || len(t.all) >= maxTexts {
			t.all = map[string]string{}
		}
		t.all[*s] = *s
	}
}

// deployment shares the texts of a deployment that others are likely to have too.
func (t *texts) deployment(d *timeline.Deployment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.share(&d.Assignment, &d.Workspace, &d.Application, &d.Workload, &d.Target, &d.Adapter, &d.State, &d.Reason, &d.Version, &d.Config, &d.Content, &d.SiteValues)
}
