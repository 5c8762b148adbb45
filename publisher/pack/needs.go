package pack

import (
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/memo"
)

// Needs lists the artifacts that the workloads of rendered assignments need, each once and sorted. Cluster types with the same
// workloads often have the same list, so that whoever reads those of many types compares IDs first.
type Needs struct {
	ID   digest.Digest // empty if there are none
	rows []byte
}

// Each calls do with each artifact and the workload that needs it.
func (n Needs) Each(do func(ledger.Key, ledger.Artifact)) {
	rows, ok := memo.Texts[string](n.rows)
	for ; ok && len(rows) >= needFields; rows = rows[needFields:] {
		do(ledger.Key{Registration: rows[0], Workload: rows[1]}, ledger.Artifact{Type: bundle.ArtifactType(rows[2]), Reference: rows[3], Digest: rows[4], Version: rows[5]})
	}
}

const needFields = 6

// newNeeds returns the needs of assignments. Found are what their files and manifests name. Sources in git are no artifacts of the
// ledger: a target has its folder.
func newNeeds(assignments []scheduler.Assignment, found []bundle.Artifact) Needs {
	of := make(map[string]ledger.Key, len(assignments))
	all := map[[needFields]string]bool{}
	versioned := map[[needFields]string]bool{} // rows without a version that are there with one, too
	add := func(k ledger.Key, kind, reference, digest, version string) {
		row := [needFields]string{k.Registration, k.Workload, kind, reference, digest}
		if version != "" {
			versioned[row] = true
			row[needFields-1] = version
		}
		all[row] = true
	}
	for _, a := range assignments {
		key := ledger.Key{Registration: a.Registration, Workload: a.Workload}
		of[a.Name] = key
		for _, t := range a.Taken {
			add(key, t.Type, t.Reference, t.Digest, t.Version)
		}
	}
	for _, a := range found {
		if a.Type == bundle.ArtifactGit {
			continue
		}
		for _, user := range a.UsedBy {
			if key, ours := of[user]; ours {
				add(key, string(a.Type), a.Reference, a.Digest, "")
			}
		}
	}
	if len(all) == 0 {
		return Needs{}
	}
	sorted := make([][needFields]string, 0, len(all))
	for row := range all {
		if !versioned[row] {
			sorted = append(sorted, row)
		}
	}
	slices.SortFunc(sorted, func(a, b [needFields]string) int { return slices.Compare(a[:], b[:]) })
	var rows []byte
	for _, row := range sorted {
		rows = memo.AppendTexts(rows, row[:]...)
	}
	return Needs{digest.FromBytes(rows), rows}
}

// needsKey is where the rows of needs are kept.
func needsKey(id digest.Digest) string { return "needs-of-" + id.String() }

// keep puts the needs into a cache, unless it has them.
func (n Needs) keep(cache scheduler.Cache) {
	if n.ID != "" && cache.Get(needsKey(n.ID)) == nil {
		cache.Put(needsKey(n.ID), n.rows)
	}
}

// needsBefore returns the needs of that ID; false if the cache lacks them.
func needsBefore(cache scheduler.Cache, id digest.Digest) (Needs, bool) {
	if id == "" {
		return Needs{}, true
	}
	rows := cache.Get(needsKey(id))
	return Needs{id, rows}, digest.FromBytes(rows) == id
}
