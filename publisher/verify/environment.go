package verify

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// VerifiedEnvironment is the outcome of [Environment]. Its JSON form is an interface.
type VerifiedEnvironment struct {
	Record  *Trusted       `json:"record"`
	Bundles []VerifiedType `json:"bundles"`
}

// VerifiedType is a release of a cluster type that the record names.
type VerifiedType struct {
	ClusterType string        `json:"clusterType"`
	Digest      digest.Digest `json:"digest"`
	// Bundle is nil if Error says why the release cannot be trusted.
	Bundle  *Trusted `json:"bundle,omitempty"`
	Error   string   `json:"error,omitempty"`
	Refused bool     `json:"refused,omitempty"` // it was read, and is not to be trusted
}

// Failed counts the releases that cannot be trusted, and those of them that could be read.
func (v *VerifiedEnvironment) Failed() (failed, refused int) {
	for _, b := range v.Bundles {
		if b.Bundle == nil {
			failed++
		}
		if b.Refused {
			refused++
		}
	}
	return failed, refused
}

// Environment verifies an environment's record and then each release that it names, also if one of them cannot be
// trusted. Releases that cannot are first in the result. The error is about the record.
func Environment(loc oci.Location, environment string, verify func(oci.Reference) (*Trusted, error)) (*VerifiedEnvironment, error) {
	record, err := verify(oci.Reference{Location: loc, Repository: bundle.EnvironmentRepository(environment)})
	if err != nil {
		return nil, err
	}
	if record.Kind != "environment" || record.Environment != environment {
		return nil, &bundle.Refusal{Reason: bundle.WrongEnvironment, Message: fmt.Sprintf("it is not the record of environment %q", environment)}
	}
	all := &VerifiedEnvironment{Record: record, Bundles: []VerifiedType{}}
	for _, name := range typesOf(record) {
		for _, d := range releasesOf(record, name) {
			ref := oci.Reference{Location: loc, Repository: bundle.Stream{Environment: environment, ClusterType: name}.Repository(), Digest: d}
			v := VerifiedType{ClusterType: name, Digest: d}
			if v.Bundle, err = verify(ref); err != nil {
				v.Bundle, v.Error, v.Refused = nil, err.Error(), errors.As(err, new(*bundle.Refusal))
			} else if v.Bundle.Environment != environment || v.Bundle.ClusterType != name {
				v.Error = fmt.Sprintf("it is a release of %s/%s", v.Bundle.Environment, v.Bundle.ClusterType)
				v.Bundle, v.Refused = nil, true
			}
			all.Bundles = append(all.Bundles, v)
		}
	}
	slices.SortStableFunc(all.Bundles, func(a, b VerifiedType) int { return -strings.Compare(a.Error, b.Error) })
	return all, nil
}

func typesOf(record *Trusted) []string {
	names := map[string]bool{}
	for name := range record.ClusterTypes {
		names[name] = true
	}
	for name := range record.RingReleases {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// releasesOf lists the releases of a cluster type, each once: that of all agents, and those of rings.
func releasesOf(record *Trusted, clusterType string) (list []digest.Digest) {
	if d := record.ClusterTypes[clusterType]; d != "" {
		list = append(list, d)
	}
	rings := record.RingReleases[clusterType]
	for _, ring := range slices.Sorted(maps.Keys(rings)) {
		if !slices.Contains(list, rings[ring]) {
			list = append(list, rings[ring])
		}
	}
	return list
}
