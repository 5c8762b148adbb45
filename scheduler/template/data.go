package template

import "github.com/wherry-dev/wherry/scheduler/template/internal/scheduler"

// Data is what templates see of an assignment.
type Data = scheduler.Data
