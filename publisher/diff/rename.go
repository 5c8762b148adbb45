package diff

import (
	"cmp"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
)

const (
	// minAlike is how much of two targets' files must be the same for one to seem the other under a new name.
	minAlike = 0.6
	// maxRenames bounds the pairs that are compared on one cluster type: beyond, it is another platform.
	maxRenames = 10_000
)

// findRenames pairs removed with added assignments, the most similar first, each at most once.
func (c *Comparison) findRenames(clusterType string, added []scheduler.Assignment, removed []bundle.Assignment, old *Tree) error {
	if len(added)*len(removed) > maxRenames {
		return nil
	}
	type pair struct {
		from, to string
		alike    float64
	}
	var pairs []pair
	for _, was := range removed {
		files, err := old.Read(was)
		if err != nil {
			return err
		}
		before := map[string]int{}
		for _, data := range files {
			countLines(before, string(data), was.Name)
		}
		for _, now := range added {
			if !couldBe(was, now) {
				continue
			}
			after := map[string]int{}
			for _, f := range now.Files {
				countLines(after, string(f.Data), now.Name)
			}
			if a := alike(before, after); a >= minAlike {
				pairs = append(pairs, pair{was.Name, now.Name, a})
			}
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.alike, a.alike), cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	from, to := map[string]bool{}, map[string]bool{}
	for _, p := range pairs {
		if !from[p.from] && !to[p.to] {
			from[p.from], to[p.to] = true, true
			c.rename(p.from, p.to, clusterType)
		}
	}
	return nil
}

// couldBe is true where one side of the name has stayed: the workload's, or the target's in one team.
func couldBe(was bundle.Assignment, now scheduler.Assignment) bool {
	if was.Workload == "" { // of a rendered folder
		return strings.HasPrefix(was.Name, now.Workload+"-") || strings.HasSuffix(was.Name, "-"+now.Target)
	}
	return was.Workload == now.Workload || was.Target == now.Target && was.Workspace == now.Workspace
}

// countLines counts the lines of a text, in which name may stand for the target.
func countLines(count map[string]int, text, name string) {
	for line := range strings.Lines(strings.ReplaceAll(text, name, "\x00")) {
		if line = strings.TrimSpace(line); line != "" {
			count[line]++
		}
	}
}

// alike is the share of lines that two texts have in common: 0 for none, 1 for all.
func alike(a, b map[string]int) float64 {
	same, all := 0, 0
	for line, n := range a {
		same, all = same+min(n, b[line]), all+max(n, b[line])
	}
	for line, n := range b {
		if a[line] == 0 {
			all += n
		}
	}
	if all == 0 {
		return 0
	}
	return float64(same) / float64(all)
}

func (c *Comparison) rename(from, to, clusterType string) {
	for i := range c.Done.Renames {
		if r := &c.Done.Renames[i]; r.From == from && r.To == to {
			r.ClusterTypes = append(r.ClusterTypes, clusterType)
			return
		}
	}
	c.Done.Renames = append(c.Done.Renames, Rename{From: from, To: to, ClusterTypes: []string{clusterType}})
}
