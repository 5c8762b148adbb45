package bundle

import "github.com/wherry-dev/wherry/bundle/lazyregexp"

// The bounds of a cluster's identity, in bytes.
const (
	maxClusterUID  = 128
	maxClusterName = 253
)

// The lengths are checked apart: a bound inside a pattern is compiled into as many copies of the repeated part, in each
// start of each program.
var (
	clusterUID  = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._:-]*$`)
	clusterName = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
)

// IsClusterUID reports whether s has the form of a cluster's uid: 1 to 128 letters, digits and . _ : -, of which the first
// is a letter or digit.
func IsClusterUID(s string) bool { return len(s) <= maxClusterUID && clusterUID.MatchString(s) }

// IsClusterName reports whether s has the form of a cluster's name: 1 to 253 letters, digits and . _ -, of which the first
// and the last are letters or digits.
func IsClusterName(s string) bool { return len(s) <= maxClusterName && clusterName.MatchString(s) }
