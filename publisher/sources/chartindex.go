package sources

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/wherry-dev/wherry/bundle/yamlvalues"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// Bounds on the index of a chart repository. The largest public ones have some 20 MiB.
const (
	maxChartIndex   = 64 << 20
	maxChartEntries = 8 << 20 // those of one chart
)

// chartVersion has the fields of a version in an index that are needed.
type chartVersion struct {
	Version string `yaml:"version" json:"version"`
	Digest  string `yaml:"digest" json:"digest"`
	// URLs are those of the archive, in full or below the repository's.
	URLs []string `yaml:"urls" json:"urls"`
}

var errIndexForm = errors.New("its entries are not one chart a line, as Helm writes them, and it is not JSON")

// versionsOf reads the versions of one chart from an index, in YAML as Helm writes it or in JSON. Only the chart's own part is
// held in memory.
func versionsOf(index io.Reader, chart string) ([]chartVersion, error) {
	in := bufio.NewReaderSize(gitrepo.LimitReader(index, maxChartIndex), 64<<10)
	for {
		c, err := in.ReadByte()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if strings.IndexByte(" \t\r\n\ufeff", c) >= 0 {
			continue
		}
		if err := in.UnreadByte(); err != nil {
			return nil, err
		}
		if c == '{' {
			return jsonVersions(in, chart)
		}
		return yamlVersions(in, chart)
	}
}

// jsonVersions reads an index in JSON.
func jsonVersions(in io.Reader, chart string) (versions []chartVersion, err error) {
	d := json.NewDecoder(in)
	for _, key := range []string{"entries", chart} {
		if found, err := enter(d, key); !found || err != nil {
			return nil, err
		}
	}
	err = d.Decode(&versions)
	return versions, err
}

// enter reads an object up to the value of a key.
func enter(d *json.Decoder, key string) (found bool, err error) {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil || name == key {
			return err == nil, err
		}
		if err := skip(d); err != nil {
			return false, err
		}
	}
	return false, nil
}

// skip passes over a value.
func skip(d *json.Decoder) error {
	for depth := 0; ; {
		t, err := d.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// yamlVersions reads an index in YAML, line by line. Whatever belongs to a key is indented more than the key, but for the
// items of a list, which may begin in its column.
func yamlVersions(in *bufio.Reader, chart string) ([]chartVersion, error) {
	var own []byte // the lines of the chart
	inEntries, column := false, -1
	for {
		line, err := lineOf(in, own != nil)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		text := bytes.TrimLeft(line, " ")
		indent := len(line) - len(text)
		text = bytes.TrimRight(text, " \t\r\n")
		switch isItem := bytes.HasPrefix(text, []byte("- ")) || len(text) == 1 && text[0] == '-'; {
		case len(text) == 0 || text[0] == '#':
		case indent == 0 && inEntries && !isItem:
			return decodeVersions(own, chart)
		case indent == 0:
			if rest, isEntries := cutKey(text, "entries"); isEntries {
				if inEntries = len(rest) == 0 || rest[0] == '#'; !inEntries && string(rest) != "{}" {
					return nil, errIndexForm
				}
			}
		case inEntries && (column < 0 || indent == column && !isItem):
			if own != nil {
				return decodeVersions(own, chart)
			}
			if _, ours := cutKey(text, chart); ours {
				own = []byte{}
			}
			column = indent
		}
		if own != nil {
			if own = append(own, line...); len(own) > maxChartEntries {
				return nil, fmt.Errorf("%w: more than %d bytes about the chart %q", gitrepo.ErrTooLarge, maxChartEntries, chart)
			}
		}
		if err != nil {
			return decodeVersions(own, chart)
		}
	}
}

// lineOf reads a line. Of one that is longer than the buffer only the beginning is returned, unless it is wanted whole.
func lineOf(in *bufio.Reader, whole bool) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	line = bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		var more []byte
		if more, err = in.ReadSlice('\n'); whole && len(line) <= maxChartEntries {
			line = append(line, more...)
		}
	}
	return line, err
}

// cutKey returns the text after a key.
func cutKey(text []byte, key string) (rest []byte, found bool) {
	for _, quote := range []string{"", `"`, "'"} {
		if rest, ok := bytes.CutPrefix(text, []byte(quote+key+quote)); ok {
			if rest, ok = bytes.CutPrefix(bytes.TrimLeft(rest, " "), []byte(":")); ok && (len(rest) == 0 || rest[0] == ' ') {
				return bytes.TrimLeft(rest, " "), true
			}
		}
	}
	return nil, false
}

// decodeVersions decodes the lines of one chart.
func decodeVersions(lines []byte, chart string) ([]chartVersion, error) {
	var entries map[string][]chartVersion
	err := yamlvalues.NewDecoder(lines).Decode(&entries)
	if errors.Is(err, io.EOF) || errors.As(err, new(*yamlvalues.TypeError)) {
		err = nil
	}
	return entries[chart], err
}
