package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher/diff"
)

// group is what the same assignments have in common. A value in a ConfigMap changes many, and each of
// them may change in other ways too: those are in groups of their own.
type group struct {
	change diff.Change
	names  []string // type/assignment
	lines  []line
}

// line is one statement about a change, with its cause.
type line struct {
	key, old, new string // of a value; old and new are for people
	text          string // of anything else
	because       string
}

// groupsOf groups the lines about the same assignments, removals first, since those cannot be undone.
func groupsOf(d *diff.Difference) []*group {
	var groups []*group
	known := map[string]*group{}
	for _, l := range allLines(d) {
		key := string(l.change) + " " + strings.Join(l.names, " ")
		if g := known[key]; g != nil {
			g.lines = append(g.lines, l.lines...)
			continue
		}
		known[key], groups = l, append(groups, l)
	}
	groups = append(groups, siteGroups(d)...)
	rank := map[diff.Change]int{diff.ChangeRemoved: 0, diff.ChangeAdded: 1, diff.ChangeChanged: 2}
	slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(rank[a.change], rank[b.change]) })
	return groups
}

// allLines lists what there is to say, each once with all assignments that it is said of.
func allLines(d *diff.Difference) []*group {
	type shown struct {
		change diff.Change
		line   line
	}
	var all []*group
	known := map[shown]*group{}
	for _, ct := range d.ClusterTypes {
		for _, a := range ct.Changes {
			for _, l := range linesOf(a) {
				g := known[shown{a.Change, l}]
				if g == nil {
					g = &group{change: a.Change, lines: []line{l}}
					known[shown{a.Change, l}], all = g, append(all, g)
				}
				g.names = append(g.names, ct.ClusterType+"/"+a.Name)
			}
		}
	}
	return all
}

// siteGroups lists the site values that change, each cluster as its own group.
func siteGroups(d *diff.Difference) []*group {
	var groups []*group
	for _, ct := range d.ClusterTypes {
		groups = append(groups, siteChanges(ct.ClusterType, ct.SiteValues)...)
	}
	return groups
}

// siteChanges lists the site values of one cluster type that change; s may be nil.
func siteChanges(clusterType string, s *diff.SitesDifference) []*group {
	if s == nil {
		return nil
	}
	var groups []*group
	if len(s.Declaration) > 0 {
		g := &group{change: diff.ChangeChanged, names: []string{"the site values that " + clusterType + " declares"}}
		for _, k := range s.Declaration {
			g.lines = append(g.lines, line{text: fmt.Sprintf("%s is %s", k.Key, k.Change)})
		}
		groups = append(groups, g)
	}
	for _, c := range s.Clusters {
		g := &group{change: c.Change, names: []string{"the site values of cluster " + c.Cluster + " of " + clusterType}}
		if c.Held {
			g.lines = append(g.lines, line{text: "keeps those of an earlier release, since its own have a mistake"})
		}
		for _, v := range c.Values {
			l := line{key: v.Key, old: show.Value(v.Old), new: show.Value(v.New)}
			if v.Secret && v.Old != nil && v.New != nil {
				l.new = "another " + l.new
			}
			g.lines = append(g.lines, l)
		}
		groups = append(groups, g)
	}
	return groups
}

// siteCosts says of each cluster type with other site values how many clusters fetch them.
func siteCosts(d *diff.Difference) []string {
	var all []string
	for _, ct := range d.ClusterTypes {
		if ct.SiteValues == nil || d.Impact == nil || d.Impact.ClustersFrom == "" {
			continue
		}
		f := d.Impact.Type(ct.ClusterType)
		all = append(all, fmt.Sprintf("the site values of %s differ on %d of %s, and %d fetch the release that has them",
			ct.ClusterType, len(ct.SiteValues.Clusters), show.Count(f.Clusters, "cluster"), f.ChangedClusters))
	}
	return all
}

// lackingRights names the kinds and namespaces that agents with the rights for the last release lack.
func lackingRights(d *diff.Difference) []string {
	var all []string
	for _, ct := range d.ClusterTypes {
		var names []string
		for _, r := range ct.Lacking {
			whole := diff.Right{Kind: "Namespace", Namespace: r.Namespace}
			switch {
			case r == whole:
				names = append(names, "namespace "+r.Namespace)
			case !slices.Contains(ct.Lacking, whole):
				names = append(names, r.String())
			}
		}
		if len(names) > 0 {
			all = append(all, fmt.Sprintf(`agents of %s with --rbac bundle lack permissions, which "wherry install agent" prints: %s`, ct.ClusterType, show.List(names, maxNames)))
		}
	}
	return all
}

func linesOf(a diff.AssignmentDifference) []line {
	var lines []line
	if a.Change != diff.ChangeChanged {
		lines = append(lines, line{because: cmp.Or(a.Why, because(a.Because), "no reason is given")})
	}
	for _, f := range a.Fields {
		lines = append(lines, fieldLine(f))
	}
	for _, r := range a.Refused {
		lines = append(lines, line{text: fmt.Sprintf("%s: %s cannot change: while the cluster has the object, the API server refuses this one, and the assignment fails with nothing of it applied; give the object another name, or delete it there first",
			r.Object, strings.Join(r.Fields, ", "))})
	}
	if len(a.Restarts) > 0 {
		lines = append(lines, line{text: "restarts the pods of " + strings.Join(a.Restarts, ", ")})
	}
	told := map[string]bool{}
	for _, v := range a.Values {
		told[v.File] = true
		line := line{key: v.Key, old: show.Value(v.Old), new: show.Value(v.New), because: because(v.Because)}
		if v.Secret && v.Old != nil && v.New != nil {
			line.new = "another " + line.new
		}
		lines = append(lines, line)
	}
	for _, f := range a.Files {
		if !told[f.Path] {
			lines = append(lines, line{text: fmt.Sprintf("%s is %s", f.Path, f.Change), because: because(f.Because)})
		}
	}
	return lines
}

// fieldLine lists the added and removed names of a list.
func fieldLine(f diff.FieldDifference) line {
	var diff []string
	old, now := namesIn(f.Old), namesIn(f.New)
	for _, name := range old {
		if !slices.Contains(now, name) {
			diff = append(diff, "without "+name)
		}
	}
	for _, name := range now {
		if !slices.Contains(old, name) {
			diff = append(diff, "with "+name)
		}
	}
	if len(diff) > 0 {
		return line{text: f.Field + ": " + strings.Join(diff, ", ")}
	}
	before, after := cmp.Or(string(f.Old), "none"), cmp.Or(string(f.New), "none")
	return line{key: f.Field, old: show.Value(&before), new: show.Value(&after)}
}

// namesIn reads a list of texts, or of objects with names; nil for anything else.
func namesIn(list json.RawMessage) []string {
	var names []string
	var objects []struct{ Name string }
	if json.Unmarshal(list, &names) != nil && json.Unmarshal(list, &objects) == nil {
		names = nil
		for _, o := range objects {
			names = append(names, o.Name)
		}
	}
	return names
}
