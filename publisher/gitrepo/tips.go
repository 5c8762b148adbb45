package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"

	"github.com/wherry-dev/wherry/publisher/egress"
)

// maxTips bounds the references that [Tips] reads of one repository.
const maxTips = 100_000

// Tips returns the commits, by name, that branches or tags of the repository at a URL or path have now; an empty name is the
// default branch. It fetches no objects, gives a remote repository timeout, and leaves out what the repository lacks. Servers are
// reached by access; nil means one with nothing of its own.
func Tips(ctx context.Context, access *egress.Access, url string, branches []string, timeout time.Duration) (map[string]string, error) {
	if err := CheckURL(url); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no complete answer within %s", timeout))
	defer cancel()
	if access == nil {
		access = egress.New()
	}
	if path, ok := localPath(url); ok {
		return localTips(withSuffix(path), branches)
	}
	tips, err := remoteTips(ctx, access, url, branches)
	if ended(ctx) {
		return nil, context.Cause(ctx)
	}
	return tips, Plain(err)
}

func remoteTips(ctx context.Context, access *egress.Access, url string, branches []string) (map[string]string, error) {
	session, err := dial(ctx, access, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = session.Close() }() // it was read to its end, or has failed already
	server, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return nil, err
	}
	if len(server.References) > maxTips {
		return nil, fmt.Errorf("%w: more than %d branches and tags", ErrTooLarge, maxTips)
	}
	return tipsOf(branches, func(name plumbing.ReferenceName) (plumbing.Hash, bool) {
		if name == plumbing.HEAD && server.Head != nil {
			return *server.Head, true
		}
		tip, found := server.References[name.String()]
		return tip, found
	}), nil
}

func localTips(path string, branches []string) (map[string]string, error) {
	repo, err := git.PlainOpenWithOptions(path, &git.PlainOpenOptions{EnableDotGitCommonDir: true})
	if err != nil {
		return nil, err
	}
	var failed error
	tips := tipsOf(branches, func(name plumbing.ReferenceName) (plumbing.Hash, bool) {
		found, err := repo.Reference(name, true)
		if err != nil {
			if !errors.Is(err, plumbing.ErrReferenceNotFound) {
				failed = err
			}
			return plumbing.ZeroHash, false
		}
		return found.Hash(), true
	})
	return tips, failed
}

func tipsOf(branches []string, lookup func(plumbing.ReferenceName) (plumbing.Hash, bool)) map[string]string {
	tips := map[string]string{}
	for _, branch := range branches {
		for _, name := range refNames(branch) {
			if tip, found := lookup(name); found {
				tips[branch] = tip.String()
				break
			}
		}
	}
	return tips
}
