package sitevalues

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	shared "github.com/wherry-dev/wherry/bundle/sitevalues"
)

// DefaultFile is the file of the site's own values, if no other place is set.
const DefaultFile = "/etc/wherry/site.yaml"

// MaxFileBytes bounds the file of the site's own values.
const MaxFileBytes = 256 << 10

// maxOwnKeys bounds its keys.
const maxOwnKeys = 512

// Own are the values that the site itself sets.
type Own struct {
	// Values hold a string, an int64, a float64 or a bool each.
	Values map[string]any `json:"values,omitempty"`
	// Lines are the lines on which the keys stand, where there are lines.
	Lines map[string]int `json:"lines,omitempty"`
}

// Source is the place of the site's own values.
type Source interface {
	// String names the place to people.
	String() string
	// Read returns the values as they are now. Errors contain no value. One that wraps fs.ErrNotExist means that the place
	// does not exist: that is as good as no values, unless there were some before.
	Read(ctx context.Context) (Own, error)
}

// Mistake is the error of a text that does not hold values.
type Mistake struct {
	Line int // 0 if it is not known
	Text string
}

func (m *Mistake) Error() string {
	if m.Line == 0 {
		return m.Text
	}
	return fmt.Sprintf("line %d: %s", m.Line, m.Text)
}

// File is a file of values: a flat mapping, in YAML.
type File struct {
	Path string
	// Named is true if a person has set the path. Such a file may be on a disk that is not mounted, so that its values do
	// not end with it. Another one may be deleted, which means that the site sets nothing.
	Named bool
}

// String returns the path.
func (f File) String() string { return f.Path }

// Read reads a regular file. It does not block on a pipe.
func (f File) Read(context.Context) (Own, error) {
	data, err := diskfile.Read(f.Path, MaxFileBytes)
	if errors.Is(err, fs.ErrNotExist) && !f.Named {
		return Own{}, nil
	}
	if err != nil {
		return Own{}, err
	}
	return Parse(data)
}

// ConfigMap is a ConfigMap of values on the cluster. All its values are texts.
type ConfigMap struct {
	Name string // NAMESPACE/NAME
	// Get returns the data. Its error wraps fs.ErrNotExist if there is no such ConfigMap.
	Get func(context.Context) (map[string]string, error)
}

// String returns the name for messages.
func (c ConfigMap) String() string { return "ConfigMap " + c.Name }

// Read reads the ConfigMap. More keys than permitted are a *Mistake.
func (c ConfigMap) Read(ctx context.Context) (Own, error) {
	data, err := c.Get(ctx)
	if err != nil {
		return Own{}, err
	}
	if len(data) > maxOwnKeys {
		return Own{}, &Mistake{Text: fmt.Sprintf("it has %d keys, at most %d are permitted", len(data), maxOwnKeys)}
	}
	own := Own{Values: map[string]any{}}
	for key, text := range data {
		own.Values[key] = text
	}
	return own, nil
}

// Parse reads a flat mapping of keys to texts, numbers and booleans. Its errors are of type *Mistake.
func Parse(data []byte) (Own, error) {
	var document yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return Own{}, nil
	} else if err != nil {
		return Own{}, notYAML(err)
	}
	var second yaml.Node
	if err := decoder.Decode(&second); err == nil { // its values would be ignored
		return Own{}, &Mistake{second.Line, "there must be one YAML document, and a second one begins"}
	} else if !errors.Is(err, io.EOF) {
		return Own{}, notYAML(err)
	}
	root := document.Content[0]
	switch {
	case root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null":
		return Own{}, nil
	case root.Kind != yaml.MappingNode:
		return Own{}, &Mistake{root.Line, "it must be a mapping, with lines such as dns: plant-7.example.com"}
	case len(root.Content)/2 > maxOwnKeys:
		return Own{}, &Mistake{root.Line, fmt.Sprintf("there are %d keys, at most %d are permitted", len(root.Content)/2, maxOwnKeys)}
	}
	own := Own{Values: map[string]any{}, Lines: map[string]int{}}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		name := bundle.Clip(key.Value)
		if key.Kind != yaml.ScalarNode || key.Value == "<<" {
			return Own{}, &Mistake{key.Line, "a key must be a single word"}
		}
		if first, twice := own.Lines[key.Value]; twice {
			return Own{}, &Mistake{key.Line, fmt.Sprintf("%s is also on line %d", name, first)}
		}
		v, err := plain(value)
		if err != nil {
			return Own{}, &Mistake{value.Line, name + ": " + err.Error()}
		}
		own.Values[key.Value], own.Lines[key.Value] = v, key.Line
	}
	return own, nil
}

// plain returns a single value. Dates are texts, as JSON has none.
func plain(n *yaml.Node) (any, error) {
	if n.Kind != yaml.ScalarNode {
		return nil, errors.New("it must be a single value: lists, mappings and aliases are not permitted")
	}
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		return n.Value, nil
	case "!!bool":
		return strconv.ParseBool(strings.ToLower(n.Value))
	case "!!int":
		var i int64
		if n.Decode(&i) != nil {
			return nil, errors.New("not a 64-bit integer")
		}
		return i, nil
	case "!!float":
		var f float64
		if n.Decode(&f) != nil {
			return nil, errors.New("not a number")
		}
		return f, nil
	case "!!null":
		return nil, errors.New(`it has no value: write "" for an empty text, or delete the line`)
	}
	return nil, errors.New("it has a tag that is not permitted")
}

// notYAML describes an error of the parser without its quotes from the text, which may contain a value.
func notYAML(err error) error {
	line, text := shared.NotYAML(err)
	return &Mistake{line, text}
}

// Watch calls changed whenever the file has become another one, until ctx ends. It looks every so often, as a file may be on
// a disk that tells nobody of changes.
func (f File) Watch(ctx context.Context, every time.Duration, changed func()) {
	look := func() string {
		info, err := os.Stat(f.Path)
		if err != nil {
			return ""
		}
		return fmt.Sprint(info.ModTime().UnixNano(), info.Size(), info.Mode())
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for before := look(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := look(); now != before {
			before = now
			changed()
		}
	}
}
