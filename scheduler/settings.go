package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Settings are the annotations below wherry.dev/ that the agent follows for one assignment. The zero value stands for the
// agent's defaults.
type Settings struct {
	// Delivery is [Embedded] if the bundle contains what the target's manifests name.
	Delivery string
	// Carry is "images" or "all" if agents bring these artifacts to their stores before they apply the assignment.
	Carry string
	// ChartValues is the key of the platform configuration with the values of an embedded chart; empty for none.
	ChartValues string
	// Drift is "report" if drift is reported and not corrected.
	Drift string
	// OnFailure is "hold" if a failed release is not rolled back.
	OnFailure string
	// OnRemove is "orphan" if the applied objects stay when the assignment is removed.
	OnRemove string
	// Health lists conditions as package manifests has them, in the order in which they were written.
	Health []string
	// RestartOnConfig is true if workloads restart when their configuration changes.
	RestartOnConfig bool
	// Wave orders assignments; lower ones come first.
	Wave int
	// DependsOn names the assignments of the same cluster type that this one waits for, sorted.
	DependsOn []string
	// SiteValues names the site values that the assignment uses, sorted.
	SiteValues []string
}

// Embedded is a value of Settings.Delivery.
const Embedded = "embedded"

const (
	// maxDependencies bounds the list of one workload, since each entry is looked up.
	maxDependencies = 256
	// maxHealthConditions bounds the conditions of one assignment, since agents check each of them.
	maxHealthConditions = 32
	// maxHealthBytes bounds them together: an agent refuses a list of assignments with a line above 1 MiB.
	maxHealthBytes = 16 << 10
)

// settings reads the annotations in effect for an assignment, except for its dependencies.
func settings(ct *kinds.ClusterType, t *target) (s Settings, err error) {
	if s.Delivery, err = choose(ct, t, "delivery"); err != nil {
		return s, err
	}
	if a, ok := kinds.AnnotationFor(ct, &t.Target, "chart-values"); ok {
		s.ChartValues = strings.TrimSpace(a.Value)
	}
	if s.Carry, err = choose(ct, t, "carry"); err != nil {
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
	if a, ok := kinds.AnnotationFor(ct, &t.Target, "health"); ok {
		if s.Health, err = healthConditions(a); err != nil {
			return s, err
		}
	}
	if a, ok := kinds.AnnotationFor(ct, &t.Target, "wave"); ok {
		wave, err := strconv.ParseInt(a.Value, 10, 32)
		if err != nil {
			return s, a.Mistake("write one such as 0, 1 or -1", "%q is not a whole number", a.Value)
		}
		s.Wave = int(wave)
	}
	if _, err := platformsOf(ct); err != nil {
		return s, err
	}
	return s, checkPin(ct)
}

// choose returns the value of an annotation with a fixed set of values; empty for the default.
func choose(ct *kinds.ClusterType, t *target, name string) (string, error) {
	a, ok := kinds.AnnotationFor(ct, &t.Target, name)
	if !ok {
		return "", nil
	}
	switch allowed := kinds.KnownAnnotations[name].Values; {
	case !slices.Contains(allowed, a.Value):
		return "", a.Mistake(hintOf(a.Value, allowed), "unknown value %q", a.Value)
	case a.Value == allowed[0]:
		return "", nil
	}
	return a.Value, nil
}

// AnnotationMistakes returns an error for each annotation of an object, below wherry.dev/, that has a value which its fixed set
// lacks. Rendering finds the same for what is assigned.
func AnnotationMistakes(o *kinds.Common) []finding.Finding {
	names, _ := kinds.AnnotationsOf(o.Kind)
	var found []finding.Finding
	for _, key := range sortedKeys(o.Metadata.Annotations) {
		_, name, ours := strings.Cut(key, kinds.AnnotationPrefix)
		allowed := kinds.KnownAnnotations[name].Values
		if v := o.Metadata.Annotations[key]; ours && slices.Contains(names, name) && len(allowed) > 0 && !slices.Contains(allowed, v.Value) {
			found = append(found, finding.New(finding.CodeAnnotationValue, o.Position(v.Line), hintOf(v.Value, allowed), "annotation %s: unknown value %q", key, v.Value))
		}
	}
	return found
}

// ValidityAnnotation is the annotation of a ClusterType with the validity of its releases; see ParseValidity.
const ValidityAnnotation = kinds.AnnotationPrefix + "valid-for"

// PinCommit is the value of PinAnnotation.
const PinCommit = "commit"

// PinAnnotation is the annotation of a ClusterType by which the branches and tags in its assignments are
// resolved before publishing.
const PinAnnotation = kinds.AnnotationPrefix + "pin"

func checkPin(ct *kinds.ClusterType) error {
	v, ok := ct.Metadata.Annotations[PinAnnotation]
	if !ok || v.Value == PinCommit {
		return nil
	}
	return finding.Errorf(finding.CodeAnnotationValue, ct.Position(v.Line), hintOf(v.Value, []string{PinCommit}), "annotation %s: unknown value %q", PinAnnotation, v.Value)
}

// PlatformsAnnotation is the annotation of a ClusterType with the platforms of its clusters; see ParsePlatforms.
const PlatformsAnnotation = kinds.AnnotationPrefix + "platforms"

// ParsePlatforms reads the value of PlatformsAnnotation: OS/ARCHITECTURE, separated by commas. The result is sorted, and nil for an
// empty value.
func ParsePlatforms(value string) (list []string, err error) {
	if value == "" {
		return nil, nil
	}
	for name := range strings.SplitSeq(value, ",") {
		if err := bundle.CheckPlatform(name); err != nil {
			return nil, err
		}
		list = append(list, name)
	}
	slices.Sort(list)
	if list = slices.Compact(list); len(list) > bundle.MaxPlatforms {
		return nil, fmt.Errorf("%d platforms: at most %d are allowed", len(list), bundle.MaxPlatforms)
	}
	return list, nil
}

func platformsOf(ct *kinds.ClusterType) ([]string, error) {
	v := ct.Metadata.Annotations[PlatformsAnnotation]
	list, err := ParsePlatforms(v.Value)
	if err != nil {
		return nil, finding.Errorf(finding.CodeAnnotationValue, ct.Position(v.Line), "give such as linux/amd64,linux/arm64", "annotation %s: %v", PlatformsAnnotation, err)
	}
	return list, nil
}

// hintOf returns a hint for a value that is not allowed.
func hintOf(value string, allowed []string) string {
	if hint := finding.DidYouMean(value, allowed); hint != "" && len(allowed) > 2 {
		return hint
	}
	if len(allowed) == 1 {
		return "known: " + allowed[0]
	}
	return "known: " + strings.Join(allowed, ", ")
}

// healthConditions reads one condition to a line; see manifests.ParseHealth.
func healthConditions(a kinds.Annotation) ([]string, error) {
	const form = "write .status.phase == Running or GitRepo: .status.readyClusters == 1, one condition to a line"
	if len(a.Value) > maxHealthBytes {
		return nil, a.Mistake("", "it has %d bytes, at most %d are permitted", len(a.Value), maxHealthBytes)
	}
	var conditions []string
	for line := range strings.Lines(a.Value) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		c, err := manifests.ParseHealth(line)
		if err != nil {
			return nil, a.Mistake(form, "%v", err)
		}
		conditions = append(conditions, c.String())
	}
	if len(conditions) == 0 || len(conditions) > maxHealthConditions {
		return nil, a.Mistake(form, "it has %d conditions, and there must be 1 to %d", len(conditions), maxHealthConditions)
	}
	return conditions, nil
}

// ParseValidity parses the value of wherry.dev/valid-for, a duration of at least a minute.
func ParseValidity(s string) (time.Duration, error) {
	d, err := duration.Parse(s)
	if err == nil && d < time.Minute {
		err = fmt.Errorf("%q is too short: it must be 1m at least", s)
	}
	return d, err
}
