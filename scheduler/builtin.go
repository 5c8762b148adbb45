package scheduler

import (
	"strings"

	yamlv2 "gopkg.in/yaml.v2"
)

// The configuration types that need no Template: those of the older generation of platforms.
const (
	configMapType = "configMap"
	envFileType   = "envFile"
)

// configMapFile is the composed configuration as a ConfigMap.
func configMapFile(d *data, c *config) ([]byte, error) {
	return yamlv2.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]string{"name": platformConfig, "namespace": d.Namespace},
		"data":       c.strings(),
	})
}

// envFile is the composed configuration as assignments for a shell. Values stand as they are: quoting
// them for the shell would change what existing platforms write.
func envFile(c *config) []byte {
	var b strings.Builder
	values := c.strings()
	for _, key := range sortedKeys(values) {
		b.WriteString("export " + key + `="` + values[key] + "\"\n")
	}
	return []byte(b.String())
}

// strings gives all values as texts, structured ones as they were written where they come from one
// place, else as YAML.
func (c *config) strings() map[string]string {
	texts := make(map[string]string, len(c.data))
	for key, value := range c.data {
		s, isString := value.(string)
		if !isString {
			var ok bool
			if s, ok = c.texts[key]; !ok {
				s = toYAML(value)
			}
		}
		texts[key] = s
	}
	return texts
}
