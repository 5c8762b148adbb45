package scheduler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// maxDecisionBytes bounds a decision: about a million assignments with their reasons.
const maxDecisionBytes = 256 << 20

// ReadDecision reads a decision. Name is its name for messages. [Options].Decision checks it against the
// platform. The errors are [finding.Error]s with the line, or r's.
func ReadDecision(name string, r io.Reader) (*Decision, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxDecisionBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(data) > maxDecisionBytes {
		return nil, finding.Errorf("", finding.Position{File: name}, "", "a decision of more than %d bytes", maxDecisionBytes)
	}
	d := &decisionReader{file: name, data: data, decoder: json.NewDecoder(bytes.NewReader(data)), line: 1}
	if err := d.document(); err != nil {
		return nil, d.placed(err)
	}
	return &d.decision, nil
}

// decisionReader walks through a document one assignment at a time, so that it knows the line of each.
type decisionReader struct {
	file     string
	data     []byte
	decoder  *json.Decoder
	counted  int // bytes whose lines are in line
	line     int
	decision Decision
}

// here is the place of the next value.
func (d *decisionReader) here() finding.Position {
	next := int(d.decoder.InputOffset())
	for next < len(d.data) && strings.IndexByte(" \t\r\n,:", d.data[next]) >= 0 {
		next++
	}
	d.line += bytes.Count(d.data[d.counted:next], []byte("\n"))
	d.counted = next
	return finding.Position{File: d.file, Line: d.line}
}

func (d *decisionReader) document() error {
	d.decision.at = d.here()
	read := map[string]func() error{
		"schema":      func() error { return d.decoder.Decode(&d.decision.Schema) },
		"environment": func() error { return d.decoder.Decode(&d.decision.Environment) },
		"assignments": d.assignments,
	}
	fields := sortedKeys(read)
	if err := d.expect('{', "a decision must be an object"); err != nil {
		return err
	}
	for d.decoder.More() {
		at := d.here()
		key, err := d.decoder.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		field := read[name]
		switch {
		case field == nil && slices.Contains(fields, name):
			return finding.Errorf("", at, "", "the field %q is given twice", name)
		case field == nil:
			return finding.Errorf("", at, finding.DidYouMean(name, fields), "a decision has no field %q", name)
		}
		delete(read, name)
		at = d.here()
		if err := field(); err != nil {
			return d.wrongType(at, err)
		}
	}
	if err := d.expect('}', ""); err != nil {
		return err
	}
	if at := d.here(); d.counted < len(d.data) {
		return finding.Errorf("", at, "", "more text after the decision")
	}
	for _, name := range fields {
		if read[name] != nil {
			return finding.Errorf("", d.decision.at, "", "a decision needs the field %q", name)
		}
	}
	if d.decision.Schema != DecisionVersion {
		return finding.Errorf("", d.decision.at, "", "a decision of schema %d: this version reads %d", d.decision.Schema, DecisionVersion)
	}
	return nil
}

func (d *decisionReader) assignments() error {
	if err := d.expect('[', "assignments must be a list"); err != nil {
		return err
	}
	d.decoder.DisallowUnknownFields()
	d.decision.Assignments = []Decided{}
	for d.decoder.More() {
		a := Decided{at: d.here()}
		if err := d.decoder.Decode(&a); err != nil {
			return d.wrongType(a.at, err)
		}
		if a.ClusterType == "" || a.Name == "" {
			return finding.Errorf("", a.at, "name is <workload>-<target>", "an assignment needs clusterType and name")
		}
		d.decision.Assignments = append(d.decision.Assignments, a)
	}
	return d.expect(']', "")
}

// expect reads one bracket.
func (d *decisionReader) expect(bracket json.Delim, otherwise string) error {
	at := d.here()
	token, err := d.decoder.Token()
	if err != nil {
		return err
	}
	if token != bracket {
		return finding.Errorf("", at, "", "%s", otherwise)
	}
	return nil
}

// wrongType explains an error of the decoder in a value that begins at at.
func (d *decisionReader) wrongType(at finding.Position, err error) error {
	var wrong *json.UnmarshalTypeError
	switch field, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); {
	case unknown:
		name, _ := strconv.Unquote(field)
		fields := []string{"clusterType", "name", "workspace", "workload", "target", "registration", "policies", "targetTerms", "clusterTypeTerms"}
		return finding.Errorf("", at, finding.DidYouMean(name, fields), "an assignment has no field %q", name)
	case errors.As(err, &wrong) && wrong.Field != "":
		return finding.Errorf("", at, "", "%s cannot be a %s", wrong.Field, wrong.Value)
	case errors.As(err, &wrong):
		return finding.Errorf("", at, "", "a %s stands in the wrong place", wrong.Value)
	}
	return err
}

// placed adds the line to a JSON syntax error, since the decoder's offset is relative to its buffer.
func (d *decisionReader) placed(err error) error {
	var known *finding.Error
	if errors.As(err, &known) {
		return err
	}
	at := finding.Position{File: d.file}
	var grammar *json.SyntaxError
	if errors.As(json.Unmarshal(d.data, new(json.RawMessage)), &grammar) {
		at.Line = 1 + bytes.Count(d.data[:min(int(grammar.Offset), len(d.data))], []byte("\n"))
		err = grammar
	}
	return finding.Errorf("", at, `"wherry schedule --schema" prints the form`, "no decision in JSON: %v", err)
}
