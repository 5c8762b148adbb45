package kubernetes

import (
	"encoding/json"
	"sync"

	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// seen remembers in which state an object was as its manifest says, so that following a rollout costs
// one request for each object and look, and not a dry run as well. It holds a digest for each object.
type seen struct {
	mu sync.Mutex
	at map[object.ObjMetadata]digest.Digest
}

func newSeen() *seen { return &seen{at: map[object.ObjMetadata]digest.Digest{}} }

// same reports whether the live object and its manifest are those that were found to agree.
func (s *seen) same(m manifest, live *unstructured.Unstructured) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known := s.at[m.id()]
	return known && was == agreement(m, live)
}

// agree remembers that the live object is as m says.
func (s *seen) agree(m manifest, live *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at[m.id()] = agreement(m, live)
}

func (s *seen) forget(id object.ObjMetadata) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.at, id)
}

// agreement identifies a manifest and all of a live object that a manifest can determine. An object with
// a generation has a new one when anything but its metadata and status changes, so that its resource
// version, which every status moves, need not count.
func agreement(m manifest, live *unstructured.Unstructured) digest.Digest {
	version := live.GetResourceVersion()
	if live.GetGeneration() > 0 {
		version = ""
	}
	data, _ := json.Marshal([]any{
		m.Object, live.GetUID(), live.GetGeneration(), version,
		live.GetLabels(), live.GetAnnotations(), live.GetFinalizers(), live.GetOwnerReferences(),
	}) // which fails for nothing that came from JSON
	return digest.FromBytes(data)
}
