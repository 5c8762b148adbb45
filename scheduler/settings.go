package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/health"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Settings is what annotations below wherry.dev/ ask of the agent for one assignment. The zero value
// asks for what agents do by themselves.
type Settings struct {
	// Drift is "report" where drift is not to be corrected.
	Drift string
	// OnFailure is "hold" where a failed release is not to be rolled back.
	OnFailure string
	// OnRemove is "orphan" where what was applied stays when the assignment goes.
	OnRemove string
	// Health lists conditions as package health has them, in the order in which they were written.
	Health []string
	// RestartOnConfig is true where workloads are to restart when their configuration changes.
	RestartOnConfig bool
	// Wave orders assignments; lower ones come first.
	Wave int
	// DependsOn names the assignments of the same cluster type that this one waits for, sorted.
	DependsOn []string
}

// choices are the annotations with a fixed set of values. The first of each is the default.
var choices = map[string][]string{
	"delivery":   {"reference", "embedded"},
	"drift":      {"correct", "report"},
	"on-failure": {"rollback", "hold"},
	"on-remove":  {"delete", "orphan"},

	"restart-on-config": {"false", "true"},
}

const (
	// maxDependencies bounds the list of one workload: nobody writes as many, and each is looked up.
	maxDependencies = 256
	// maxHealthConditions bounds how many conditions one assignment brings: agents ask for each.
	maxHealthConditions = 32
	// maxHealthBytes bounds them all: an agent refuses a list of assignments with a line above 1 MiB.
	maxHealthBytes = 16 << 10
)

// annotation is one that counts for an assignment.
type annotation struct {
	object *object // that has it
	key    string
	value  string
	at     finding.Position
}

func (a annotation) mistake(hint, format string, args ...any) error {
	return finding.Errorf(finding.CodeAnnotationValue, a.at, hint, "annotation %s: %s", a.key, fmt.Sprintf(format, args...))
}

func (a annotation) origin() string {
	return fmt.Sprintf("annotation %s on %s %q at %s", a.key, a.object.Kind, a.object.Metadata.Name, a.at)
}

// annotationFor finds the most specific annotation of that name: for the target, for its workload, or
// for the cluster type where it may have it.
func annotationFor(ct *clusterType, t *target, name string) (annotation, bool) {
	places := []annotation{
		{object: &t.workload.object, key: t.spec.Name + "." + annotationPrefix + name},
		{object: &t.workload.object, key: annotationPrefix + name},
	}
	if slices.Contains(clusterTypeAnnotations, name) {
		places = append(places, annotation{object: &ct.object, key: annotationPrefix + name})
	}
	for _, a := range places {
		if text, ok := a.object.Metadata.Annotations[a.key]; ok {
			a.value, a.at = text.Value, a.object.position(text.line)
			return a, true
		}
	}
	return annotation{}, false
}

// settings reads the annotations that count for an assignment, but for what it depends on.
func settings(ct *clusterType, t *target) (s Settings, err error) {
	if _, err := choose(ct, t, "delivery"); err != nil {
		return s, err
	}
	if s.Drift, err = choose(ct, t, "drift"); err != nil {
		return s, err
	}
	if s.OnFailure, err = choose(ct, t, "on-failure"); err != nil {
		return s, err
	}
	if s.OnRemove, err = choose(ct, t, "on-remove"); err != nil {
		return s, err
	}
	restart, err := choose(ct, t, "restart-on-config")
	if err != nil {
		return s, err
	}
	s.RestartOnConfig = restart != ""
	if a, ok := annotationFor(ct, t, "health"); ok {
		if s.Health, err = healthConditions(a); err != nil {
			return s, err
		}
	}
	if a, ok := annotationFor(ct, t, "wave"); ok {
		wave, err := strconv.ParseInt(a.value, 10, 32)
		if err != nil {
			return s, a.mistake("write one such as 0, 1 or -1", "%q is not a whole number", a.value)
		}
		s.Wave = int(wave)
	}
	return s, checkPin(ct)
}

// choose returns the value of an annotation with a fixed set of them, empty for the default.
func choose(ct *clusterType, t *target, name string) (string, error) {
	a, ok := annotationFor(ct, t, name)
	if !ok {
		return "", nil
	}
	switch allowed := choices[name]; {
	case !slices.Contains(allowed, a.value):
		return "", a.mistake(hintOf(a.value, allowed), "unknown value %q", a.value)
	case a.value == "embedded": // to publish it as if it were would leave a site without its manifests
		return "", a.mistake("leave it out: the engine fetches the manifests itself", "bundles cannot carry the manifests yet")
	case a.value == allowed[0]:
		return "", nil
	}
	return a.value, nil
}

// ValidityAnnotation on a ClusterType says how long its releases are valid; see ParseValidity.
const ValidityAnnotation = annotationPrefix + "valid-for"

// PinCommit is the value of PinAnnotation.
const PinCommit = "commit"

// PinAnnotation on a ClusterType asks that the branches and tags which its assignments name are
// resolved before they are published.
const PinAnnotation = annotationPrefix + "pin"

func checkPin(ct *clusterType) error {
	v, ok := ct.Metadata.Annotations[PinAnnotation]
	if !ok || v.Value == PinCommit {
		return nil
	}
	return finding.Errorf("", ct.position(v.line), hintOf(v.Value, []string{PinCommit}), "annotation %s: unknown value %q", PinAnnotation, v.Value)
}

// hintOf is a hint for a value that is none of those allowed.
func hintOf(value string, allowed []string) string {
	if hint := finding.DidYouMean(value, allowed); hint != "" && len(allowed) > 2 {
		return hint
	}
	if len(allowed) == 1 {
		return "known: " + allowed[0]
	}
	return "known: " + strings.Join(allowed, ", ")
}

// healthConditions reads one condition to a line; see package health.
func healthConditions(a annotation) ([]string, error) {
	const form = "write .status.phase == Running or GitRepo: .status.readyClusters == 1, one condition to a line"
	if len(a.value) > maxHealthBytes {
		return nil, a.mistake("", "it has %d bytes, at most %d are permitted", len(a.value), maxHealthBytes)
	}
	var conditions []string
	for line := range strings.Lines(a.value) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		c, err := health.Parse(line)
		if err != nil {
			return nil, a.mistake(form, "%v", err)
		}
		conditions = append(conditions, c.String())
	}
	if len(conditions) == 0 || len(conditions) > maxHealthConditions {
		return nil, a.mistake(form, "it has %d conditions, and there must be 1 to %d", len(conditions), maxHealthConditions)
	}
	return conditions, nil
}

// ParseValidity reads a duration, as wherry.dev/valid-for has it. It must be at least a minute.
func ParseValidity(s string) (time.Duration, error) {
	d, err := duration.Parse(s)
	if err == nil && d < time.Minute {
		err = fmt.Errorf("%q is too short: it must be 1m at least", s)
	}
	return d, err
}
