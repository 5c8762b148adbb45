package template

import "github.com/wherry-dev/wherry/scheduler/template/internal/scheduler"

// Data is the data of an assignment for templates.
type Data = scheduler.Data

// Tenant is what the Platform says about a workspace, and Group one of its groups.
type (
	Tenant = scheduler.Tenant
	Group  = scheduler.Group
)

// WithTenant returns the data of a workspace about which the Platform says t, which may be nil.
func WithTenant(d Data, t *Tenant) Data { return scheduler.WithTenant(d, t) }
