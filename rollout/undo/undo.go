// Package undo gives an environment, a cluster type, a ring or a workload the content back that it had, from the registry alone.
//
// [Undo] finds the previous content in the environment's signed records, pauses the environment, and makes new releases that
// refer to the previous blobs ([publisher.Reissue]): nothing is rendered, and no tree is read. [Abort] stops a rollout: the
// narrower rings get what the widest has.
//
// Undo never goes back to what was undone. A record that gave something back names the record that it went back to, and what
// lies between the two is passed over from then on. It lists too what it took back, which nobody releases again until a person says so:
// see [bundle.Undone]. An undo that was done already does nothing: it may be repeated, also by two
// people at once. If a publication was cut off before its record was written, Undo gives back what the record names.
//
// Of one workload, Undo packs what rings have with the files that the workload had; all others keep theirs to the byte. It pauses
// nothing, as the mark in the ledger keeps the revision out: see [ledger.Undone].
package undo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/usage"
	"github.com/wherry-dev/wherry/rollout/decisions"
)

// MaxRecords is how many records of an environment are read at most to find its previous content.
const MaxRecords = 1000

// ErrNoPrevious is wrapped by the error of Undo if the records that are there have no previous content.
var ErrNoPrevious = errors.New("there is no previous content")

// EmptiesError is the error for cluster types that the previous record does not have: to undo is to take all of their assignments
// away.
type EmptiesError struct {
	ClusterTypes []string
	// Workload is the one that would be taken away, as REGISTRATION/NAME; empty for all.
	Workload string
}

func (e *EmptiesError) Error() string {
	if e.Workload != "" {
		return strings.Join(e.ClusterTypes, ", ") + " had nothing of " + e.Workload + " then: undoing would delete its assignments there"
	}
	return "the previous record does not have " + strings.Join(e.ClusterTypes, ", ") + ": undoing would delete all assignments there"
}

// Options says what to undo.
type Options struct {
	Environment string
	// ClusterType and Ring restrict Undo to one cluster type, or to a ring and those wider rings that have the same content.
	ClusterType, Ring string
	// Workload, as REGISTRATION/NAME or NAME, restricts Undo to one workload; then ClusterType is empty and Ring is that ring alone. To is
	// a version of it, or seven or more digits of a revision.
	Workload string
	// To names the record to go back to, by its tag or by seven or more digits of its base or environment commit; with
	// ClusterType also a release of that, see bundle.ParseReleaseQuery. Empty is the newest previous content that is complete.
	To string
	// Reason is kept in the record, and in the pause if there is one.
	Reason string
	// Show, if not nil, is told what would be done before anything is; its error keeps it from being done. It may be told again, if
	// another publisher was at work.
	Show func(*Plan) error
	// AllowEmpty takes all assignments away from cluster types that the previous record does not have.
	AllowEmpty bool
}

// Plan is what Undo and Abort are about to do. Its JSON form is an interface.
type Plan struct {
	Platform    string `json:"platform"`
	Environment string `json:"environment"`
	// Left and Previous are as in Done.
	Left     Commits  `json:"left"`
	Previous Commits  `json:"previous,omitzero"`
	Changes  []Change `json:"changes"` // sorted by cluster type
	// Workload is the only one that changes; nil for all. Then To of a Change is the release whose files it gets.
	Workload *Workload `json:"workload,omitempty"`
}

// Change is what becomes of the rings of a cluster type that have one release.
type Change struct {
	ClusterType string   `json:"clusterType"`
	Rings       []string `json:"rings"` // narrowest first; the tag latest for agents without a ring
	// From and To name releases by number and digest; To is empty if all assignments are taken away.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// FromCommit and ToCommit are their base commits.
	FromCommit string `json:"fromCommit,omitempty"`
	ToCommit   string `json:"toCommit,omitempty"`
}

// Done is what Undo and Abort did. Its JSON form is an interface.
type Done struct {
	Platform    string `json:"platform"`
	Environment string `json:"environment"`
	// Undone is false if the content is as it should be already.
	Undone bool `json:"undone"`
	// Left are the commits of the record that stood, and Previous the record that was gone back to; Previous is the zero value
	// if there is none.
	Left     Commits `json:"left"`
	Previous Commits `json:"previous,omitzero"`
	// Workload is the only one that was to be undone; nil for all.
	Workload *Workload `json:"workload,omitempty"`
	// Result is that of the new record: published, pending or unchanged.
	Result     releases.Outcome          `json:"result"`
	Signatures *publisher.SignatureCount `json:"signatures,omitempty"`
	Releases   []Release                 `json:"releases"`
	// Pause is the decision that was written; nil if none was.
	Pause    *bundle.Decision `json:"pause,omitempty"`
	Warnings []string         `json:"warnings,omitempty"`
}

// Commits are those of a record.
type Commits struct {
	Record            string    `json:"record"` // its tag
	BaseCommit        string    `json:"baseCommit,omitempty"`
	EnvironmentCommit string    `json:"environmentCommit,omitempty"`
	IssuedAt          time.Time `json:"issuedAt"`
}

// Release is a release of a cluster type after Undo.
type Release struct {
	ClusterType string `json:"clusterType"`
	publisher.PublishedRelease
}

// Undo gives back previous content; see Options. With several signers to come all is pending. Of opts, Undo uses Trust, OCI,
// Parallel and Now. The error wraps ErrNoPrevious if nothing is there to go back to, and is an *EmptiesError if cluster types would
// lose everything.
func Undo(ctx context.Context, to oci.Location, signers []*keys.Key, o Options, opts publisher.PublishOptions) (*Done, error) {
	if o.Workload != "" {
		return run(ctx, to, signers, o, opts, (*search).workload)
	}
	done, err := run(ctx, to, signers, o, opts, (*search).undo)
	if errors.Is(err, publisher.ErrUnfinished) { // what is there now is in no record: the record has what was there before
		return run(ctx, to, signers, o, opts, (*search).recorded)
	}
	return done, err
}

// Abort gives the narrower rings what the widest ring has, and pauses the environment. Of o it uses Environment, ClusterType,
// Reason and Show.
func Abort(ctx context.Context, to oci.Location, signers []*keys.Key, o Options, opts publisher.PublishOptions) (*Done, error) {
	return run(ctx, to, signers, o, opts, (*search).abort)
}

// found is what a search ends with: nothing to do if content is nil. Of one workload it has what changes.
type found struct {
	previous *bundle.VerifiedEnvironment
	content  *publisher.Content
	workload *Workload
	changes  []Change
}

func run(ctx context.Context, to oci.Location, signers []*keys.Key, o Options, opts publisher.PublishOptions, find func(*search, context.Context) (found, error)) (*Done, error) {
	if strings.ContainsFunc(o.Reason, unicode.IsControl) {
		return nil, usage.Errorf("the reason has to be one line, without control characters")
	}
	if len(o.Reason) > bundle.MaxReasonBytes {
		return nil, usage.Errorf("the reason has %d bytes, at most %d are kept", len(o.Reason), bundle.MaxReasonBytes)
	}
	if o.Reason == "" {
		return nil, usage.Errorf("the reason is missing: it is kept for those who find it undone")
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	var done *Done
	var pause *bundle.Decision
	published, err := publisher.Reissue(ctx, to, signers, o.Environment, func(ctx context.Context, at *state.Reader, record state.Record) (*publisher.Content, error) {
		r := record.Verified.Record
		done = &Done{Platform: at.Platform, Environment: at.Environment, Left: commitsOf(r), Releases: []Release{}}
		s := &search{Options: o, at: at, record: record, now: r}
		f, err := find(s, ctx)
		if done.Workload = f.workload; err != nil || f.content == nil {
			return nil, err
		}
		waits, err := at.PendingRecord(ctx, record)
		if err != nil {
			return nil, err
		}
		if waits != nil && (waits.Record.Former == "" || waits.Record.Former != f.content.Previous) { // not this undo itself
			at.Warn("what waits for signatures (%s) has not reached any cluster, so it is not what is undone: that is %s, which stands",
				published.PendingTag(waits.Record.Epoch, waits.Record.Sequence), r.Tag())
		}
		if done.Undone = true; f.previous != nil {
			done.Previous = commitsOf(f.previous.Record)
		}
		if f.workload != nil {
			return f.content, s.show(&Plan{Left: done.Left, Previous: done.Previous, Changes: f.changes, Workload: f.workload})
		}
		if err := s.takeBack(ctx, f.content, done); err != nil {
			return nil, err
		}
		if pause == nil { // before anything is released: automation would bring the content again
			if pause, err = o.pause(ctx, to, signers[0], at.Platform, opts); err != nil {
				return nil, err
			}
		}
		return f.content, nil
	}, opts)
	if done == nil {
		return done, err
	}
	done.Pause, done.Warnings = pause, published.Warnings
	done.Result, done.Signatures = published.Record.Result, published.Record.Signatures
	for _, row := range published.ClusterTypes {
		for _, r := range row.Releases {
			done.Releases = append(done.Releases, Release{row.ClusterType, r})
		}
	}
	return done, err
}

// Names names two records for people: by the commits that differ, else by their tags.
func Names(a, b Commits) (string, string) {
	for _, c := range [][2]string{{a.BaseCommit, b.BaseCommit}, {a.EnvironmentCommit, b.EnvironmentCommit}} {
		if c[0] != c[1] && c[0] != "" {
			return "commit " + c[0][:min(12, len(c[0]))], "commit " + c[1][:min(12, len(c[1]))]
		}
	}
	return "record " + a.Record, "record " + b.Record
}

func commitsOf(r bundle.EnvironmentRecord) Commits {
	return Commits{r.Tag(), r.BaseCommit, r.EnvironmentCommit, r.IssuedAt}
}

// pause switches automation off for the environment.
func (o Options) pause(ctx context.Context, to oci.Location, key *keys.Key, platform string, opts publisher.PublishOptions) (*bundle.Decision, error) {
	d := bundle.Decision{Action: bundle.Pause, Platform: platform, Environment: o.Environment, Reason: o.Reason}
	written, err := decisions.Write(ctx, to, opts.OCI, d, key, opts.Now())
	if err != nil {
		return nil, fmt.Errorf("pause: %w", err)
	}
	return &written.Decision, nil
}

// rings returns the rings of a cluster type, narrowest first, and the empty one for agents without a ring.
func (s *search) rings(name string) []string {
	order := publisher.RingOrder(s.now)
	if own := s.now.Rings[name]; len(own) > 0 {
		order = slices.DeleteFunc(order, func(ring string) bool { return own[ring] == "" })
	}
	return append(order, "")
}
