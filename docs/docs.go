// Package docs holds the pages that commands quote: "wherry explain REASON" answers from the tables in them, so that
// there is one text about each reason, and "wherry help TOPIC" prints one.
package docs

import "embed"

// Adapters is adapters.md, with the reasons of every adapter.
//
//go:embed adapters.md
var Adapters string

// Operations is operations.md, with the reasons of the agent and of the assignments.
//
//go:embed operations.md
var Operations string

// Hub is hub.md, with the reasons of the hub.
//
//go:embed hub.md
var Hub string

// Publish is publish.md, with the reasons for which a publisher holds assignments.
//
//go:embed publish.md
var Publish string

// AirGap is air-gap.md, with what an import says.
//
//go:embed air-gap.md
var AirGap string

// Pages has every page for users, and in help those that only "wherry help" shows.
//
//go:embed *.md help/*.md
var Pages embed.FS
