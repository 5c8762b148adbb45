package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// Media types of what is said about an image, and where this program and the sources are.
const (
	spdxType   = "application/spdx+json"
	inTotoType = "application/vnd.in-toto+json"

	source  = "https://github.com/wherry-dev/wherry"
	builder = source + "/tree/main/tools/image"
)

// spdxDocument is an SBOM by SPDX 2.3, with the fields that it asks for and few others.
type spdxDocument struct {
	Version       string             `json:"spdxVersion"`
	License       string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      spdxCreation       `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID        string         `json:"SPDXID"`
	Name      string         `json:"name"`
	Version   string         `json:"versionInfo,omitempty"`
	Location  string         `json:"downloadLocation"`
	Analyzed  bool           `json:"filesAnalyzed"`
	Concluded string         `json:"licenseConcluded"`
	Declared  string         `json:"licenseDeclared"`
	Copyright string         `json:"copyrightText"`
	Checksums []spdxChecksum `json:"checksums,omitempty"`
	Refs      []spdxRef      `json:"externalRefs,omitempty"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// component is a package of a program or an image.
func component(name, version, purl, sha256 string) spdxPackage {
	const unknown = "NOASSERTION"
	p := spdxPackage{
		ID: "SPDXRef-" + notInID.ReplaceAllString(name+"-"+version, "-"), Name: name, Version: version,
		Location: unknown, Concluded: unknown, Declared: unknown, Copyright: unknown,
	}
	if purl != "" {
		p.Refs = []spdxRef{{"PACKAGE-MANAGER", "purl", purl}}
	}
	if sha256 != "" {
		p.Checksums = []spdxChecksum{{"SHA256", sha256}}
	}
	return p
}

// sbom lists the Go modules of a program and the packages of Debian's beside it. Whole is what they are in.
func sbom(whole spdxPackage, program []byte, packages []*debPackage, meta metadata) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("the modules of the program: %w", err)
	}
	parts := []spdxPackage{
		component(info.Main.Path, info.Main.Version, golang(info.Main), ""),
		component("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "pkg:golang/stdlib@"+strings.TrimPrefix(info.GoVersion, "go"), ""),
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		parts = append(parts, component(m.Path, m.Version, golang(*m), ""))
	}
	if len(packages) == 0 { // the authorities of an image without Debian's are in this program
		if tool, ok := debug.ReadBuildInfo(); ok {
			for _, m := range tool.Deps {
				if m.Path == "golang.org/x/crypto/x509roots/fallback" {
					parts = append(parts, component(m.Path, m.Version, golang(*m), ""))
				}
			}
		}
	}
	for _, p := range packages {
		parts = append(parts, component(p.name, p.version, p.purl(), p.sha256))
	}
	doc := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: whole.Name,
		Namespace:     source + "/spdx/" + whole.Name + "-" + whole.Checksums[0].Value,
		Creation:      spdxCreation{meta.created.Format(time.RFC3339), []string{"Tool: " + builder}},
		Packages:      append([]spdxPackage{whole}, parts...),
		Relationships: []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", whole.ID}},
	}
	for _, p := range parts {
		doc.Relationships = append(doc.Relationships, spdxRelationship{whole.ID, "CONTAINS", p.ID})
	}
	return json.MarshalIndent(doc, "", "  ")
}

func golang(m debug.Module) string { return "pkg:golang/" + m.Path + "@" + url.PathEscape(m.Version) }

func (p *debPackage) purl() string {
	return fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=%s", p.name, url.QueryEscape(p.version), p.arch, debianRelease)
}

// sbom is that of an image for one platform.
func (i *platformImage) sbom(meta metadata) ([]byte, error) {
	digest, err := i.image.Digest()
	if err != nil {
		return nil, err
	}
	whole := component(meta.name, meta.version, "pkg:oci/"+meta.name+"@"+url.QueryEscape(digest.String())+"?arch="+i.platform.Architecture, digest.Hex)
	return sbom(whole, i.program, i.packages, meta)
}
