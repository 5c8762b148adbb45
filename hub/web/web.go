// Package web shows a fleet over HTTP: pages for people, and the same lists as JSON.
//
// Begin with Routes, or with Client, which reads the lists of another machine. The pages are templates and embedded
// files: they work without a script, a build step or the internet, and escape all text of agents. Nothing here
// writes.
package web

import (
	"net/http"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

// The paths of the lists.
const (
	clusterListPath    = "/v1/clusters"
	deploymentListPath = "/v1/deployments"
)

// Routes returns pages and lists of the fleet. Fail answers a request that cannot be answered; an error that wraps
// store.ErrInvalid is the client's fault.
func Routes(fleet store.Fleet, now func() time.Time, fail func(http.ResponseWriter, *http.Request, error)) []access.Route {
	s := &site{fleet: fleet, now: now, fail: fail, page: fleetTemplate(now)}
	read := func(pattern string, h http.HandlerFunc) access.Route {
		return access.Route{Pattern: pattern, Permission: access.Read, Handler: onlyWhole(h, fail)}
	}
	return []access.Route{
		read("GET "+clusterListPath, serveList(s, fleet.Clusters)),
		read("GET "+deploymentListPath, serveList(s, fleet.Deployments)),
		read("GET "+clustersPath+"{$}", s.getClusters),
		read("GET "+deploymentsPath, s.getDeployments),
		{Pattern: "GET /style.css", Permission: access.Open, Handler: http.FileServerFS(assets())},
	}
}

// onlyWhole refuses requests with a scope, for a handler that knows none.
func onlyWhole(next http.Handler, fail func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !access.ScopeOf(r.Context()).Whole() {
			fail(w, r, &hubapi.Error{Code: hubapi.CodeForbidden, Message: "this is for access tokens without a scope"})
			return
		}
		next.ServeHTTP(w, r)
	})
}
