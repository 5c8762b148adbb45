// Package access decides who may do what at a hub.
//
// Begin with Guard: its Require puts a permission before a handler. It asks its Sources who sends a request, such as Tokens,
// and the handler finds the Identity with From. Sessions is the Source for people who have signed in with another system.
//
// A Role is a set of permissions, and a Scope a part of the fleet. The guard enforces the permission. The scope is enforced by
// the handlers, which pass Identity.Scope to what they read, and ask Scope.HasCluster before they write.
//
// A token that was revoked, in whatever process of the same database, is refused from the next request on, and a request that is
// being answered ends within seconds: the database is asked each time. While it is away, Memory knows the tokens, for reading.
package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
)

// Role is a set of permissions.
type Role string

// The roles.
const (
	Viewer    Role = "viewer"
	Operator  Role = "operator"
	Publisher Role = "publisher"
	Approver  Role = "approver"
	Auditor   Role = "auditor"
	Metrics   Role = "metrics"
	Admin     Role = "admin"
)

// Roles returns all roles. Metrics reads nothing of the fleet but counts; the others include Viewer.
func Roles() []Role { return []Role{Viewer, Operator, Publisher, Approver, Auditor, Metrics, Admin} }

// Permission is what a route needs.
type Permission string

// The permissions.
const (
	// Open routes need no token: their requests are signed, or their answers tell nothing of the fleet.
	Open Permission = "open"
	// Login routes need a valid token of any role.
	Login Permission = "login"
	// Read routes answer with what is in the scope of whoever asks.
	Read Permission = "read"
	// ReadWhole routes answer with what cannot be divided into workspaces, such as signed reports. A scope with workspaces
	// forbids them.
	ReadWhole Permission = "read-whole"
	// Operate routes change clusters and enrollment tokens.
	Operate Permission = "operate"
	// Publish routes take releases.
	Publish Permission = "publish"
	// Approve routes decide at gates.
	Approve Permission = "approve"
	// Audit routes show the audit log, and who has access tokens.
	Audit Permission = "audit"
	// Measure routes show metrics.
	Measure Permission = "measure"
	// Administer routes make and revoke access tokens.
	Administer Permission = "administer"
)

// Permissions returns all permissions.
func Permissions() []Permission {
	return []Permission{Open, Login, Read, ReadWhole, Operate, Publish, Approve, Audit, Measure, Administer}
}

// reads reports whether the routes change nothing.
func (p Permission) reads() bool {
	return slices.Contains([]Permission{Open, Login, Read, ReadWhole, Audit, Measure}, p)
}

// grants reports whether the role has the permission.
func (r Role) grants(p Permission) bool {
	switch p {
	case Open:
		return true
	case Login:
		return slices.Contains(Roles(), r)
	case Read, ReadWhole:
		return slices.Contains(Roles(), r) && r != Metrics
	case Operate:
		return r == Operator || r == Admin
	case Publish:
		return r == Publisher || r == Admin
	case Approve:
		return r == Approver || r == Admin
	case Audit:
		return r == Auditor || r == Admin
	case Measure:
		return r == Metrics || r == Admin
	case Administer:
		return r == Admin
	}
	return false
}

// whole reports whether the role is for the whole fleet alone.
func (r Role) whole() bool { return r == Auditor || r == Metrics || r == Admin }

// Identity is who sends a request.
type Identity struct {
	// Name is as the audit log shows it. ID is that of the token or the session; empty without one.
	Name string
	ID   string
	// Session is true for a person who has signed in; see Sessions.
	Session bool
	Role    Role
	Scope
	// ExpiresAt is zero if it does not expire.
	ExpiresAt time.Time
}

// May reports whether the identity has the permission. What it may do it with is for its Scope.
func (i Identity) May(p Permission) bool {
	if p == ReadWhole && len(i.Workspaces) > 0 || i.Role.whole() && !i.Whole() {
		return false
	}
	return i.Role.grants(p)
}

// Actor returns who an audit entry names.
func (i Identity) Actor() string {
	if i.ID == "" {
		return i.Name
	}
	return fmt.Sprintf("%s (%s)", i.Name, i.ID)
}

// Local is the actor of commands on the hub's folder.
const Local = "local"

type identityKey struct{}

// With returns a context in which From finds the identity.
func With(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, i)
}

// From returns the identity of a request that a Guard has let in. Without one, as in a command on the hub's folder, it
// returns false.
func From(ctx context.Context) (Identity, bool) {
	i, ok := ctx.Value(identityKey{}).(Identity)
	return i, ok
}

// ActorOf returns the actor of the context's identity; Local without one.
func ActorOf(ctx context.Context) string {
	if i, ok := From(ctx); ok {
		return i.Actor()
	}
	return Local
}

// ScopeOf returns the scope of the context's identity; the whole fleet without one, as for commands on the hub's folder.
func ScopeOf(ctx context.Context) Scope {
	i, _ := From(ctx)
	return i.Scope
}

// ParseRole returns the role of that name. The error wraps store.ErrInvalid.
func ParseRole(s string) (Role, error) {
	if slices.Contains(Roles(), Role(s)) {
		return Role(s), nil
	}
	var known []string
	for _, r := range Roles() {
		known = append(known, string(r))
	}
	return "", fmt.Errorf("role %q: %w: known are %s", store.Clip(s), store.ErrInvalid, strings.Join(known, ", "))
}
