package postgres

import _ "embed"

// The steps of the schema. Step n leads to version n. They are numbered on their own, and not as SQLite's.
var (
	//go:embed schema.sql
	schema1 string
	//go:embed schema2.sql
	schema2 string
	//go:embed schema3.sql
	schema3 string
	//go:embed schema4.sql
	schema4 string
)

// schema returns the steps of the schema.
func schema() []string { return []string{schema1, schema2, schema3, schema4} }
