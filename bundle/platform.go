package bundle

import (
	"fmt"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// MaxPlatforms bounds Release.Platforms.
const MaxPlatforms = 16

var platformPattern = lazyregexp.New(`^[a-z0-9]{1,32}/[a-z0-9_]{1,32}(/[a-z0-9.]{1,32})?$`)

// CheckPlatform returns an error unless s is OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, as OCI writes platforms.
func CheckPlatform(s string) error {
	if !platformPattern.MatchString(s) {
		return fmt.Errorf("%.100q is not OS/ARCHITECTURE, such as linux/arm64", s)
	}
	return nil
}
