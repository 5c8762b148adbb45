package template

import "github.com/wherry-dev/wherry/scheduler/template/internal/scheduler"

// Data is the data of an assignment for templates.
type Data = scheduler.Data
