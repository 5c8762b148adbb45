// Package backup is the data that a cluster keeps for its agent: the document, the interface of its store, and the
// agent's note about it in the state file.
//
// Pack encodes a Backup for a Store, and Unpack decodes it. Anybody who can write Secrets may have made it; the agent
// decides which parts it believes.
package backup

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// Store keeps for an agent, in the cluster that it works on, the data that must outlive its machine: the order of
// releases, the trust documents, and the inventory of applied assignments. Its String names it for people.
//
// The agent believes its content only if that is the more careful choice. Errors wrap
// lease.ErrChanged or lease.ErrDenied; all others may pass.
type Store interface {
	fmt.Stringer
	// Load returns the data of the last Save, or nil if there was none.
	Load(ctx context.Context) ([]byte, error)
	// Save replaces the data that Load or Save has seen last. The error wraps lease.ErrChanged if another agent has
	// replaced it meanwhile. Data may have at most MaxBytes.
	Save(ctx context.Context, data []byte) error
}

const (
	// Schema is the number of the document's format.
	Schema = 1
	// MaxBytes is the maximum size of a Secret, less its other fields.
	MaxBytes = 1<<20 - 4<<10
	// maxPlainBytes bounds an unpacked backup: one of 10,000 assignments has some 6 MiB.
	maxPlainBytes = 64 << 20
	// maxUID bounds a uid, in bytes, as its setting does.
	maxUID = 128
)

// Backup is the content of a Store, as gzipped JSON. Equal states give equal bytes except for Generation.
type Backup struct {
	Schema int `json:"schema"`
	// Generation counts the saves, so that the newer of two agents' backups is known.
	Generation int64  `json:"generation"`
	UID        string `json:"uid"`
	// Stream is the agent's stream.
	Stream bundle.Stream        `json:"stream"`
	Orders map[string]Position  `json:"orders,omitempty"` // the highest accepted, by stream
	Floors map[string]time.Time `json:"floors,omitempty"` // by keys of state.Meta; see trust.IsFloor
	// Trust are the envelopes of the trust documents, version 1 first.
	Trust  [][]byte        `json:"trust,omitempty"`
	Paused json.RawMessage `json:"paused,omitempty"`
	// Held is true if a person has rolled back to a release, which only that machine has.
	Held bool `json:"held,omitempty"`
	// Quarantine is the bucket of that name.
	Quarantine map[string]json.RawMessage `json:"quarantine,omitempty"`
	// Inventory lists the assignments of the cluster's engines, by name.
	Inventory []Item `json:"inventory,omitempty"`
	// Partial is true if the inventory had no room.
	Partial bool `json:"partial,omitempty"`
}

// Position is an order without the manifest's digest: a backup is not signed, and a manifest that was accepted before
// has privileges.
type Position struct {
	Epoch    int64     `json:"epoch"`
	Sequence int64     `json:"sequence"`
	IssuedAt time.Time `json:"issuedAt"`
}

// Order returns the position as an order.
func (p Position) Order() bundle.Order {
	return bundle.Order{Epoch: p.Epoch, Sequence: p.Sequence, IssuedAt: p.IssuedAt}
}

// Item has the data of an assignment that its removal needs. It has no digest, since digests do not
// compress.
type Item struct {
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

// Record returns the record of an assignment that another machine has applied: none of it counts as applied here, so
// that it is applied once more.
func (i Item) Record(now time.Time) assignments.Record {
	r := assignments.Record{
		Spec: bundle.Assignment{
			Name: i.Name, Workspace: i.Workspace, Workload: i.Workload, Target: i.Target, Namespace: i.Namespace,
			Adapter: i.Adapter, Wave: i.Wave, DependsOn: i.DependsOn, OnRemove: i.OnRemove,
		},
		Adapter: i.Adapter,
		Reached: assignments.Reached{DependsOn: i.DependsOn},
	}
	r.Item = bundle.Item{Assignment: i.Name, Workspace: i.Workspace, Workload: i.Workload, Target: i.Target, Adapter: i.Adapter}
	return r.Pending("", "", now)
}

// Pack returns the backup encoded for a Store. If it exceeds MaxBytes, Pack leaves the inventory out and partial is true.
func (b Backup) Pack() (data []byte, partial bool, err error) {
	data, err = b.Encode()
	if err != nil || len(data) <= MaxBytes {
		return data, b.Partial, err
	}
	b.Inventory, b.Partial = nil, true
	if data, err = b.Encode(); err == nil && len(data) > MaxBytes {
		err = fmt.Errorf("%w: the backup has %d bytes, at most %d are allowed", lease.ErrDenied, len(data), MaxBytes)
	}
	return data, true, err
}

// Encode returns the complete backup, whatever its size.
func (b Backup) Encode() ([]byte, error) {
	plain, err := json.Marshal(b)
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

// Sum identifies the content of the backup without Generation.
func (b Backup) Sum() (string, error) {
	b.Generation = 0
	body, err := json.Marshal(b)
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:]), err
}

// errUnreadable means that a backup is damaged, or has another schema.
var errUnreadable = errors.New("cannot be read")

// Unpack decodes the output of Pack. The data is untrusted: anybody who can write Secrets may have made it.
func Unpack(data []byte) (*Backup, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errUnreadable, err)
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxPlainBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %v", errUnreadable, err)
	case len(plain) > maxPlainBytes:
		return nil, fmt.Errorf("%w: it has more than %d bytes", errUnreadable, maxPlainBytes)
	}
	var version struct{ Schema int }
	if err := json.Unmarshal(plain, &version); err != nil {
		return nil, fmt.Errorf("%w: %v", errUnreadable, err)
	}
	if version.Schema != Schema {
		return nil, fmt.Errorf("%w: it has schema %d, this version reads %d", errUnreadable, version.Schema, Schema)
	}
	var b Backup
	if err := json.Unmarshal(plain, &b); err != nil {
		return nil, fmt.Errorf("%w: %v", errUnreadable, err)
	}
	return &b, b.check()
}

func (b *Backup) check() error {
	bad := len(b.UID) > maxUID || b.Generation < 0 || int64(len(b.Trust)) > bundle.MaxTrustVersions || slices.ContainsFunc(b.Inventory, func(i Item) bool {
		return i.Name == "" || i.Adapter == ""
	})
	for _, p := range b.Orders {
		bad = bad || p.Epoch < 0 || p.Sequence < 0
	}
	if bad {
		return fmt.Errorf("%w: it holds what no agent writes", errUnreadable)
	}
	return nil
}

// Items returns the inventory by name. A nil Backup has none.
func (b *Backup) Items() map[string]Item {
	if b == nil {
		return nil
	}
	all := make(map[string]Item, len(b.Inventory))
	for _, i := range b.Inventory {
		all[i.Name] = i
	}
	return all
}

// SortedItems returns items sorted by name, as in an inventory.
func SortedItems(all map[string]Item) (items []Item) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		items = append(items, all[name])
	}
	return items
}
