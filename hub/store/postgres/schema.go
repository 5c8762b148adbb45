package postgres

import _ "embed"

// schema has the steps of the schema; step n leads to version n. They are numbered on their own, and not as SQLite's. From the first
// release on a change is a step of its own, and what came before stays.
var schema = []string{tables}

//go:embed schema.sql
var tables string
