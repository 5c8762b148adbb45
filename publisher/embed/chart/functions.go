package chart

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/Masterminds/sprig/v3"
	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

// sprigFunctions are those of sprig, for functions here that are made of them.
var sprigFunctions = sprig.GenericFuncMap()

// pureFunctions are those that Helm's templates have, without those that a run makes: include, tpl and the impure ones. What
// Helm leaves to chance, such as the order of keys, is sorted.
func pureFunctions() template.FuncMap {
	all := template.FuncMap(sprig.GenericFuncMap())
	delete(all, "env") // as Helm does
	delete(all, "expandenv")
	maps.Copy(all, template.FuncMap{
		"toToml": toTOML, "fromToml": fromTOML, "toYaml": toYAML, "toYamlPretty": toYAMLPretty, "fromYaml": fromYAML, "fromYamlArray": fromYAMLArray,
		"toJson": toJSON, "fromJson": fromJSON, "fromJsonArray": fromJSONArray,
		"required": required, "fail": func(message string) (string, error) { return "", chartError(message) },
		"keys": keys, "values": values,
		"toDate":          func(layout, text string) time.Time { t, _ := time.Parse(layout, text); return t },
		"mustToDate":      time.Parse,
		"buildCustomCert": buildCustomCert,
		"print":           fmt.Sprint, "println": fmt.Sprintln, "printf": fmt.Sprintf, // built in; here to be bounded
		"html": template.HTMLEscaper, "js": template.JSEscaper, "urlquery": template.URLQueryEscaper,
	})
	return all
}

// chartError is a message of the chart's own, by fail or required.
type chartError string

func (e chartError) Error() string { return string(e) }

func required(message string, value any) (any, error) {
	if text, ok := value.(string); value == nil || ok && text == "" {
		return value, chartError(message)
	}
	return value, nil
}

func keys(of ...map[string]any) []string {
	all := []string{}
	for _, m := range of {
		all = append(all, slices.Sorted(maps.Keys(m))...)
	}
	return all
}

func values(m map[string]any) []any {
	all := make([]any, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[key])
	}
	return all
}

func buildCustomCert(cert, key string) (certificate, error) {
	var made certificate
	for _, part := range []struct {
		to   *string
		from string
	}{{&made.Cert, cert}, {&made.Key, key}} {
		data, err := base64.StdEncoding.DecodeString(part.from)
		if err != nil {
			return certificate{}, errors.New("the certificate or its key is not base64")
		}
		*part.to = string(data)
	}
	return made, nil
}

// The functions below are Helm's, which does not export them. Their errors become their results, as there.

func toYAML(v any) string {
	data, err := yaml.Marshal(v)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(data), "\n")
}

func toYAMLPretty(v any) string {
	var data bytes.Buffer
	encoder := goyaml.NewEncoder(&data)
	encoder.SetIndent(2)
	if encoder.Encode(v) != nil {
		return ""
	}
	return strings.TrimSuffix(data.String(), "\n")
}

func fromYAML(text string) map[string]any {
	m := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		m["Error"] = err.Error()
	}
	return m
}

func fromYAMLArray(text string) []any {
	list := []any{}
	if err := yaml.Unmarshal([]byte(text), &list); err != nil {
		list = []any{err.Error()}
	}
	return list
}

func toTOML(v any) string {
	var data bytes.Buffer
	if err := toml.NewEncoder(&data).Encode(v); err != nil {
		return err.Error()
	}
	return data.String()
}

func fromTOML(text string) map[string]any {
	m := map[string]any{}
	if err := toml.Unmarshal([]byte(text), &m); err != nil {
		m["Error"] = err.Error()
	}
	return m
}

func toJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(data)
}

func fromJSON(text string) map[string]any {
	m := map[string]any{}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		m["Error"] = err.Error()
	}
	return m
}

func fromJSONArray(text string) []any {
	list := []any{}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		list = []any{err.Error()}
	}
	return list
}

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}
