// Package docs holds the pages that commands quote: "wherry explain REASON" answers from the tables in them, so that
// there is one text about each reason, and "wherry help TOPIC" prints one.
package docs

import "embed"

// withReasons has the pages with tables of reasons. It is apart from Pages to keep wherry-agent small.
//
//go:embed operations.md engines/*.md hub.md publish.md sites/air-gap.md
var withReasons embed.FS

// Pages has every page, picture and sheet, and in help those that only "wherry help" shows.
//
//go:embed *.md *.svg engines/*.md help/*.md media/*.png media/*.pdf reference/*.md sites/*.md sites/*.svg
var Pages embed.FS
