package kinds

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// UnderAnnotation is the annotation of a SchedulingPolicy that selects the cluster types below a place of a hierarchy; see
// [ParseUnder].
const UnderAnnotation = AnnotationPrefix + "under"

// GroupLabel is the label of a ClusterType that UnderAnnotation reads if it names none.
const GroupLabel = "group"

// maxPath bounds a path of groups, in bytes.
const maxPath = 253

// Under is a place of a hierarchy of cluster types. It holds for a type whose label Key has the value Path, or a path that
// begins with the same segments. The zero value holds for every type.
type Under struct {
	Key  string
	Path string
}

// ParseUnder parses PATH or KEY=PATH, such as europe/plant-7 or region=europe/north.
func ParseUnder(s string) (Under, error) {
	key, path, found := strings.Cut(s, "=")
	if !found {
		key, path = GroupLabel, s
	}
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return Under{}, fmt.Errorf("%q is not the name of a label: %s", key, problems[0])
	}
	return Under{key, path}, CheckPath(path)
}

// CheckPath returns an error unless path is one or several names with a slash between them. Names have letters, digits,
// '.', '_' and '-', as values of labels do.
func CheckPath(path string) error {
	if len(path) > maxPath {
		return fmt.Errorf("the path has %d characters, %d are permitted", len(path), maxPath)
	}
	for segment := range strings.SplitSeq(path, "/") {
		switch problems := validation.IsValidLabelValue(segment); {
		case path == "":
			return errors.New("the path is empty")
		case segment == "" && strings.HasPrefix(path, "/"):
			return fmt.Errorf("%q begins with a slash", path)
		case segment == "" && strings.HasSuffix(path, "/"):
			return fmt.Errorf("%q ends with a slash", path)
		case segment == "":
			return fmt.Errorf("%q has an empty name between two slashes", path)
		case len(problems) > 0:
			return fmt.Errorf("%q in %q is not a name: use letters, digits, '.', '_' and '-', with a letter or digit at both ends", segment, path)
		}
	}
	return nil
}

// Ancestors yields the paths that path lies below, the widest first, and path itself as the last.
func Ancestors(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range len(path) {
			if path[i] == '/' && !yield(path[:i]) {
				return
			}
		}
		yield(path)
	}
}

// String returns the term as explanations show it, such as "group under europe/plant-7"; empty for the zero value.
func (u Under) String() string {
	if u == (Under{}) {
		return ""
	}
	return u.Key + " under " + u.Path
}

// HoldsFor reports whether labels place a cluster type there.
func (u Under) HoldsFor(labels map[string]string) bool {
	value, ok := labels[u.Key]
	rest, below := strings.CutPrefix(value, u.Path)
	return u == (Under{}) || ok && below && cmp.Or(rest, "/")[0] == '/'
}
