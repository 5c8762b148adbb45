package scheduler

import (
	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/scheduler/memo"
)

// Cache keeps rendered assignments for the next time. Entries may vanish at any time and may come from another process. An
// entry that Get returns must be complete, as it was put.
//
// There is one entry for each cluster type. It has the files of each assignment by the assignment's identity: a digest of
// everything that rendering reads.
type Cache = memo.Cache

// pack returns what rendering adds to the outline of an assignment.
func (a *Assignment) pack() []byte {
	data := memo.AppendTexts(nil, a.Adapter, string(a.ConfigDigest))
	for _, f := range a.Files {
		data = memo.AppendTexts(memo.AppendTexts(data, f.Path), f.Data)
	}
	return data
}

// unpack fills in what pack returned. It returns false for anything else.
func (a *Assignment) unpack(data []byte) bool {
	parts, ok := memo.Texts[[]byte](data)
	if !ok || len(parts) < 2 || len(parts)%2 != 0 {
		return false
	}
	a.Adapter, a.ConfigDigest, a.Files = string(parts[0]), digest.Digest(parts[1]), make([]File, len(parts)/2-1)
	for i := range a.Files {
		a.Files[i] = File{Path: string(parts[2*i+2]), Data: parts[2*i+3]}
	}
	return true
}
