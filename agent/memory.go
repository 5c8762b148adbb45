package agent

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/lease"
	"github.com/wherry-dev/wherry/bundle"
)

// Memory keeps for an agent, in the cluster that it works on, the data that must outlive its machine: the order of
// releases, the trust documents, and the inventory of applied assignments. Its String names it for people.
//
// The agent believes its content only if that is the more careful choice: see pass.recall. Errors wrap
// lease.ErrChanged or lease.ErrDenied; all others may pass.
type Memory interface {
	fmt.Stringer
	// Load returns the data of the last Save, or nil if there was none.
	Load(ctx context.Context) ([]byte, error)
	// Save replaces the data that Load or Save has seen last. The error wraps lease.ErrChanged if another agent has
	// replaced it meanwhile. Data may have at most MaxMemoryBytes.
	Save(ctx context.Context, data []byte) error
}

const (
	backupSchema = 1
	// MaxMemoryBytes is the maximum size of a Secret, less its other fields.
	MaxMemoryBytes = 1<<20 - 4<<10
	// maxBackupBytes bounds what a memory unpacks to: that of 10,000 assignments has some 6 MiB.
	maxBackupBytes = 64 << 20
	// maxUID is what the setting for it allows as well.
	maxUID = 128
)

// backup is what a Memory holds, as gzipped JSON. Equal states give equal bytes but for Generation.
type backup struct {
	Schema int `json:"schema"`
	// Generation counts the saves, so that the newer of two agents' memories is known.
	Generation int64  `json:"generation"`
	UID        string `json:"uid"`
	// Stream is the agent's stream.
	Stream bundle.Stream        `json:"stream"`
	Orders map[string]position  `json:"orders,omitempty"` // as bucketOrders
	Floors map[string]time.Time `json:"floors,omitempty"` // keys of state.Meta
	// Trust are the envelopes of the trust documents, version 1 first.
	Trust  [][]byte        `json:"trust,omitempty"`
	Paused json.RawMessage `json:"paused,omitempty"`
	// Held is true if a person has rolled back to a release, which only that machine has.
	Held bool `json:"held,omitempty"`
	// Quarantine is the bucket of that name.
	Quarantine map[string]json.RawMessage `json:"quarantine,omitempty"`
	// Inventory lists the assignments of the cluster's engines, by name.
	Inventory []inventoryItem `json:"inventory,omitempty"`
	// Partial is true if the inventory had no room.
	Partial bool `json:"partial,omitempty"`
}

// position is an order without the manifest's digest: a memory is not signed, and a manifest that was accepted before
// has privileges.
type position struct {
	Epoch    int64     `json:"epoch"`
	Sequence int64     `json:"sequence"`
	IssuedAt time.Time `json:"issuedAt"`
}

func (p position) order() bundle.Order {
	return bundle.Order{Epoch: p.Epoch, Sequence: p.Sequence, IssuedAt: p.IssuedAt}
}

// holding is what has to be known of an assignment to take it away. No digest is in it, since digests do not
// compress.
type inventoryItem struct {
	Name      string   `json:"name"`
	Adapter   string   `json:"adapter"`
	Namespace string   `json:"namespace,omitempty"`
	Workspace string   `json:"workspace,omitempty"`
	Workload  string   `json:"workload,omitempty"`
	Target    string   `json:"target,omitempty"`
	Wave      int      `json:"wave,omitempty"`
	DependsOn []string `json:"dependsOn,omitempty"`
	OnRemove  string   `json:"onRemove,omitempty"`
	// Ledgers are the entries of reconcilers, by adapter.
	Ledgers map[string]json.RawMessage `json:"ledgers,omitempty"`
}

// record is the assignment as somebody else has left it: nothing of it counts as applied here, so that it is
// given once more.
func (h inventoryItem) record(now time.Time) assignments.Record {
	r := assignments.Record{
		Spec: bundle.Assignment{
			Name: h.Name, Workspace: h.Workspace, Workload: h.Workload, Target: h.Target, Namespace: h.Namespace,
			Adapter: h.Adapter, Wave: h.Wave, DependsOn: h.DependsOn, OnRemove: h.OnRemove,
		},
		Adapter: h.Adapter,
		Reached: assignments.Reached{DependsOn: h.DependsOn},
	}
	r.Item = bundle.Item{Assignment: h.Name, Workspace: h.Workspace, Workload: h.Workload, Target: h.Target, Adapter: h.Adapter}
	return r.Pending("", "", now)
}

// pack returns the memory's bytes. Where there is no room for all of it, the inventory stays out.
func (m backup) pack() (data []byte, partial bool, err error) {
	data, err = m.zip()
	if err != nil || len(data) <= MaxMemoryBytes {
		return data, m.Partial, err
	}
	m.Inventory, m.Partial = nil, true
	if data, err = m.zip(); err == nil && len(data) > MaxMemoryBytes {
		err = fmt.Errorf("%w: it would have %d bytes, and at most %d can be kept", lease.ErrDenied, len(data), MaxMemoryBytes)
	}
	return data, true, err
}

func (m backup) zip() ([]byte, error) {
	plain, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// body is the memory without its count, to compare.
func (m backup) body() ([]byte, error) {
	m.Generation = 0
	return json.Marshal(m)
}

// errKeepsake means that a memory was not written by an agent that this one understands.
var errKeepsake = errors.New("cannot be read")

// unpackKeepsake reads what pack has written. It is foreign: anybody who may write Secrets may have made it.
func unpackKeepsake(data []byte) (*backup, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errKeepsake, err)
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxBackupBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %v", errKeepsake, err)
	case len(plain) > maxBackupBytes:
		return nil, fmt.Errorf("%w: it has more than %d bytes", errKeepsake, maxBackupBytes)
	}
	var version struct{ Schema int }
	if err := json.Unmarshal(plain, &version); err != nil {
		return nil, fmt.Errorf("%w: %v", errKeepsake, err)
	}
	if version.Schema != backupSchema {
		return nil, fmt.Errorf("%w: it has schema %d, this version reads %d", errKeepsake, version.Schema, backupSchema)
	}
	var m backup
	if err := json.Unmarshal(plain, &m); err != nil {
		return nil, fmt.Errorf("%w: %v", errKeepsake, err)
	}
	return &m, m.check()
}

func (m *backup) check() error {
	bad := len(m.UID) > maxUID || m.Generation < 0 || int64(len(m.Trust)) > bundle.MaxTrustVersions || slices.ContainsFunc(m.Inventory, func(h inventoryItem) bool {
		return h.Name == "" || h.Adapter == ""
	})
	for _, p := range m.Orders {
		bad = bad || p.Epoch < 0 || p.Sequence < 0
	}
	if bad {
		return fmt.Errorf("%w: it holds what no agent writes", errKeepsake)
	}
	return nil
}

// inventory items returns the inventory by name.
func (m *backup) inventory() map[string]inventoryItem {
	if m == nil {
		return nil
	}
	all := make(map[string]inventoryItem, len(m.Inventory))
	for _, h := range m.Inventory {
		all[h.Name] = h
	}
	return all
}

// sortedInventory is how they are kept.
func sortedInventory(all map[string]inventoryItem) (hs []inventoryItem) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		hs = append(hs, all[name])
	}
	return hs
}
