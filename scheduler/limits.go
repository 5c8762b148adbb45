package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// The default limits of one registration. A team with hundreds of targets stays far below,
// and ten teams at their limits fit into one bundle (see bundle.MaxFiles and bundle.MaxListBytes).
const (
	// DefaultMaxTargets bounds the deployment targets for one environment.
	DefaultMaxTargets = 2_000
	// DefaultMaxFiles bounds the files of the source, and those in the bundle of one cluster type.
	DefaultMaxFiles = 10_000
	// DefaultMaxBytes bounds the bytes of the source, and those in the bundle of one cluster type.
	DefaultMaxBytes = 32 << 20
)

// Sandbox returns the limits on each chart and kustomization that is rendered, as the Platform has them.
func (m *Model) Sandbox() kinds.Sandbox {
	if m.objects.Platform == nil {
		return kinds.Sandbox{}
	}
	return m.objects.Platform.Spec.Sandbox
}

// checkSandbox returns an error if a limit of the Platform is negative.
func checkSandbox(p *kinds.Platform) error {
	if s := p.Spec.Sandbox; s.Memory < 0 || s.CPUSeconds < 0 || s.CPUSeconds > maxSandboxSeconds {
		return finding.Errorf(finding.CodeType, p.Position(s.Line), "", "spec.sandbox: memory is a number of bytes, and cpuSeconds one from 1 to %d", maxSandboxSeconds)
	}
	return nil
}

// maxSandboxSeconds bounds the processor time of one rendering.
const maxSandboxSeconds = 3600

// limitsOf returns the limits of a registration. The platform itself has none.
func (m *Model) limitsOf(registration string) (_ kinds.Limits, limited bool) {
	l := m.workspaces[m.registrations[registration].Workspace].limits
	return kinds.Limits{
		Targets: cmp.Or(l.Targets, DefaultMaxTargets), Files: cmp.Or(l.Files, DefaultMaxFiles), Bytes: cmp.Or(l.Bytes, DefaultMaxBytes),
	}, registration != ""
}

// exceeded returns the error of a registration that exceeds a limit.
func (m *Model) exceeded(registration, setting string, limit int64, where string) error {
	r := m.registrations[registration]
	what := map[string]string{"targets": "deployment targets", "files": "files", "bytes": "bytes"}[setting]
	return because(LimitExceeded, finding.Errorf(finding.CodeLimit, r.Position,
		fmt.Sprintf("divide it, or raise limits.%s of workspace %q in spec.workspaces of the Platform", setting, r.Workspace),
		"registration %q has more than %d %s %s", registration, limit, what, where))
}

// checkLimits checks the number of a source's deployment targets for the environment.
func (m *Model) checkLimits(registration string, workloads []*kinds.Workload) error {
	l, limited := m.limitsOf(registration)
	if !limited {
		return nil
	}
	n := int64(0)
	for _, w := range workloads {
		for i := range w.Spec.DeploymentTargets {
			if w.Spec.DeploymentTargets[i].Environment == m.environment {
				n++
			}
		}
	}
	if n > l.Targets {
		return m.exceeded(registration, "targets", l.Targets, fmt.Sprintf("for environment %q", m.environment))
	}
	return nil
}

// usage counts the files and bytes of registrations on one cluster type.
type usage struct {
	model *Model
	of    map[string]*used // by registration
}

type used struct {
	files, bytes int64
	err          error // if it exceeds a limit
}

func newUsage(m *Model) usage { return usage{m, map[string]*used{}} }

// exceeded returns the error if a registration has exceeded a limit, after which no more of it is rendered.
func (u usage) exceeded(registration string) error {
	if known := u.of[registration]; known != nil {
		return known.err
	}
	return nil
}

// add counts files and bytes of a registration.
func (u usage) add(registration, clusterType string, files, bytes int64) {
	l, limited := u.model.limitsOf(registration)
	if !limited {
		return
	}
	now := u.of[registration]
	if now == nil {
		now = &used{}
		u.of[registration] = now
	}
	now.files, now.bytes = now.files+files, now.bytes+bytes
	where := fmt.Sprintf("on cluster type %q", clusterType)
	switch {
	case now.err != nil:
	case now.files > l.Files:
		now.err = u.model.exceeded(registration, "files", l.Files, where)
	case now.bytes > l.Bytes:
		now.err = u.model.exceeded(registration, "bytes", l.Bytes, where)
	}
}

// addFiles counts the files of an assignment.
func (u usage) addFiles(a *Assignment) {
	files, bytes := int64(0), int64(0)
	for _, f := range a.Files {
		if len(f.Data) > 0 {
			files, bytes = files+1, bytes+int64(len(f.Data))
		}
	}
	u.add(a.Registration, a.ClusterType, files, bytes)
}

// addLine counts the bytes of an assignment's line in the list of assignments, as far as the team controls them.
func (u usage) addLine(a *Assignment) {
	bytes := 0
	for _, text := range slices.Concat(a.DependsOn, a.Health) {
		bytes += len(text)
	}
	u.add(a.Registration, a.ClusterType, 0, int64(bytes))
}

// enforce makes all assignments fail whose registration exceeds a limit.
func (u usage) enforce(result *ClusterTypeResult) {
	for i := range result.Assignments {
		u.addLine(&result.Assignments[i])
	}
	result.Assignments = slices.DeleteFunc(result.Assignments, func(a Assignment) bool {
		err := u.exceeded(a.Registration)
		if err != nil {
			result.Failures = append(result.Failures, newFailure(a.Name, a.ClusterType, err))
		}
		return err != nil
	})
	slices.SortStableFunc(result.Failures, func(a, b Failure) int { return strings.Compare(a.Name, b.Name) })
}
