package metrics

import (
	"os"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
)

// measureEvery spares the disk, which is walked.
const measureEvery = 5 * time.Minute

// Disk measures what an agent has on disk. The zero value is ready.
type Disk struct {
	mu    sync.Mutex
	at    time.Time
	store content.Status
}

// Measure returns what db's folder has of releases, which may be five minutes old at now, and the bytes of the state file.
func (d *Disk) Measure(db *state.DB, now time.Time) (store content.Status, file int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || now.Sub(d.at) >= measureEvery {
		if store, err := content.ReadStatus(db.Dir()); err == nil {
			d.store = store
		}
		d.at = now
	}
	if info, err := os.Stat(db.Path()); err == nil {
		file = info.Size()
	}
	return d.store, file
}
