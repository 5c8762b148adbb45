package fleet

import (
	"encoding/csv"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// WriteCSV writes rows, a slice of structs or its reflect.Value, as CSV after a line with the names of the columns. The
// columns are the JSON names of the fields, in their order; those of a struct within are named like "observed.digest". Times
// are RFC 3339, several values have spaces between them, and labels are KEY=VALUE. A text that a spreadsheet would take for a
// formula has an apostrophe before it.
func WriteCSV(w io.Writer, rows any) error {
	v, ok := rows.(reflect.Value)
	if !ok {
		v = reflect.ValueOf(rows)
	}
	out := csv.NewWriter(w)
	columns := columnsOf(v.Type().Elem(), "", nil)
	line := make([]string, len(columns))
	for i, c := range columns {
		line[i] = c.name
	}
	if err := out.Write(line); err != nil {
		return err
	}
	for i := range v.Len() {
		for j, c := range columns {
			line[j] = cell(v.Index(i), c.path)
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// column is a field, or one of a struct within.
type column struct {
	name string
	path []int // of indexes
}

func columnsOf(t reflect.Type, prefix string, path []int) (all []column) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		at := append(slices.Clone(path), i)
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			all = append(all, columnsOf(inner, prefix, at)...)
		case inner.Kind() == reflect.Struct && inner != reflect.TypeFor[time.Time]():
			all = append(all, columnsOf(inner, prefix+name+".", at)...)
		default:
			all = append(all, column{prefix + name, at})
		}
	}
	return all
}

// cell returns the text of a field; empty if it, or what it is in, is not there.
func cell(v reflect.Value, path []int) string {
	for _, i := range path {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return ""
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return cellText(v)
}

func cellText(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
		return cellText(v.Elem())
	case reflect.String:
		return notFormula(v.String())
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Int, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Slice:
		var all []string
		for i := range v.Len() {
			all = append(all, strings.TrimPrefix(cellText(v.Index(i)), "'"))
		}
		return notFormula(strings.Join(all, " "))
	case reflect.Map:
		var all []string
		for pairs := v.MapRange(); pairs.Next(); {
			all = append(all, fmt.Sprintf("%v=%v", pairs.Key(), pairs.Value()))
		}
		slices.Sort(all)
		return notFormula(strings.Join(all, " "))
	case reflect.Struct:
		if t, ok := v.Interface().(time.Time); ok {
			return FormatMoment(t)
		}
		var all []string
		for _, c := range columnsOf(v.Type(), "", nil) {
			if text := cell(v, c.path); text != "" {
				all = append(all, c.name+":"+text)
			}
		}
		return strings.Join(all, ",")
	}
	return fmt.Sprint(v)
}

// notFormula returns s so that no spreadsheet runs it.
func notFormula(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
