// Package examples holds platforms that run as they are, for reading, for trying things on and for tests.
package examples

import "embed"

// FS holds every example in a folder of its own. In it are the folders main, workloads/<registration>
// and one for each environment.
//
//go:embed all:coffee all:namespaces
var FS embed.FS

// Demo is the example that `wherry demo` shows.
const Demo = "coffee"

// DemoEnvironments lists the environments of Demo in the order of promotion.
func DemoEnvironments() []string { return []string{"dev", "prod"} }
