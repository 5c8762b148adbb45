package promote

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/outgit"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler"
)

// history is that of a base: its commits, without their files. It is fetched when somebody asks.
type history struct {
	access  func(url string) Access
	base    scheduler.BaseRepo
	mirrors map[string]string
	timeout time.Duration

	git   *outgit.Git
	there map[string]bool // commits that were found in git
}

// gitTime is how long a command of git may take unless somebody says otherwise.
const gitTime = 2 * time.Minute

const headOfBase = "refs/read/head"

// open fetches the base's branch.
func (h *history) open(ctx context.Context) error {
	if h.git != nil {
		return nil
	}
	a := h.access(gitrepo.Mirrors(h.mirrors).Of(h.base.Repo))
	remote, err := outgit.RemoteOf(a.URL, a.User, a.Password)
	if err != nil {
		return err
	}
	if h.timeout <= 0 {
		h.timeout = gitTime
	}
	g, err := outgit.InitGit(ctx, remote, h.timeout)
	if err != nil {
		return err
	}
	from := "HEAD"
	if h.base.Branch != "" {
		from = "refs/heads/" + h.base.Branch
	}
	if _, err := g.Run(ctx, nil, "fetch", "--quiet", "--filter=tree:0", "--no-tags", "--no-write-fetch-head", "origin", "+"+from+":"+headOfBase); err != nil {
		return errors.Join(fmt.Errorf("read the history of base %s: %w", h.base.Name, err), g.Close())
	}
	h.git, h.there = g, map[string]bool{}
	return nil
}

func (h *history) close() {
	if h.git != nil {
		_ = h.git.Close() // temporary files only
	}
}

func (h *history) run(ctx context.Context, args ...string) (string, error) {
	if err := h.open(ctx); err != nil {
		return "", err
	}
	out, err := h.git.Run(ctx, nil, args...)
	return strings.TrimSpace(string(out)), err
}

// tip returns the newest commit of the base's branch.
func (h *history) tip(ctx context.Context) (string, error) {
	return h.run(ctx, "rev-parse", headOfBase)
}

var digits = lazyregexp.New(`^[0-9a-f]{7,64}$`)

// ErrNoCommit means that the base does not have the commit that was named.
var ErrNoCommit = errors.New("not a commit of the base's branch")

// resolve returns the commit with these first digits. It has to be in the history of the base's branch, or to be pinned.
func (h *history) resolve(ctx context.Context, text string) (string, error) {
	text = strings.ToLower(text)
	if !digits.MatchString(text) {
		return "", fmt.Errorf("%q: %w: seven hexadecimal digits of it are needed at least", text, ErrNoCommit)
	}
	if strings.HasPrefix(h.base.Commit, text) {
		return h.base.Commit, nil
	}
	if err := h.open(ctx); err != nil {
		return "", err
	}
	out, err := h.run(ctx, "rev-list", headOfBase)
	if err != nil {
		return "", err
	}
	found := ""
	for commit := range strings.Lines(out) {
		if commit = strings.TrimSpace(commit); strings.HasPrefix(commit, text) {
			if found != "" {
				return "", fmt.Errorf("%s stands for several commits: %w", text, ErrNoCommit)
			}
			found = commit
		}
	}
	if found == "" {
		return "", fmt.Errorf("%s: %w", text, ErrNoCommit)
	}
	return found, nil
}

// has reports whether a commit is there, or can be fetched by its name.
func (h *history) has(ctx context.Context, commit string) bool {
	if h.there[commit] {
		return true
	}
	_, err := h.run(ctx, "cat-file", "-e", commit+"^{commit}")
	if err != nil && (h.git == nil || !digits.MatchString(commit)) {
		return false
	}
	if err != nil {
		_, err = h.run(ctx, "fetch", "--quiet", "--filter=tree:0", "--no-tags", "--no-write-fetch-head", "origin", commit)
	}
	if err == nil {
		h.there[commit] = true
	}
	return err == nil
}

// isAncestor reports whether a is an ancestor of b. A commit that is not there any more, since the branch was rewritten, has no
// place among others.
func (h *history) isAncestor(ctx context.Context, a, b string) (bool, error) {
	if err := h.open(ctx); err != nil {
		return false, err
	}
	if !h.has(ctx, a) || !h.has(ctx, b) {
		return false, ctx.Err()
	}
	out, err := h.run(ctx, "rev-list", "--count", "--max-count=1", a, "^"+b)
	return out == "0", err
}

// Between returns the commits of an environment's base that are in the history of b and not in that of a, the newest first, and how many
// more there are. There are none if the base does not have one of the two any more. The error wraps ErrNoBase for an environment
// without a BaseRepo called main.
func Between(ctx context.Context, target *platform.Loaded, s platform.Source, a, b string) (listed []Commit, more int, err error) {
	base, err := baseOf(target)
	if err != nil {
		return nil, 0, err
	}
	h := &history{access: func(at string) Access { return Access{URL: at} }, base: base, mirrors: s.Mirrors, timeout: s.Timeout}
	defer h.close()
	return h.between(ctx, a, b)
}

// maxListed bounds the commits that are listed.
const maxListed = 50

// between returns the commits that are in the history of b and not in that of a, the newest first, and how many more there are.
func (h *history) between(ctx context.Context, a, b string) (listed []Commit, more int, err error) {
	if err := h.open(ctx); err != nil {
		return nil, 0, err
	}
	if !h.has(ctx, a) || !h.has(ctx, b) {
		return nil, 0, ctx.Err()
	}
	count, err := h.run(ctx, "rev-list", "--count", b, "^"+a)
	if err != nil {
		return nil, 0, err
	}
	all, err := strconv.Atoi(count)
	if err != nil {
		return nil, 0, fmt.Errorf("git rev-list: %w", err)
	}
	out, err := h.run(ctx, "log", "--no-show-signature", "--no-decorate", "--no-color", "--encoding=UTF-8", fmt.Sprintf("--max-count=%d", maxListed), "--format=%H%x00%ct%x00%an%x00%s", b, "^"+a)
	if err != nil {
		return nil, 0, err
	}
	for line := range strings.Lines(out) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), "\x00", 4)
		if len(parts) != 4 {
			continue
		}
		seconds, _ := strconv.ParseInt(parts[1], 10, 64) // git wrote it
		listed = append(listed, Commit{ID: parts[0], Time: time.Unix(seconds, 0).UTC(), Author: cut(parts[2], 100), Subject: cut(parts[3], 200)})
	}
	return listed, all - len(listed), nil
}
