package scheduler

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// annotationValues are the values that annotations below wherry.dev/ can have, in words and as a pattern.
var annotationValues = map[string]struct {
	words   string
	pattern *regexp.Regexp
}{
	"adapter":    {strings.Join(adapters, ", "), anyOf(adapters...)},
	"delivery":   {"reference or embedded", anyOf("reference", "embedded")},
	"pin":        {"commit", anyOf("commit")},
	"drift":      {"correct or report", anyOf("correct", "report")},
	"on-failure": {"rollback or hold", anyOf("rollback", "hold")},
	"on-remove":  {"delete or orphan", anyOf("delete", "orphan")},
	"wave":       {"a whole number", regexp.MustCompile(`^-?[0-9]{1,9}$`)},
	"valid-for":  {"days or hours, such as 90d or 36h", regexp.MustCompile(`^([0-9]+d)?([0-9]+(\.[0-9]+)?(h|m|s))*$`)},
}

func anyOf(words ...string) *regexp.Regexp {
	return regexp.MustCompile("^(" + strings.Join(words, "|") + ")$")
}

// annotations adds values that annotations cannot have, and those for targets that do not exist.
func (l *linter) annotations() {
	for _, ct := range sortedValues(l.model.clusterTypes) {
		l.annotationsOf(&ct.object, nil)
	}
	for _, w := range l.model.workloads {
		targets := []string{}
		for _, t := range w.Spec.DeploymentTargets {
			targets = append(targets, t.Name)
		}
		l.annotationsOf(&w.object, targets)
	}
}

func (l *linter) annotationsOf(o *object, targets []string) {
	for _, key := range sortedKeys(o.Metadata.Annotations) {
		before, name, ours := strings.Cut(key, annotationPrefix)
		target, forTarget := strings.CutSuffix(before, ".")
		if !ours || before != "" && !forTarget {
			continue
		}
		if forTarget && targets != nil && !slices.Contains(targets, target) {
			l.add(codeNoSuchTarget, o.at, didYouMean(target, targets), "annotation %s of %s %q: there is no target %q", key, o.Kind, o.Metadata.Name, target)
		}
		value := o.Metadata.Annotations[key].Value
		if permitted, ok := annotationValues[name]; ok && (value == "" || !permitted.pattern.MatchString(value)) {
			l.add(codeAnnotationValue, o.at, "it must be "+permitted.words, "annotation %s of %s %q cannot be %q", key, o.Kind, o.Metadata.Name, value)
		}
		if name == "depends-on" {
			if _, err := parseDependencies(value); err != nil {
				l.add(codeDependsOnSyntax, o.at, "write WORKLOAD or WORKLOAD/TARGET, several with commas", "annotation %s of %s %q: %v", key, o.Kind, o.Metadata.Name, err)
			}
		}
	}
}

// dependency is what wherry.dev/depends-on names: a workload, or one target of it.
type dependency struct{ workload, target string }

func (d dependency) String() string {
	if d.target == "" {
		return d.workload
	}
	return d.workload + "/" + d.target
}

func (d dependency) names(t *target) bool {
	return t.workload.Metadata.Name == d.workload && (d.target == "" || t.spec.Name == d.target)
}

func parseDependencies(s string) ([]dependency, error) {
	var all []dependency
	for word := range strings.SplitSeq(s, ",") {
		var d dependency
		word = strings.TrimSpace(word)
		workload, target, named := strings.Cut(word, "/")
		if d = (dependency{workload, target}); named && target == "" {
			return nil, fmt.Errorf("%q names no target", word)
		}
		for _, name := range []string{d.workload, d.target} {
			if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 && (name != "" || name == d.workload) {
				return nil, fmt.Errorf("%q is no name of a workload", word)
			}
		}
		all = append(all, d)
	}
	return all, nil
}

// annotation is the value of an annotation that holds for a target; its own wins over its workload's.
func (t *target) annotation(name string) string {
	own := t.workload.Metadata.Annotations
	if value, ok := own[t.spec.Name+"."+annotationPrefix+name]; ok {
		return value.Value
	}
	return own[annotationPrefix+name].Value
}

// dependencies adds, for each cluster type, what is to come after something that is not there, after
// itself, or before its wave.
func (l *linter) dependencies() {
	for _, ct := range l.result.ClusterTypes {
		on := l.onType(ct)
		after := map[string][]string{} // names of targets
		for _, t := range on {
			value := t.annotation("depends-on")
			wanted, err := parseDependencies(value)
			if value == "" || err != nil {
				continue
			}
			for _, d := range wanted {
				l.dependency(ct.Name, t, d, on, after)
			}
		}
		l.cycles(ct.Name, on, after)
	}
}

// dependency looks for what d names among the targets of a cluster type.
func (l *linter) dependency(clusterType string, t *target, d dependency, on []*target, after map[string][]string) {
	found := false
	for _, other := range on {
		if !d.names(other) || other == t && d.target == "" {
			continue
		}
		found = true
		after[t.name] = append(after[t.name], other.name)
		if own, late := wave(t), wave(other); late > own {
			l.addFor(d.String(), clusterType+"/"+t.name, finding(codeDependencyLater, t.workload.at, "give it a wave that is not lower",
				"it depends on %s of wave %d and is itself of wave %d", d, late, own))
		}
	}
	if found {
		return
	}
	var known []string
	for _, w := range l.model.workloads {
		known = append(known, w.Metadata.Name)
	}
	hint := "have a policy assign it too, or take it out of " + annotationPrefix + "depends-on"
	if !slices.Contains(known, d.workload) {
		hint = didYouMean(d.workload, known)
	}
	l.addFor(d.String(), clusterType+"/"+t.name, finding(codeDependencyAbsent, t.workload.at, hint, "it depends on %s, which is not on cluster type %s", d, clusterType))
}

func wave(t *target) int {
	n, err := strconv.Atoi(t.annotation("wave"))
	if err != nil {
		return 0
	}
	return n
}

// cycles adds each circle of targets once, at the first by name.
func (l *linter) cycles(clusterType string, on []*target, after map[string][]string) {
	done := map[string]bool{}
	for _, t := range on {
		if path := circle(after, []string{t.name}, done); path != nil {
			l.addFor(strings.Join(path, " "), clusterType+"/"+path[0], finding(codeDependencyCycle, l.target(path[0]).workload.at, "take one of them out of "+annotationPrefix+"depends-on",
				"it depends on itself: %s", strings.Join(path, " → ")))
		}
	}
}

func (l *linter) target(name string) *target {
	i := slices.IndexFunc(l.targets, func(t *target) bool { return t.name == name })
	return l.targets[i]
}

// circle follows the last of path until one comes up again. Where it has been before is in done.
func circle(after map[string][]string, path []string, done map[string]bool) []string {
	name := path[len(path)-1]
	if done[name] {
		return nil
	}
	for _, next := range after[name] {
		if i := slices.Index(path, next); i >= 0 {
			done[name] = true
			return append(slices.Clone(path[i:]), next)
		}
		if found := circle(after, append(slices.Clone(path), next), done); found != nil {
			done[name] = true
			return found
		}
	}
	done[name] = true
	return nil
}
