package scheduler

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

// LimitEmbedded makes the assignments of a cluster type fail whose registrations exceed a limit with the files that were
// added to them after rendering.
func (m *Model) LimitEmbedded(result *ClusterTypeResult) {
	use := newUsage(m)
	for i := range result.Assignments {
		use.addFiles(&result.Assignments[i])
	}
	use.enforce(result)
}

// Value returns a value of the platform configuration of a pair, as YAML, with its templates evaluated. It returns false if
// the configuration has no such key.
func (e *Explainer) Value(ctx context.Context, clusterType, target, key string) (text string, ok bool, err error) {
	ct, i, err := e.find(clusterType, target)
	if err != nil {
		return "", false, err
	}
	a := newAssigner(e.r, ct)
	in, err := a.input(i)
	if err != nil {
		return "", false, err
	}
	for _, v := range in.config.values {
		if v.key != key {
			continue
		}
		if text = textOf(v.get()); yamlvalue.IsStructured(v.get()) {
			text = yamlvalue.Marshal(v.get())
		}
		text, err = a.evaluator.Value(ctx, text, v.at, &in.Input)
		return text, err == nil, err
	}
	return "", false, nil
}

// CheckEmbedded evaluates the platform's checks for the files that pick chooses, of the assignments of a cluster type with
// embedded delivery. Those that a check refuses become failures; the findings are those of checks that only warn.
func (e *Explainer) CheckEmbedded(result *ClusterTypeResult, pick func(File) bool) []finding.Finding {
	ct, err := e.findType(result.Name)
	if err != nil {
		return nil // it has left the environment, and so has no assignments
	}
	a := newAssigner(e.r, ct)
	if a.checks == nil {
		return nil
	}
	result.Assignments = slices.DeleteFunc(result.Assignments, func(made Assignment) bool {
		if made.Delivery != Embedded {
			return false
		}
		t := e.target(made.Name, made.Registration)
		if t == nil {
			return false
		}
		made.Files = slices.DeleteFunc(slices.Clone(made.Files), func(f File) bool { return !pick(f) })
		warnings, err := a.check(&made, t)
		a.missing.add(ct.Metadata.Name+"/"+made.Name, warnings)
		if err != nil {
			result.Failures = append(result.Failures, newFailure(made.Name, ct.Metadata.Name, because(CheckFailed, err)))
		}
		return err != nil
	})
	slices.SortStableFunc(result.Failures, func(a, b Failure) int { return strings.Compare(a.Name, b.Name) })
	return a.missing.findings()
}

// target returns the deployment target of that full name and registration; nil if there is none.
func (e *Explainer) target(name, registration string) *target {
	i, _ := slices.BinarySearchFunc(e.r.targets, name, func(t *target, name string) int { return strings.Compare(t.Name, name) })
	for ; i < len(e.r.targets) && e.r.targets[i].Name == name; i++ {
		if e.r.targets[i].Workload.Registration == registration {
			return e.r.targets[i]
		}
	}
	return nil
}

// TargetAt returns the position of the deployment target of that full name and registration; the zero Position if there is
// none.
func (e *Explainer) TargetAt(name, registration string) finding.Position {
	if t := e.target(name, registration); t != nil {
		return t.At
	}
	return finding.Position{}
}

// Alone returns a result with the rendered assignment of x and nothing else; nil if it is not rendered.
func (e *Explainer) Alone(x *Explanation) *Result {
	ct, err := e.findType(x.ClusterType.Name)
	if err != nil || x.Rendered == nil {
		return nil
	}
	return &Result{Environment: x.Environment, ClusterTypes: []ClusterTypeResult{{
		Name: ct.Metadata.Name, Labels: ct.Metadata.Labels, Annotations: ownAnnotations(&ct.Common), Assignments: []Assignment{*x.Rendered},
	}}}
}

// ManifestsKeys are the keys of a target's manifests that may hold their location, in this order.
var ManifestsKeys = [...]string{"repo", "url", "repoURL"}

// DirectoryAdapter fetches OCI artifacts that the target's manifests name, and puts them beside the files.
const DirectoryAdapter = "directory"

var ociRepository = lazyregexp.New(`^oci://[^/@\s]+/[^@\s]+$`)

// checkFetched returns an error if the adapter directory cannot fetch a target's manifests. A moved tag must not change
// the files of a host, so it requires a digest, or pinning, which resolves one.
func checkFetched(ct *kinds.ClusterType, t *target, adapter string) error {
	m := t.Spec.Manifests
	if adapter != DirectoryAdapter || m["chart"] != "" {
		return nil
	}
	for _, key := range ManifestsKeys {
		repo, pinned, hasDigest := strings.Cut(m[key], "@")
		isOCI := strings.HasPrefix(repo, "oci://")
		if repo == "" || !isOCI && m["type"] != "oci" {
			continue
		}
		wrong := func(hint, format string, args ...any) error {
			return finding.Errorf(finding.CodeNoDigest, t.At, hint, "%s: "+format, append([]any{t}, args...)...)
		}
		if !ociRepository.MatchString(repo) {
			return wrong("write oci://HOST/REPOSITORY", "manifests.%s: %q names no repository of a registry", key, repo)
		}
		d := cmp.Or(pinned, m["digest"])
		switch {
		case hasDigest || d != "":
			if err := digest.Digest(d).Validate(); err != nil {
				return wrong("write sha256: and 64 hexadecimal digits", "manifests: %q is not a digest", d)
			}
		case ct.Metadata.Annotations[PinAnnotation].Value != PinCommit:
			return wrong("add digest: sha256:…, or "+PinAnnotation+": "+PinCommit+" to the ClusterType",
				"manifests.%s: the adapter directory fetches %s, and only by digest", key, repo)
		}
	}
	return nil
}
