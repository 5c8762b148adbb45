// Package examples holds platforms that run as they are, for reading, for trying things on and for tests.
package examples

import "embed"

// Files holds every example in a folder of its own.
//
//go:embed all:coffee
var Files embed.FS
