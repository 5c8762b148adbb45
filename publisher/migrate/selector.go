package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// selector is a label selector of Kubernetes.
type selector struct {
	MatchLabels      map[string]string `yaml:"matchLabels,omitempty"`
	MatchExpressions []requirement     `yaml:"matchExpressions,omitempty"`
}

type requirement struct {
	Key      string   `yaml:"key"`
	Operator string   `yaml:"operator"`
	Values   []string `yaml:"values,omitempty,flow"`
}

// check returns an error for a selector that Kubernetes would refuse.
func (s *selector) check() error {
	for key, value := range s.MatchLabels {
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			return fmt.Errorf("label %s: %q: %s", key, value, problems[0])
		}
	}
	for _, r := range s.MatchExpressions {
		if problems := validation.IsQualifiedName(r.Key); len(problems) > 0 {
			return fmt.Errorf("label %q: %s", r.Key, problems[0])
		}
		switch r.Operator {
		case "In", "NotIn":
			if len(r.Values) == 0 {
				return fmt.Errorf("operator %s needs values", r.Operator)
			}
		case "Exists", "DoesNotExist":
			if len(r.Values) > 0 {
				return fmt.Errorf("operator %s has no values", r.Operator)
			}
		default:
			return fmt.Errorf("unknown operator %q", r.Operator)
		}
		for _, v := range r.Values {
			if problems := validation.IsValidLabelValue(v); len(problems) > 0 {
				return fmt.Errorf("label %s: %q: %s", r.Key, v, problems[0])
			}
		}
	}
	return nil
}

// matches reports whether labels meet a valid selector.
func (s *selector) matches(labels map[string]string) bool {
	for key, want := range s.MatchLabels {
		if got, ok := labels[key]; !ok || got != want {
			return false
		}
	}
	for _, r := range s.MatchExpressions {
		value, ok := labels[r.Key]
		in := ok && slices.Contains(r.Values, value)
		if met := map[string]bool{"In": in, "NotIn": !in, "Exists": ok, "DoesNotExist": !ok}[r.Operator]; !met {
			return false
		}
	}
	return true
}

// keys adds the labels that the selector names.
func (s *selector) keys(all map[string]bool) {
	for key := range s.MatchLabels {
		all[key] = true
	}
	for _, r := range s.MatchExpressions {
		all[r.Key] = true
	}
}

func (s *selector) empty() bool { return len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 }

// and returns a selector that is met where both are.
func (s *selector) and(other *selector) *selector {
	both := &selector{MatchLabels: maps.Clone(s.MatchLabels), MatchExpressions: slices.Clone(s.MatchExpressions)}
	for _, key := range slices.Sorted(maps.Keys(other.MatchLabels)) {
		value := other.MatchLabels[key]
		if mine, ok := both.MatchLabels[key]; ok && mine != value {
			both.MatchExpressions = append(both.MatchExpressions, requirement{key, "In", []string{value}})
			continue
		}
		if both.MatchLabels == nil {
			both.MatchLabels = map[string]string{}
		}
		both.MatchLabels[key] = value
	}
	both.MatchExpressions = append(both.MatchExpressions, other.MatchExpressions...)
	return both
}

// String spells the selector as kubectl does.
func (s *selector) String() string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		parts = append(parts, key+"="+s.MatchLabels[key])
	}
	for _, r := range s.MatchExpressions {
		parts = append(parts, strings.TrimSpace(r.Key+" "+r.Operator+" "+strings.Join(r.Values, "|")))
	}
	return strings.Join(parts, ",")
}
