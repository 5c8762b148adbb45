package oci

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"oras.land/oras-go/v2/registry/remote/auth"
)

// MayPush returns nil if the location's repository of that name takes content. It begins an upload and gives it up again, or
// writes an empty file beside a layout's; either leaves nothing behind.
func (l Location) MayPush(ctx context.Context, repository string, opts Options) error {
	switch {
	case l.Archive != "":
		return ErrReadOnly
	case l.Dir != "":
		return mayWrite(l.Dir)
	}
	s, err := openRegistry(l, opts)
	if err != nil {
		return err
	}
	target, err := s.Repository(repository)
	if err != nil {
		return err
	}
	return target.(*remoteRepository).mayPush(ctx)
}

// mayWrite writes a file in a folder, or in its nearest parent that exists, and removes it.
func mayWrite(dir string) error {
	for {
		_, err := os.Stat(dir)
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	f, err := os.CreateTemp(dir, ".wherry-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func (r *remoteRepository) mayPush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	resp, err := r.send(ctx, http.MethodPost, "blobs/uploads/", auth.ActionPull, auth.ActionPush)
	if err != nil {
		return explain("push to", r.name, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return explain("push to", r.name, errorAnswer(resp))
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxMetadataBytes))
	upload, err := resp.Location()
	if err != nil || upload.Host != resp.Request.URL.Host {
		return nil // the registry ends it by itself
	}
	req, err := http.NewRequestWithContext(auth.AppendRepositoryScope(ctx, r.repo.Reference, auth.ActionPull, auth.ActionPush), http.MethodDelete, upload.String(), nil)
	if err != nil {
		return err
	}
	if resp, err := r.repo.Client.Do(req); err == nil {
		resp.Body.Close() // a registry that cannot end it does so later
	}
	return nil
}

// send sends a request of newRequest.
func (r *remoteRepository) send(ctx context.Context, method, what string, actions ...string) (*http.Response, error) {
	req, err := r.newRequest(ctx, method, what, actions...)
	if err != nil {
		return nil, err
	}
	return r.repo.Client.Do(req)
}
