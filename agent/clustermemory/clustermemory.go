// Package clustermemory keeps an agent's memory in a Secret of its cluster, and the turn of its agents in a
// Lease of the same name.
//
// Begin with Open, and give the agent what Memory and Lease return. Each call is one request, but for a Secret
// in a namespace that does not exist: that is made. Nothing is asked of discovery, and no client of the
// Kubernetes libraries is made, which would cost an idle agent some MiB for two kinds of objects.
package clustermemory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/wherry-dev/wherry/agent/backup"
	"github.com/wherry-dev/wherry/agent/lease"
	"github.com/wherry-dev/wherry/bundle"
)

// Default names of the Secret.
const (
	// DefaultNamespace is the namespace for an agent outside of the cluster.
	DefaultNamespace = "wherry-system"
	// DefaultName is the Secret's name.
	DefaultName = "wherry-agent-memory"
)

const (
	// secretType tells people that the Secret is not one of their own.
	secretType = "wherry.dev/agent-memory"
	dataKey    = "memory"
	// requestTime bounds one request where the configuration has no timeout of its own.
	requestTime = 15 * time.Second
)

// Name names one Secret and one Lease.
type Name = types.NamespacedName

// NameFor is the name for an agent outside of the cluster that is set to follow s. A machine that is set up anew
// with the same configuration finds it again, and agents of other streams have others.
func NameFor(s bundle.Stream) Name {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", s.Platform, s.Environment, s.ClusterType))
	return Name{Namespace: DefaultNamespace, Name: DefaultName + "-" + hex.EncodeToString(sum[:5])}
}

// Store is the place of one agent's memory and Lease.
type Store struct {
	api    *api
	name   Name
	create bool
}

// Open connects to nothing. With create a namespace that does not exist is made. The error is about config.
func Open(config *rest.Config, name Name, create bool) (*Store, error) {
	config = rest.CopyConfig(config)
	config.Timeout = cmp.Or(config.Timeout, requestTime)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	a, err := newAPI(config, client)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	return &Store{api: a, name: name, create: create}, nil
}

// Memory returns the Secret. It is for one agent.
func (s *Store) Memory() backup.Store { return &memory{Store: s} }

// Lease returns the Lease. It is for one agent.
func (s *Store) Lease() lease.Lease { return &leaseStore{s} }

func (s *Store) metadata(version string) metadata {
	return metadata{Namespace: s.name.Namespace, Name: s.name.Name, Labels: labels, ResourceVersion: version}
}

// put creates the object of a path, or updates it where it has a version, and returns it as it is then. Its
// namespace is made where that may be.
func (s *Store) put(ctx context.Context, path, version string, object, result any) error {
	if version != "" {
		return s.api.do(ctx, http.MethodPut, path+"/"+s.name.Name, object, result)
	}
	err := s.api.do(ctx, http.MethodPost, path, object, result)
	if !s.create || !isStatus(err, http.StatusNotFound) {
		return err
	}
	namespace := namespaceObject{kind{"v1", "Namespace"}, metadata{Name: s.name.Namespace, Labels: labels}}
	if err := s.api.do(ctx, http.MethodPost, "/api/v1/namespaces", namespace, nil); err != nil && !isStatus(err, http.StatusConflict) {
		return err
	}
	return s.api.do(ctx, http.MethodPost, path, object, result)
}

type memory struct {
	*Store
	version string // of the Secret that was seen last; empty where there is none
}

func (m *memory) String() string { return fmt.Sprintf("Secret %s/%s", m.name.Namespace, m.name.Name) }

func (m *memory) path() string { return "/api/v1/namespaces/" + m.name.Namespace + "/secrets" }

func (m *memory) Load(ctx context.Context) ([]byte, error) {
	var found secret
	err := m.api.do(ctx, http.MethodGet, m.path()+"/"+m.name.Name, nil, &found)
	if isStatus(err, http.StatusNotFound) {
		m.version = ""
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m, classified(err))
	}
	m.version = found.Metadata.ResourceVersion
	if data := found.Data[dataKey]; data != nil {
		return data, nil
	}
	return []byte{}, nil // somebody else's Secret is not nothing
}

func (m *memory) Save(ctx context.Context, data []byte) error {
	next := secret{kind: kind{"v1", "Secret"}, Metadata: m.metadata(m.version), Type: secretType, Data: map[string][]byte{dataKey: data}}
	var got struct{ Metadata metadata }
	if err := m.put(ctx, m.path(), m.version, next, &got); err != nil {
		return fmt.Errorf("%s: %w", m, classified(err))
	}
	m.version = got.Metadata.ResourceVersion
	return nil
}

type leaseStore struct{ *Store }

func (l *leaseStore) String() string {
	return fmt.Sprintf("Lease %s/%s", l.name.Namespace, l.name.Name)
}

func (l *leaseStore) path() string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + l.name.Namespace + "/leases"
}

func (l *leaseStore) Read(ctx context.Context) (lease.Claim, error) {
	var found leaseObject
	err := l.api.do(ctx, http.MethodGet, l.path()+"/"+l.name.Name, nil, &found)
	if isStatus(err, http.StatusNotFound) {
		return lease.Claim{}, nil
	}
	if err != nil {
		return lease.Claim{}, fmt.Errorf("%s: %w", l, classified(err))
	}
	return found.claim(), nil
}

func (l *leaseStore) Write(ctx context.Context, c lease.Claim) (lease.Claim, error) {
	next := leaseObject{kind: kind{"coordination.k8s.io/v1", "Lease"}, Metadata: l.metadata(c.Version), Spec: leaseSpec{
		Holder: c.Holder, Seconds: int64(c.Duration / time.Second), Transitions: c.Transitions, Acquired: stamp(c.Acquired), Renewed: stamp(c.Renewed),
	}}
	var got leaseObject
	if err := l.put(ctx, l.path(), c.Version, next, &got); err != nil {
		return lease.Claim{}, fmt.Errorf("%s: %w", l, classified(err))
	}
	return got.claim(), nil
}
