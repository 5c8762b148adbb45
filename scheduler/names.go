package scheduler

import (
	"context"
	"slices"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Released is one assignment of the last release of a cluster type, with the fields that identify the owner of its name.
type Released struct {
	Name, Registration, Workload, Target string
	DependsOn                            []string
}

// releasedNames is the last release of one cluster type, read at its first use.
type releasedNames struct {
	read   func() ([]Released, error) // nil where there is no release
	byName map[string]Released
	err    error // which ends Render
}

func (r *renderer) releasedNames(ctx context.Context, ct *kinds.ClusterType) *releasedNames {
	names := &releasedNames{}
	if r.lastRelease != nil {
		names.read = func() ([]Released, error) { return r.lastRelease(ctx, ct.Metadata.Name) }
	}
	return names
}

// all returns the assignments of the release, by name.
func (n *releasedNames) all() map[string]Released {
	if n.byName == nil && n.err == nil {
		n.byName = map[string]Released{}
		var list []Released
		if n.read != nil {
			list, n.err = n.read()
		}
		for _, a := range list {
			n.byName[a.Name] = a
		}
	}
	return n.byName
}

// namesGiven lists the deployment targets of a cluster type that do not get their names.
type namesGiven struct {
	released *releasedNames
	// lost has the targets that cannot have their names, by position in renderer.targets.
	lost map[int]error
	// taken has those of lost whose name another target keeps.
	taken bitset
}

// share assigns the names of the selected targets of a cluster type. If several targets want a name, it belongs to the
// registration that has it in the last release; if there is none, no target gets it.
func (r *renderer) share(ctx context.Context, ct *kinds.ClusterType, selected bitset) namesGiven {
	n := namesGiven{released: r.releasedNames(ctx, ct), lost: map[int]error{}, taken: newBitset(len(r.targets))}
	var same []int // targets of one name, which are adjacent
	for t := range selected.all {
		if len(same) > 0 && r.targets[same[0]].Name != r.targets[t].Name {
			n.decide(r.targets, same)
			same = same[:0]
		}
		same = append(same, t)
	}
	n.decide(r.targets, same)
	return n
}

// decide gives a name to one of the targets that want it, or to none.
func (n *namesGiven) decide(targets []*target, same []int) {
	if len(same) < 2 {
		return
	}
	owner := n.owner(targets, same)
	for i, t := range same {
		switch {
		case t == owner:
		case owner >= 0:
			o := targets[owner]
			n.taken.add(t)
			n.lost[t] = finding.Errorf(finding.CodeNamesClash, targets[t].At, "give the workload or the target another name",
				"%s cannot be called %q: the last release gave this name to %s at %s", targets[t], o.Name, o, o.At)
		default:
			a, b := targets[same[max(i-1, 0)]], targets[same[max(i, 1)]]
			n.lost[t] = finding.Errorf(finding.CodeNamesClash, b.At, clashHint(a, b), "%s and %s at %s would both be called %q", b, a, a.At, b.Name)
		}
	}
}

// clashHint returns a hint about a name without a known owner.
func clashHint(a, b *target) string {
	if a.Workload.Registration == b.Workload.Registration {
		return "rename one of them"
	}
	return "rename one of them; publish and plan keep the one that the last release has"
}

// owner returns the target that has the name in the last release; -1 if none has, or if its registration now has several
// targets that want it.
func (n *namesGiven) owner(targets []*target, same []int) int {
	was, released := n.released.all()[targets[same[0]].Name]
	if !released {
		return -1
	}
	own := slices.DeleteFunc(slices.Clone(same), func(t int) bool { return targets[t].Workload.Registration != was.Registration })
	if len(own) > 1 {
		own = slices.DeleteFunc(own, func(t int) bool {
			return targets[t].Workload.Metadata.Name != was.Workload || targets[t].Spec.Name != was.Target
		})
	}
	if len(own) != 1 {
		return -1
	}
	return own[0]
}
