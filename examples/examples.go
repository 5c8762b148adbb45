// Package examples holds platforms that run as they are, for reading, for trying things on and for tests.
package examples

import "embed"

// FS holds every example in a folder of its own. In it are the folders main, workloads/<registration>
// and one for each environment. What people make beside them, such as keys, is not in the programs that they build.
//
//go:embed coffee/README.md all:coffee/main all:coffee/dev all:coffee/prod all:coffee/workloads
//go:embed namespaces/README.md namespaces/cluster-role.yaml all:namespaces/main all:namespaces/dev all:namespaces/workloads
var FS embed.FS

// Demo is the example that `wherry demo` shows.
const Demo = "coffee"

// DemoEnvironments lists the environments of Demo in the order of promotion.
func DemoEnvironments() []string { return []string{"dev", "prod"} }
