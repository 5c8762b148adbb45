// Package web shows a fleet to people: pages for a browser.
//
// Begin with Routes. The pages are templates and embedded files: they work without a script, a build step or the internet, and
// escape all text of agents. Nothing here writes.
package web

import (
	"context"
	"net/http"
	"time"

	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/fleet"
)

// Answers is what the pages ask; a *fleet.View answers.
type Answers interface {
	fleet.Answers
	// Decided returns the decisions about an environment, newest first.
	Decided(ctx context.Context, platform, environment string) ([]fleet.Decided, error)
}

// Routes returns the pages. Answers returns what whoever sends a request may ask. Fail answers a request that cannot be
// answered; an error that wraps store.ErrInvalid is the client's fault.
func Routes(answers func(*http.Request) (Answers, error), now func() time.Time, fail func(http.ResponseWriter, *http.Request, error)) []access.Route {
	s := &site{answers: answers, now: now, fail: fail, page: parsed("fleet.html"), environments: parsed("environments.html")}
	page := func(path string, h http.HandlerFunc) access.Route {
		return access.Route{Pattern: "GET " + path, Permission: access.Read, Handler: h}
	}
	return []access.Route{
		page(clustersPath+"{$}", s.getClusters),
		page(deploymentsPath, s.getDeployments),
		page(environmentsPath, s.getEnvironments),
		{Pattern: "GET /style.css", Permission: access.Open, Handler: http.FileServerFS(assets())},
	}
}
