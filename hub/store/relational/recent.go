package relational

import "sync"

// recent keeps the clusters that were written last, so that their rows need not be read again. A row that another process has
// changed since has another change than the database, and is not used. Several goroutines may use it.
type recent struct {
	mu   sync.Mutex
	rows map[int64]*clusterRow
	size int // deployments of all
}

// maxRecent bounds the deployments that are kept, about 32 MB of them. They are for clusters that send often, such as those that
// send what they have queued in several requests.
const maxRecent = 32_000

// take returns a cluster, which is then the caller's alone, or nil. The caller puts it back once its changes are committed.
func (r *recent) take(id int64) *clusterRow {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.rows[id]
	if c != nil {
		r.drop(id, c)
	}
	return c
}

func (r *recent) drop(id int64, c *clusterRow) {
	delete(r.rows, id)
	r.size -= len(c.Deployments) + 1
}

// put keeps a cluster whose rows are on disk.
func (r *recent) put(c *clusterRow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows == nil {
		r.rows = map[int64]*clusterRow{}
	}
	if before := r.rows[c.id]; before != nil {
		r.drop(c.id, before)
	}
	r.rows[c.id] = c
	r.size += len(c.Deployments) + 1
	for id, other := range r.rows { // any will do
		if r.size <= maxRecent {
			return
		}
		r.drop(id, other)
	}
}
