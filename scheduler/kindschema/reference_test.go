package kindschema

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// TestTheReferenceOfKindsIsCurrent compares docs/reference/kinds.md with the schemas.
func TestTheReferenceOfKindsIsCurrent(t *testing.T) {
	const page = "../../docs/reference/kinds.md"
	var b strings.Builder
	b.WriteString("# Kinds\n\nEvery field that wherry reads. Made of the schemas by `go test ./scheduler/kindschema -run TestTheReferenceOfKindsIsCurrent -update`. `wherry schema` prints them for editors.\n")
	made := generate(t)
	for _, file := range append(kinds.Names(), "ConfigMap", "wherry") {
		var schema object
		require.NoError(t, json.Unmarshal(made[strings.ToLower(file)+".json"], &schema))
		title := file
		if title == "wherry" {
			title = kinds.SettingsFile
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", title, cell(schema["description"]))
		properties, _ := schema["properties"].(object)
		if version, ok := properties["apiVersion"].(object); ok {
			fmt.Fprintf(&b, "\n`apiVersion: %v`\n", version["const"])
		}
		if rows := fieldRows(schema, ""); len(rows) > 0 {
			b.WriteString("\n| field | | |\n|-|-|-|\n" + strings.Join(rows, ""))
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(b.String()), 0o644))
	}
	has, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(has), "-update writes it anew")
}

// fieldRows are the rows of a table for the fields below a schema, but for those that all kinds share.
func fieldRows(schema object, path string) (rows []string) {
	for _, key := range []string{"properties", "patternProperties"} {
		below, _ := schema[key].(object)
		for _, name := range slices.Sorted(maps.Keys(below)) {
			field, ok := below[name].(object)
			at := path + plainName(name)
			if !ok || path == "" && slices.Contains([]string{"apiVersion", "kind", "status"}, name) ||
				path == "metadata." && !slices.Contains([]string{"annotations", "labels"}, name) {
				continue
			}
			rows = append(rows, fieldOf(field, at)...)
		}
	}
	return rows
}

func fieldOf(field object, at string) []string {
	for _, key := range []string{"items", "additionalProperties"} {
		if of, ok := field[key].(object); ok && (of["properties"] != nil) {
			below := fieldRows(of, at+map[string]string{"items": "[].", "additionalProperties": ".NAME."}[key])
			return append([]string{row(at, field)}, below...)
		}
	}
	below := fieldRows(field, at+".")
	if at == "metadata" || strings.HasSuffix(at, "metadata.annotations") || at == "spec" {
		return below // its fields say all
	}
	return append([]string{row(at, field)}, below...)
}

func row(at string, field object) string {
	what := ""
	if enum, ok := field["enum"].([]any); ok {
		var values []string
		for _, v := range enum {
			values = append(values, fmt.Sprintf("`%v`", v))
		}
		what = strings.Join(values, ", ")
	} else if types, ok := field["type"].([]any); ok {
		what = fmt.Sprint(types[0])
	} else if one, ok := field["type"].(string); ok {
		what = one
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", at, what, cell(field["description"]))
}

// plainName is the name that a pattern of the schema stands for.
func plainName(pattern string) string {
	return strings.NewReplacer(`^.+\.`, "TARGET.", "^", "", "$", "", `\`, "", ".+", "NAME").Replace(pattern)
}

var marks = regexp.MustCompile(`[|<>*_]`)

// cell is text in the cell of a table.
func cell(s any) string {
	if s == nil {
		return ""
	}
	return marks.ReplaceAllString(strings.Join(strings.Fields(fmt.Sprint(s)), " "), `\$0`)
}
