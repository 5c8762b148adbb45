package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// The structs below are the part of SARIF 2.1.0 that code scanning reads, in the standard's own names.
type (
	sarifLog struct {
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

// sarif is the result for code scanning. Rules are those that something was found for.
func (r *lintResult) sarif() sarifLog {
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "wherry", InformationURI: projectURL, Version: cli.Version(), Rules: []sarifRule{}}
	place := sarifPlaces{top: repositoryTop(), platform: r.platform}
	for _, f := range r.Findings {
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
			RuleID: f.Code, RuleIndex: i, Level: f.Severity, Message: sarifText{Text: text}, Locations: make([]sarifLocation, 1),
			// Without the line, so that a finding that has moved stays the same one.
			PartialFingerprints: map[string]string{"wherry/v1": digest.FromString(f.Code + "\n" + f.File + "\n" + f.Message).Encoded()},
		}
		at := &result.Locations[0].PhysicalLocation
		at.ArtifactLocation.URI = place.uri(f.File)
		at.Region = sarifRegion{StartLine: max(1, f.Line), StartColumn: f.Column} // code scanning wants a line
		run.Results = append(run.Results, result)
	}
	return sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
}

func sarifRuleOf(f lintFinding) sarifRule {
	c, _ := finding.Explain(f.Code)
	rule := sarifRule{
		ID: f.Code, ShortDescription: sarifText{Text: c.Title}, FullDescription: sarifText{Text: c.Text},
		DefaultConfiguration: sarifConfig{Level: f.Severity}, Properties: sarifTags{Tags: []string{"wherry"}},
	}
	help, markdown := c.Text, c.Text
	if c.Example != "" {
		help += "\n\nExample:\n" + indentLines(c.Example)
		markdown += "\n\n```yaml\n" + c.Example + "\n```"
	}
	rule.Help = sarifText{Text: help + "\n\nWhat to do: " + c.Remedy, Markdown: markdown + "\n\n**What to do:** " + c.Remedy}
	return rule
}

// sarifPlaces turns the names of files into URIs: relative ones for what lies in the repository that is
// checked out here, which is how code scanning finds them.
type sarifPlaces struct{ top, platform string }

func (p sarifPlaces) uri(file string) string {
	if file == "" { // about the platform as a whole
		file = "."
		if !strings.Contains(p.platform, "://") {
			file, _, _ = strings.Cut(p.platform, "#")
		}
	}
	if strings.Contains(file, "://") || strings.Contains(file, "#") { // a file of a repository somewhere else
		return fileURI(strings.ReplaceAll(file, "#", "/"), false)
	}
	full, err := filepath.Abs(file)
	if err != nil {
		return fileURI(file, false)
	}
	if rel, err := filepath.Rel(p.top, full); err == nil && filepath.IsLocal(rel) {
		return fileURI(filepath.ToSlash(rel), false)
	}
	return fileURI(filepath.ToSlash(full), true)
}

func fileURI(path string, absolute bool) string {
	if scheme, rest, ok := strings.Cut(path, "://"); ok {
		return fmt.Sprintf("%s://%s", scheme, (&url.URL{Path: rest}).EscapedPath())
	}
	u := url.URL{Path: path}
	if absolute {
		u.Scheme = "file"
	}
	return u.String()
}

// repositoryTop is the top of the work tree around the working directory, else that directory.
func repositoryTop() string {
	here, err := os.Getwd()
	if err != nil {
		return ""
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return here
		}
	}
}
