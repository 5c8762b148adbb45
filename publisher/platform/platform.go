// Package platform reads the sources of a platform, from folders and git, into the scheduler's model.
//
// Begin with [Build], which reads, renders and pins an environment. [Load] is its first step alone: it reads one
// environment with its bases and workloads, and infers which environment that is where no option names it.
// [Environments] lists those that a platform has. The same sources give the same result, wherever they are read from.
// Nothing here signs or writes, and one source of an app team that cannot be read stops nobody else.
package platform

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/meter"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Source names the places that an environment of a platform is read from.
type Source struct {
	// Platform holds the environment's objects: a folder, or a git URL with #branch. A git URL without
	// a branch stands for the branch and path that the Environment object of that name on its default
	// branch gives.
	Platform string
	// Environment may be empty. Then it is the one that Environment objects say the platform is, see [WhichEnvironmentError].
	Environment string
	// Bases, if not empty, are read in order in place of what all BaseRepo objects name. Like Platform
	// they are folders or git URLs.
	Bases []string
	// Workloads are read in place of what the WorkloadRegistration of that name says.
	Workloads map[string]string
	// Checkouts are like Workloads, but may name registrations that the environment does not have.
	Checkouts map[string]string
	// Commit is the base commit, for Bases that neither git nor a BaseRepo gives one.
	Commit string
	// BaseAt is the commit at which the base "main" is read in place of the one that its BaseRepo pins; empty for that one.
	BaseAt string
	// WorkloadsAt returns the commit at which the workloads of a registration are read in place of the head of the branch that it
	// names; empty for the head, which is also read if the branch has that commit no more. Nil reads heads. It does not count for Workloads and
	// Checkouts.
	WorkloadsAt func(registration, repo, branch string) (commit string)
	// CompareShared compares what is read from commits with the work trees that are here; see Loaded.Shared.
	CompareShared bool
	// Mirrors maps prefixes of git URLs to their replacements, such as a folder with clones.
	Mirrors map[string]string
	// Output is a folder that is skipped if it is in a source. It may be empty.
	Output string
	// Named are further places that a person or the settings name, such as the registry of the bundles; see [egress.Access.Own].
	Named []string
	// Clone is the repository that Platform lies in, if what its objects name of this repository is to be read from it
	// where it is there. It may be nil.
	Clone *gitrepo.Clone
	// Timeout bounds the reading of one remote repository. Zero means two minutes.
	Timeout time.Duration
	// Sandbox is the command of sandbox.Options. Without one, no chart is rendered and no kustomization is built.
	Sandbox []string
	// Log may be nil, which is silent.
	Log *slog.Logger
}

func (s Source) timeout() time.Duration {
	if s.Timeout <= 0 {
		return 2 * time.Minute
	}
	return s.Timeout
}

// Loaded is an environment of a platform with all that belongs to it, ready to be rendered.
type Loaded struct {
	Model *scheduler.Model
	// Inferred is the origin of an inferred environment, such as "from envs/dev"; empty if the options name it.
	Inferred string
	// BaseCommit is the commit of the base named "main"; empty if unknown.
	BaseCommit string
	// BaseID identifies what was read of that base: it is git's ID of its folder, without the folders of environments. Commits with one
	// ID are the same base. It is empty if a BaseRepo did not name the base.
	BaseID string
	// BaseTime is the time of that commit; zero if it was not read from git.
	BaseTime time.Time
	// Source is the URL, without credentials, of the repository of the environment's own objects; empty
	// where they were read from a folder.
	Source string
	// EnvironmentCommit is the commit of the environment's own objects; empty where they are in no git.
	EnvironmentCommit string
	// EnvironmentTime is the time of that commit; zero if there is none.
	EnvironmentTime time.Time
	// Uncommitted lists the files of the platform's folder that git's commit there does not have as they were read;
	// then EnvironmentCommit is empty. UncommittedBase lists those of the bases' folders; then BaseCommit is empty.
	Uncommitted, UncommittedBase []string
	// Unread lists the WorkloadRegistrations whose sources could not be read, sorted by name. Model has
	// nothing of them.
	Unread []Unread
	// Shared lists what was read from a commit of a repository whose work tree here has other files, if Source.CompareShared asks
	// for that.
	Shared []Shared
	// Warnings is about the sources as such; those about objects are the model's.
	Warnings []finding.Finding

	// Before is the same environment at the base commit of its newest record, if [PolicyNow] has read that; else nil.
	Before *Loaded

	// Followed is what was read and may change.
	Followed Followed
	// Access reaches the servers of all that is fetched for the environment.
	Access *egress.Access

	meters *meter.Set          // count what is fetched for each registration
	places map[string]location // of the workloads, by registration, at the commits that were read
}

// Followed lists what an environment is read from, but for commits that are pinned. Mirrors have taken the place of URLs.
type Followed struct {
	Folders []string
	Refs    []gitrepo.Ref // each without a commit
	// Access reaches the servers of Refs.
	Access *egress.Access
}

func (f *Followed) add(p location, mirrors gitrepo.Mirrors, clone *gitrepo.Clone) {
	if p.folder != "" {
		if !slices.Contains(f.Folders, p.dir()) {
			f.Folders = append(f.Folders, p.dir())
		}
		return
	}
	ref := p.repo
	if ref.URL = mirrors.Of(ref.URL); clone != nil && ref.URL == p.repo.URL && clone.Is(ref.URL) && clone.Has(ref.Branch) {
		ref.URL = clone.Top
	}
	if ref.Commit == "" && !slices.Contains(f.Refs, ref) {
		f.Refs = append(f.Refs, ref)
	}
}

// Add adds what other lists.
func (f *Followed) Add(other Followed) {
	for _, dir := range other.Folders {
		f.add(location{folder: dir}, nil, nil)
	}
	for _, ref := range other.Refs {
		f.add(location{repo: ref}, nil, nil)
	}
	f.Access = cmp.Or(other.Access, f.Access)
}

// AddBranch adds a branch of a repository.
func (f *Followed) AddBranch(url, branch string, mirrors gitrepo.Mirrors) {
	f.add(location{repo: gitrepo.Ref{URL: url, Branch: branch}}, mirrors, nil)
}

// FollowedBy returns what is known before an environment is read: the place that s names, and those of s's options.
func FollowedBy(s Source) Followed { return followedBy(s, s.access()) }

func followedBy(s Source, access *egress.Access) Followed {
	f := Followed{Access: access}
	for _, place := range append([]string{s.Platform}, s.Bases...) {
		if p, err := parseLocation(place); err == nil {
			f.add(p, s.Mirrors, s.Clone)
		}
	}
	return f
}

// Unread is a WorkloadRegistration whose source could not be fetched or parsed. Which assignments it asks
// for is not known, so those that there were must stay.
type Unread struct {
	Registration string
	// Err is a [*SourceError], or joins [finding.Error]s.
	Err error
}

// Place is where the objects of an environment itself were read from.
type Place struct {
	// Dir is a folder on this machine; else the others are set.
	Dir string
	// URL is that of a git repository, or the path of one, and may hold credentials. Branch is empty for the default branch,
	// and for a commit that was named in place of a branch. Folder is ".", or lies below the top.
	URL, Branch, Folder string
}

// Place returns where the environment's own objects were read from.
func (l *Loaded) Place() Place {
	at := l.places[""]
	if at.folder != "" {
		return Place{Dir: at.dir()}
	}
	folder, err := gitrepo.CleanPath(at.path)
	if err != nil {
		folder = at.path // it was read, so this cannot be
	}
	return Place{URL: at.repo.URL, Branch: at.repo.Branch, Folder: folder}
}

// Part is what a source is to the environment.
type Part string

// The parts that an environment is read from.
const (
	PlatformPart Part = "platform"
	BasePart     Part = "base"
	WorkloadPart Part = "workload"
)

// SourceError means that a source could not be read. An error in the content of a source is a
// [finding.Error] instead.
type SourceError struct {
	Part  Part
	Name  string // of the BaseRepo or WorkloadRegistration; may be empty
	Place string // the folder, or the URL without credentials
	// At is the object that names the source; no place for one that the options name.
	At finding.Position
	// Unreachable is true if the same call may succeed later: the server does not answer.
	Unreachable bool
	Err         error
}

func (e *SourceError) Error() string {
	text := fmt.Sprintf("read %s: %v", strings.TrimSpace(string(e.Part)+" "+e.Name), e.Err)
	if e.Place != "" {
		text = fmt.Sprintf("read %s from %s: %v", strings.TrimSpace(string(e.Part)+" "+e.Name), e.Place, e.Err)
	}
	if e.At.File != "" {
		text = e.At.String() + ": " + text
	}
	return text
}

func (e *SourceError) Unwrap() error { return e.Err }

// Load reads an environment with its bases and workloads. It fetches what the objects name and the
// options do not replace. Errors are [*SourceError], [*WhichEnvironmentError] and [finding.Error], or of ctx.
// An app team's source that cannot be read is no error but Unread, unless the options name it and it is not there.
func Load(ctx context.Context, o Source) (*Loaded, error) {
	return load(ctx, o, (*loader).workloads)
}

// LoadPlatform is Load without the app teams' sources: what the platform team itself has written.
func LoadPlatform(ctx context.Context, o Source) (*Loaded, error) { return load(ctx, o) }

func load(ctx context.Context, o Source, more ...func(*loader, context.Context) error) (*Loaded, error) {
	access := o.access()
	l := newLoader(o, &Loaded{Model: scheduler.NewModel(o.Environment), Followed: followedBy(o, access), Access: access, meters: meter.NewSet(meter.Budget{}), places: map[string]location{}})
	defer l.close()
	steps := []func(*loader, context.Context) error{(*loader).platform, (*loader).bases, (*loader).checkEnvironment, (*loader).open}
	for _, step := range append(steps, more...) {
		if err := step(l, ctx); err != nil {
			return nil, err
		}
	}
	l.loaded.BaseTime, l.loaded.EnvironmentTime = l.times[l.loaded.BaseCommit], l.environmentTime()
	return l.loaded, nil
}

// addWorkloads adds the app teams' sources to what LoadPlatform has read of the same source, but for WorkloadsAt.
func (l *Loaded) addWorkloads(ctx context.Context, o Source) error {
	more := newLoader(o, l)
	defer more.close()
	return more.workloads(ctx)
}

func newLoader(o Source, loaded *Loaded) *loader {
	o.Timeout = o.timeout()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	repositories := gitrepo.NewReader(o.Timeout, o.Mirrors, loaded.Access)
	repositories.Use(o.Clone)
	return &loader{Source: o, given: o.Environment != "", git: repositories, times: map[string]time.Time{}, loaded: loaded}
}

func (l *loader) close() { _ = l.git.Close() } // removes temporary files only
