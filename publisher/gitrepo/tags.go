package gitrepo

import (
	"context"
	"fmt"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"

	"github.com/wherry-dev/wherry/publisher/egress"
)

// Tags lists the names of a repository's tags.
func (g *Reader) Tags(ctx context.Context, url string) ([]string, error) {
	var tags []string
	note := func(name plumbing.ReferenceName) {
		if name.IsTag() {
			tags = append(tags, name.Short())
		}
	}
	url = g.mirrors.Of(url)
	if path, ok := localPath(url); ok {
		repo, err := git.PlainOpenWithOptions(withSuffix(path), &git.PlainOpenOptions{EnableDotGitCommonDir: true})
		if err != nil {
			return nil, err
		}
		refs, err := repo.Tags()
		if err != nil {
			return nil, err
		}
		err = refs.ForEach(func(r *plumbing.Reference) error {
			note(r.Name())
			return nil
		})
		return tags, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.timeout, fmt.Errorf("no complete answer within %s", g.timeout))
	defer cancel()
	names, err := advertised(ctx, g.access, url)
	if ended(ctx) {
		return nil, context.Cause(ctx)
	}
	for _, name := range names {
		note(plumbing.ReferenceName(name))
	}
	return tags, Plain(err)
}

// advertised lists the names of a remote repository's references.
func advertised(ctx context.Context, access *egress.Access, url string) ([]string, error) {
	session, err := dial(ctx, access, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = session.Close() }() // it was read to its end, or has failed already
	server, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range server.References {
		names = append(names, name)
	}
	return names, nil
}
