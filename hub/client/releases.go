package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// SendReleases sends an archive of what was published, and returns what the hub has learned from it. The error is a
// *hubapi.Error if the hub refuses it. The timeout of Client.HTTP does not hold: the context bounds the time.
func (c Client) SendReleases(ctx context.Context, archive io.Reader) (hubapi.Learned, error) {
	ctx, cancel := context.WithTimeout(ctx, hubapi.MaxBodyTime)
	defer cancel()
	client := *c.client()
	client.Timeout = 0
	var learned hubapi.Learned
	answer, err := c.send(ctx, &client, http.MethodPost, "v1/releases", nil, archive, hubapi.ContentType, "Content-Type", hubapi.ArchiveContentType)
	if err != nil {
		return learned, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, hubapi.MaxLearnedBytes+1))
	if err != nil {
		return learned, c.wrap(reasonOf(err))
	}
	if len(body) > hubapi.MaxLearnedBytes {
		return learned, c.wrap(errTooLarge)
	}
	if err := json.Unmarshal(body, &learned); err != nil {
		return learned, c.wrap(errors.New(store.Plain("the answer is not a hub's: " + err.Error())))
	}
	fleet.Plain(&learned)
	return learned, nil
}
