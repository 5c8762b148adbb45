package lint

import (
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// The structs below are the part of SARIF 2.1.0 that code scanning reads, with the names of the standard.
type (
	// Log is a SARIF log, to be written as JSON.
	Log struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		InformationURI string      `json:"informationUri"`
		Version        string      `json:"version"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID                   string      `json:"id"`
		ShortDescription     sarifText   `json:"shortDescription"`
		FullDescription      sarifText   `json:"fullDescription"`
		Help                 sarifText   `json:"help"`
		DefaultConfiguration sarifConfig `json:"defaultConfiguration"`
		Properties           sarifTags   `json:"properties"`
	}
	sarifText struct {
		Text     string `json:"text"`
		Markdown string `json:"markdown,omitempty"`
	}
	sarifConfig struct {
		Level string `json:"level"`
	}
	sarifTags struct {
		Tags []string `json:"tags"`
	}
	sarifResult struct {
		RuleID              string            `json:"ruleId"`
		RuleIndex           int               `json:"ruleIndex"`
		Level               string            `json:"level"`
		Message             sarifText         `json:"message"`
		Locations           []sarifLocation   `json:"locations"`
		PartialFingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		PhysicalLocation struct {
			ArtifactLocation sarifArtifact `json:"artifactLocation"`
			Region           sarifRegion   `json:"region"`
		} `json:"physicalLocation"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
)

const projectURL = "https://github.com/wherry-dev/wherry"

// SARIF returns the findings for code scanning. Version is wherry's; uri returns the URI of a file, where the empty name
// means the platform as a whole. The log lists only the rules with findings.
func SARIF(found []finding.Finding, version string, uri func(file string) string) Log {
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "wherry", InformationURI: projectURL, Version: version, Rules: []sarifRule{}}
	for _, f := range found {
		rules := &run.Tool.Driver.Rules
		i := slices.IndexFunc(*rules, func(rule sarifRule) bool { return rule.ID == f.Code })
		if i < 0 {
			i = len(*rules)
			*rules = append(*rules, sarifRuleOf(f))
		}
		text := f.Message
		if f.Hint != "" {
			text += " (" + f.Hint + ")"
		}
		result := sarifResult{
			RuleID: f.Code, RuleIndex: i, Level: f.Severity(), Message: sarifText{Text: text}, Locations: make([]sarifLocation, 1),
			// Without the line, so that a finding that has moved stays the same one.
			PartialFingerprints: map[string]string{"wherry/v1": digest.FromString(f.Code + "\n" + f.File + "\n" + f.Message).Encoded()},
		}
		at := &result.Locations[0].PhysicalLocation
		at.ArtifactLocation.URI = uri(f.File)
		at.Region = sarifRegion{StartLine: max(1, f.Line), StartColumn: f.Column} // code scanning requires a line
		run.Results = append(run.Results, result)
	}
	return Log{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
}

func sarifRuleOf(f finding.Finding) sarifRule {
	c, _ := finding.Explain(f.Code)
	rule := sarifRule{
		ID: f.Code, ShortDescription: sarifText{Text: c.Title}, FullDescription: sarifText{Text: c.Text},
		DefaultConfiguration: sarifConfig{Level: f.Severity()}, Properties: sarifTags{Tags: []string{"wherry"}},
	}
	help, markdown := c.Text, c.Text
	if c.Example != "" {
		help += "\n\nExample:\n" + "  " + strings.ReplaceAll(strings.TrimSpace(c.Example), "\n", "\n  ")
		markdown += "\n\n```yaml\n" + c.Example + "\n```"
	}
	rule.Help = sarifText{Text: help + "\n\nWhat to do: " + c.Remedy, Markdown: markdown + "\n\n**What to do:** " + c.Remedy}
	return rule
}
