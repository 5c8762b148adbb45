package bundle

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
)

// SourcesPath is the file of a tree that says where embedded content came from. It is for people alone.
const SourcesPath = MetaDir + "/sources.ndjson"

// AssignmentSources is a line of .wherry/sources.ndjson: where the embedded content of one assignment came from.
type AssignmentSources struct {
	Assignment string          `json:"assignment"`
	Sources    []ContentSource `json:"sources"`
}

// ContentSource is one place that embedded files came from.
type ContentSource struct {
	// Type is that of an artifact, or SourceFolder.
	Type string `json:"type"`
	// Name is the repository without scheme, or the registration whose source has the folder.
	Name string `json:"name"`
	// Revision is git's id of a folder or, if the build read more than the folder, a digest of the ids of all that it read; else the
	// digest of an OCI manifest or of a chart's archive. It is a commit if the text of the source names one. It is empty if it is not known.
	Revision string `json:"revision,omitempty"`
	// Path is the folder in the source.
	Path string `json:"path,omitempty"`
	// Chart and Version are those of a chart.
	Chart   string `json:"chart,omitempty"`
	Version string `json:"version,omitempty"`
	// Files lists paths below the assignment's folder; empty stands for all its embedded files.
	Files []string `json:"files,omitempty"`
}

// SourceFolder is the type of a folder beside the Workload, in the same source.
const SourceFolder = "folder"

// MarshalSources returns the content of .wherry/sources.ndjson, one line for each assignment.
func MarshalSources(list []AssignmentSources) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, s := range list {
		if err := enc.Encode(s); err != nil {
			return nil, fmt.Errorf("sources of %s: %w", s.Assignment, err)
		}
	}
	return b.Bytes(), nil
}

// ParseSources parses the output of MarshalSources. Its errors are of type *Refusal.
func ParseSources(data []byte) ([]AssignmentSources, error) {
	var list []AssignmentSources
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxAssignmentLine)
	for n := 1; lines.Scan(); n++ {
		var s AssignmentSources
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return nil, Refuse(BadContent, "%s:%d: %v", SourcesPath, n, err)
		}
		list = append(list, s)
	}
	if err := lines.Err(); err != nil {
		return nil, Refuse(BadContent, "%s: %v", SourcesPath, err)
	}
	return list, nil
}
