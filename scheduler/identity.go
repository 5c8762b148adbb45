package scheduler

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/scheduler/check"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/memo"
)

// identity is a digest of the input of an assignment.
type identity = memo.ID

// identities makes digests of the inputs of assignments: of each target and layer and schema once, so that
// the identity of an assignment is composed of few parts. Positions are not included, since no cached
// result holds one.
type identities struct {
	common  identity // of what all assignments read
	targets []identity
	layers  []identity
	schemas []identity
}

// newIdentities ignores Options: none of them affects the rendering of an assignment.
func newIdentities(r *renderer) *identities {
	ids := &identities{common: identityOf(r.model.environment)}
	workloads := map[*kinds.Workload]identity{}
	for _, t := range r.targets {
		id, ok := workloads[t.Workload]
		if !ok {
			id = identityOf(t.Workload, r.model.registrations[t.Workload.Registration])
			workloads[t.Workload] = id
		}
		mark := ""
		if r.shield != nil && hasBraces(t) {
			mark = r.shield.Mark()
		}
		ids.targets = append(ids.targets, identityOf(id, t.Name, t.Workspace, t.Spec, t.Labels, t.schemas, mark, r.model.workspaces[t.Workspace].tenant))
	}
	for _, l := range r.composer.layers {
		parts := []any{l.source.Name}
		for _, e := range l.entries {
			parts = append(parts, e.key, e.text)
		}
		ids.layers = append(ids.layers, identityOf(parts...))
	}
	for _, s := range r.schemas {
		ids.schemas = append(ids.schemas, identityOf(s.text))
	}
	return ids
}

// ofType returns the digest of the common input of a cluster type's assignments.
func (ids *identities) ofType(r *renderer, ct *kinds.ClusterType, checks *check.Objects) identity {
	parts := []any{ids.common, ct}
	if checks != nil {
		parts = append(parts, checks.Digest)
	}
	for _, name := range []string{ct.Spec.NamespaceService, ct.Spec.Reconciler, ct.Spec.ConfigType} {
		if t := r.model.objects.Templates[name]; t != nil {
			parts = append(parts, t)
		} else {
			parts = append(parts, nil)
		}
	}
	return identityOf(parts...)
}

// identity returns the identity of the assignment of the i-th target with these layers and schemas.
func (a *assigner) identity(i int, layers, schemas []byte) identity {
	id := append(a.idParts[:0], a.ofType[:]...)
	id = append(id, a.ids.targets[i][:]...)
	for l := range members(layers) {
		id = append(id, a.ids.layers[l][:]...)
	}
	id = append(id, 0)
	for s := range members(schemas) {
		id = append(id, a.ids.schemas[s][:]...)
	}
	a.idParts = id
	return sha256.Sum256(id)
}

// identityOf returns a digest of values with everything that they point to, including unexported fields,
// but without lines and positions.
func identityOf(parts ...any) identity {
	sum := sha256.New()
	h := hasher{to: sum, seen: map[uintptr]uint64{}}
	for _, p := range parts {
		h.value(reflect.ValueOf(p))
	}
	return identity(sum.Sum(nil))
}

type hasher struct {
	to   io.Writer          // never fails
	seen map[uintptr]uint64 // pointers, in the order in which they came up
	buf  []byte
}

func (h *hasher) number(n uint64) {
	h.buf = binary.LittleEndian.AppendUint64(h.buf[:0], n)
	_, _ = h.to.Write(h.buf)
}

func (h *hasher) text(s string) {
	h.number(uint64(len(s)))
	h.buf = append(h.buf[:0], s...)
	_, _ = h.to.Write(h.buf)
}

func (h *hasher) value(v reflect.Value) {
	h.number(uint64(v.Kind()))
	switch v.Kind() {
	case reflect.Invalid: // nil
	case reflect.String:
		h.text(v.String())
	case reflect.Bool:
		h.number(map[bool]uint64{true: 1}[v.Bool()])
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		h.number(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		h.number(v.Uint())
	case reflect.Interface:
		h.value(v.Elem())
	case reflect.Pointer:
		h.pointer(v)
	case reflect.Array, reflect.Slice:
		h.number(uint64(v.Len()))
		for i := range v.Len() {
			h.value(v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		h.number(uint64(len(keys)))
		for _, key := range keys {
			h.value(key)
			h.value(v.MapIndex(key))
		}
	case reflect.Struct:
		h.fields(v)
	default:
		panic("a platform cannot hold a " + v.Type().String())
	}
}

// pointer follows each pointer once: YAML's aliases can make circles.
func (h *hasher) pointer(v reflect.Value) {
	if v.IsNil() {
		h.number(0)
		return
	}
	number, ok := h.seen[v.Pointer()]
	if !ok {
		number = uint64(len(h.seen) + 1)
		h.seen[v.Pointer()] = number
	}
	h.number(number)
	if !ok {
		h.value(v.Elem())
	}
}

// Fields with positions, and fields of nodes that do not affect their value.
var (
	placeTypes  = []reflect.Type{reflect.TypeFor[finding.Position](), reflect.TypeFor[kinds.Line](), reflect.TypeFor[kinds.Column]()}
	nodeRemarks = []string{"Line", "Column", "HeadComment", "LineComment", "FootComment"}
)

func (h *hasher) fields(v reflect.Value) {
	t := v.Type()
	for i := range v.NumField() {
		f := t.Field(i)
		switch {
		case slices.Contains(placeTypes, f.Type):
		case t == reflect.TypeFor[yaml.Node]() && slices.Contains(nodeRemarks, f.Name):
		case f.Type == reflect.TypeFor[[]kinds.DeploymentTarget](): // each is part of its own assignments only
		default:
			h.value(v.Field(i))
		}
	}
}
