package freeze

import (
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/agent/window"
	"github.com/wherry-dev/wherry/bundle"
)

// OutsideMaintenance returns the freeze until the next of the windows opens; nil while one is open, and without any.
func OutsideMaintenance(windows []window.Maintenance, now time.Time) *Freeze {
	if len(windows) == 0 || slices.ContainsFunc(windows, func(w window.Maintenance) bool { return w.Open(now) }) {
		return nil
	}
	var texts []string
	opens := windows[0].Opens(now)
	for _, w := range windows {
		if next := w.Opens(now); next.Before(opens) {
			opens = next
		}
		texts = append(texts, w.String())
	}
	message := bundle.Clip("maintenance is at " + strings.Join(texts, ", and at "))
	return &Freeze{State: bundle.Pending, Reason: ReasonOutsideMaintenance, Message: message, Until: opens.UTC()}
}
