// Package diff compares a rendered environment with an earlier state, assignment by assignment, with the causes of each
// change.
//
// [Folder] compares with a folder of rendered files. A [Comparison] compares cluster type by cluster type with trees that
// the caller has fetched; publisher.Compare does so with published releases. The result is a [Difference], which is an
// interface and holds no secret. The package writes nothing and verifies no signature.
package diff

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/check"
)

// Difference is what publishing, or rendering into a folder, would change. Its JSON form is an interface;
// no secret is in it.
type Difference struct {
	Platform    string `json:"platform,omitempty"`
	Environment string `json:"environment"`
	// Against is the location of the earlier state.
	Against string `json:"against"`
	// BaseCommit and OldBaseCommit are the base commits of the new and of the earlier state; empty if unknown.
	BaseCommit    string `json:"baseCommit,omitempty"`
	OldBaseCommit string `json:"oldBaseCommit,omitempty"`
	// ClusterTypes is sorted by name, those that leave the environment at the end.
	ClusterTypes []TypeDifference `json:"clusterTypes"`
	// Renames lists targets that seem to have a new name. To a cluster that is a removal and an
	// addition, and the lists of its type hold both.
	Renames []Rename `json:"renames"`
	// Waiting lists, by workspace, the deployment targets that no policy selects.
	Waiting []WaitingWorkspace `json:"waiting"`
	// Unread lists the registrations whose sources could not be read: their earlier assignments are kept.
	Unread []platform.UnreadRegistration `json:"unread,omitempty"`
	// Dropping lists the registrations that are held because they drop too many of their targets at once.
	Dropping []platform.UnreadRegistration `json:"dropping,omitempty"`
	// AwaitingProof lists the workloads that keep what they have until the environment below has proved what they would get, and those
	// that would come again although they were undone.
	AwaitingProof []AwaitingProof `json:"awaitingProof,omitempty"`
	// Decided lists the workloads that come with something that the environment below cannot have proved.
	Decided []Decided `json:"decided,omitempty"`
	// NotHeld counts the workloads that come without a proof of the environment below: all of them with content: any, else those with
	// something that follows a branch or a tag.
	NotHeld int `json:"notHeld,omitempty"`
	// FailedPolicies lists the scheduling policies whose selection is unknown: their earlier assignments are kept.
	FailedPolicies []platform.FailedPolicy `json:"failedPolicies,omitempty"`
	// Checks are the PlatformChecks about publications, and the bound on removals, that do not accept this one. Any that is not
	// a warning stops it.
	Checks []check.Judgement `json:"checks,omitempty"`
	// Shared lists what was read from a commit, and not from the work tree here, which has other files: these would not be
	// published.
	Shared []SharedFiles `json:"shared,omitempty"`
	// Warnings are about the content at the destination.
	Warnings []string `json:"warnings,omitempty"`
	// Impact counts clusters, bytes and restarts.
	Impact *impact.Facts `json:"impact,omitempty"`
}

// AwaitingProof is a workload that waits. Its JSON form is an interface.
type AwaitingProof struct {
	Registration string `json:"registration,omitempty"`
	Workload     string `json:"workload"`
	// Reason says what it waits for, such as "checkout 2.4.1 waits for stage: soak 3h left".
	Reason string `json:"reason"`
}

// Decided is a workload that comes with something that only its environment reads: its team has decided on that. Its JSON form is an
// interface.
type Decided struct {
	Registration string `json:"registration,omitempty"`
	Workload     string `json:"workload"`
	// Below is the environment that cannot have it. Places has a repository, a ref and a folder each.
	Below  string   `json:"below"`
	Places []string `json:"places"`
	// Ring is the first ring, which gets it before the others; empty without rings.
	Ring string `json:"ring,omitempty"`
}

// String is "menu: the team's decision, not proved in stage: https://git.example/app main prod; it enters ring canary first".
func (d Decided) String() string {
	text := fmt.Sprintf("%s: the team's decision, not proved in %s: %s", d.Workload, d.Below, strings.Join(d.Places, ", "))
	if d.Ring != "" {
		text += "; it enters ring " + d.Ring + " first"
	}
	return text
}

// Proved is a workload that comes because the environment below has proved it. Its JSON form is an interface.
type Proved struct {
	Registration string `json:"registration,omitempty"`
	Workload     string `json:"workload"`
	// Version is what comes, and OldVersion what was there; both may be empty. Removed is true if the workload goes.
	Version    string `json:"version,omitempty"`
	OldVersion string `json:"oldVersion,omitempty"`
	Removed    bool   `json:"removed,omitempty"`
	// Below is the environment below, and Record the tag of its record that brought Revision there.
	Below    string        `json:"below"`
	Record   string        `json:"record"`
	Revision digest.Digest `json:"revision,omitempty"`
	// ProvedAt is the time at which it was proved, and the others are how far the clusters were with BaseCommit when they were counted last.
	ProvedAt   time.Time `json:"provedAt"`
	BaseCommit string    `json:"baseCommit,omitempty"`
	CountedBy  string    `json:"countedBy,omitempty"`
	Clusters   int       `json:"clusters"`
	Compliant  int       `json:"compliant"`
}

// String is "menu 2.4.0 → 2.4.1, proved in stage by 44 of 45 clusters".
func (p Proved) String() string {
	text := p.Workload
	switch {
	case p.Removed:
		text += " removed"
	case p.Version != "" && p.OldVersion != "" && p.Version != p.OldVersion:
		text += " " + p.OldVersion + " → " + p.Version
	case p.Version != "":
		text += " " + p.Version
	}
	return fmt.Sprintf("%s, proved in %s by %d of %d clusters", text, p.Below, p.Compliant, p.Clusters)
}

// ProvedText returns a line about all of them of at most so many bytes; what does not fit is counted.
func ProvedText(all []Proved, most int) string {
	text := ""
	for i, p := range all {
		next := p.String()
		if i > 0 {
			next = text + "; " + next
		}
		more := ""
		if left := len(all) - i - 1; left > 0 {
			more = fmt.Sprintf("; and %d more", left)
		}
		if len(next)+len(more) > most {
			return strings.TrimPrefix(fmt.Sprintf("%s; and %d more", text, len(all)-i), "; and ")
		}
		text = next
	}
	return text
}

// SharedFiles are files of a work tree that are not as the commit has them from which a base, or an app team's source, was read.
type SharedFiles struct {
	Part   platform.Part `json:"part"` // base or workload
	Name   string        `json:"name,omitempty"`
	Commit string        `json:"commit"`
	Files  []string      `json:"files"`
}

// Result is the outcome of a plan for a cluster type.
type Result string

// The outcomes for a cluster type.
const (
	ResultUnchanged Result = "unchanged"
	ResultChanged   Result = "changed"
	// ResultNew is a cluster type without an earlier release or rendered files.
	ResultNew Result = "new"
	// ResultBlocked is a cluster type that would not be published; Blocked gives the reason.
	ResultBlocked Result = "blocked"
	// ResultKept is a ring that is not published to, so that it keeps its release.
	ResultKept Result = "kept"
)

// TypeDifference is one cluster type of a Difference.
type TypeDifference struct {
	ClusterType string `json:"clusterType"`
	Result      Result `json:"result"`
	// Assignments counts the assignments that it would have, including failed ones that keep their content.
	Assignments int `json:"assignments"`
	Unchanged   int `json:"unchanged"`
	// Changes lists the added, removed and changed assignments, sorted by name.
	Changes []AssignmentDifference `json:"changes"`
	// Failed lists the assignments that cannot be rendered.
	Failed []FailedDifference `json:"failed"`
	// SiteValues lists the site values that change; nil if none do.
	SiteValues *SitesDifference `json:"siteValues,omitempty"`
	// FailedSites lists the clusters whose site values have a mistake.
	FailedSites []FailedSite `json:"failedSites,omitempty"`
	// Lacking lists the rights that agents with the rights for the old release lack; see "wherry install agent --rbac bundle".
	Lacking []Right `json:"lacking,omitempty"`
	// Blocked is the reason why the type would not be published.
	Blocked string `json:"blocked,omitempty"`
	// Left is true for a type that has left the environment.
	Left bool `json:"left,omitempty"`
	// OldRelease is the earlier release.
	OldRelease
	Fetch
	// Renewed is true if nothing changes and the release is published again because it expires.
	Renewed bool `json:"renewed,omitempty"`
	// ByRing says, where the platform names rings or has given them up, what becomes of each of them, narrowest first. The rest is then about
	// the widest ring that is published to, or if nothing changes there, about the widest one that changes.
	ByRing []RingDifference `json:"byRing,omitempty"`
}

// OldRelease names the release that stands; the zero value where there is none.
type OldRelease struct {
	OldSequence int64         `json:"oldSequence,omitempty"`
	OldNumber   int64         `json:"oldNumber,omitempty"`
	OldDigest   digest.Digest `json:"oldDigest,omitempty"`
}

// OldReleaseOf returns the name of v.
func OldReleaseOf(v *bundle.Verified) OldRelease {
	return OldRelease{v.Release.Sequence, v.Release.Number, v.Descriptor.Digest}
}

// Fetch is the download of a cluster that gets a new release: manifest, signatures and files. What engines fetch by
// themselves, such as images, is not in it. It is zero if nothing is fetched, or a folder is compared with.
type Fetch struct {
	// Bytes is for a cluster with the earlier release, and FullBytes for any other one.
	Bytes     int64 `json:"bytes,omitempty"`
	FullBytes int64 `json:"fullBytes,omitempty"`
	// UpTo is true if no delta was tried, so that it may be less.
	UpTo bool `json:"bytesUpTo,omitempty"`
	// Carried is the size of the artifacts that a cluster with the earlier release brings to its store, as far as sizes are
	// known, and for all platforms.
	Carried int64 `json:"carriedBytes,omitempty"`
}

// RingDifference is what becomes of the rings that have one release now.
type RingDifference struct {
	// Rings lists them, and Latest is true where agents without a ring have the release too.
	Rings  []string `json:"rings"`
	Latest bool     `json:"latest,omitempty"`
	// Result is ResultKept where they are not published to.
	Result Result `json:"result"`
	// OldRelease is the release that they have.
	OldRelease
	Fetch
	// Added, Removed and Changed count the assignments in which the plan differs from the rings' release.
	Added   int `json:"added"`
	Removed int `json:"removed"`
	Changed int `json:"changed"`
	// Renewed is the reason why their release would be made anew with the same content; empty if it would not.
	Renewed string `json:"renewed,omitempty"`
}

// Differs reports whether the plan's content differs from that of these rings' release.
func (r RingDifference) Differs() bool {
	return r.Result == ResultChanged || r.Result == ResultNew || r.Added+r.Removed+r.Changed > 0
}

// Change is what becomes of an assignment, or of a file of it.
type Change string

// The changes.
const (
	ChangeAdded   Change = "added"
	ChangeRemoved Change = "removed"
	ChangeChanged Change = "changed"
)

// AssignmentDifference is an assignment that is added, removed or changed.
type AssignmentDifference struct {
	Name      string `json:"name"`
	Change    Change `json:"change"`
	Workspace string `json:"workspace,omitempty"`
	// Because lists the policies that select an added assignment, with where they stand.
	Because []Cause `json:"because,omitempty"`
	// Why is the reason why an assignment is removed.
	Why string `json:"why,omitempty"`
	// Values lists the configuration values, and values of other files, that a changed assignment gets.
	Values []ValueDifference `json:"values,omitempty"`
	// Files lists the files of a changed assignment that are not the same.
	Files []FileDifference `json:"files,omitempty"`
	// Sources lists the sources of embedded files of a changed assignment that are not the same.
	Sources []SourceDifference `json:"sources,omitempty"`
	// Fields lists what the bundle says otherwise about a changed assignment, such as its policies.
	Fields []FieldDifference `json:"fields,omitempty"`
	// Refused lists the objects of a changed assignment that the API server refuses, since fields of them cannot change. The
	// assignment then fails, and restarts nothing.
	Refused []impact.Refused `json:"refused,omitempty"`
	// Restarts lists the workloads of a changed assignment whose pods are replaced, as Kind/name. RestartsUnknown is true if
	// the manifests are in no file, because another engine fetches them.
	Restarts        []string `json:"restarts,omitempty"`
	RestartsUnknown bool     `json:"restartsUnknown,omitempty"`
}

// FileDifference is a file of an assignment that is not the same.
type FileDifference struct {
	Path   string `json:"path"`
	Change Change `json:"change"`
	// Because names the Template that the file is rendered from.
	Because []Cause `json:"because,omitempty"`
	// Patch is the difference of the texts in the form of diff -u, with secrets masked, of releases that are compared with
	// patches. PatchLeft counts the lines beyond its bound.
	Patch     string `json:"patch,omitempty"`
	PatchLeft int    `json:"patchLeft,omitempty"`
}

// FieldDifference is a field of an assignment's line in the bundle that is not the same. Old and New are
// nil where it is not there.
type FieldDifference struct {
	Field string          `json:"field"`
	Old   json.RawMessage `json:"old"`
	New   json.RawMessage `json:"new"`
}

// FailedDifference is an assignment that cannot be rendered.
type FailedDifference struct {
	Name  string `json:"name"`
	Error string `json:"error"`
	// Taken is true where another assignment has the name and keeps it.
	Taken bool `json:"taken,omitempty"`
	// Stands is true where clusters have the assignment now.
	Stands bool `json:"stands"`
}

// Rename is a target that seems to have got another name, and the cluster types that it is on.
type Rename struct {
	From         string   `json:"from"`
	To           string   `json:"to"`
	ClusterTypes []string `json:"clusterTypes"`
}

// WaitingWorkspace is a team whose targets no policy selects.
type WaitingWorkspace struct {
	Workspace string                    `json:"workspace"`
	Targets   []scheduler.WaitingTarget `json:"targets"`
}

// Changes reports whether clusters would get anything else than they have, or something stands in the way.
// A release that is only renewed is no change.
func (d *Difference) Changes() bool {
	return d.Count().ClusterTypes > 0 || len(d.Unread)+len(d.FailedPolicies) > 0
}

// WouldChange reports whether publishing would give a cluster type a new release because of other content.
func (d *Difference) WouldChange() bool {
	return slices.ContainsFunc(d.ClusterTypes, func(ct TypeDifference) bool {
		return ct.Result == ResultChanged || ct.Result == ResultNew
	})
}

// Refused reports whether a PlatformCheck stops the publication.
func (d *Difference) Refused() bool {
	return slices.ContainsFunc(d.Checks, func(j check.Judgement) bool { return !j.Warning })
}

// Incomplete reports whether publishing would leave something undone: an assignment fails, a source cannot be read, a
// cluster type would not be published, or a PlatformCheck stops the whole.
func (d *Difference) Incomplete() bool {
	return len(d.Unread) > 0 || d.Refused() || slices.ContainsFunc(d.ClusterTypes, func(ct TypeDifference) bool {
		return len(ct.Failed)+len(ct.FailedSites) > 0 || ct.Result == ResultBlocked
	})
}

// Counted counts assignments, and the cluster types that are not as they were.
type Counted struct{ Added, Removed, Changed, Failed, ClusterTypes int }

// Count sums a Difference up.
func (d *Difference) Count() Counted {
	var all Counted
	for _, ct := range d.ClusterTypes {
		n := ct.Count()
		all.Added, all.Removed, all.Changed, all.Failed = all.Added+n.Added, all.Removed+n.Removed, all.Changed+n.Changed, all.Failed+n.Failed
		all.ClusterTypes += n.ClusterTypes
	}
	return all
}

// Count sums one cluster type up.
func (d *TypeDifference) Count() Counted {
	c := Counted{Failed: len(d.Failed)}
	for _, a := range d.Changes {
		switch a.Change {
		case ChangeAdded:
			c.Added++
		case ChangeRemoved:
			c.Removed++
		default:
			c.Changed++
		}
	}
	if d.Result != ResultUnchanged || c.Failed+len(d.FailedSites) > 0 {
		c.ClusterTypes = 1
	}
	return c
}
