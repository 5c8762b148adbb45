// Package web shows a fleet over HTTP: pages for people, and the same lists as JSON.
//
// Begin with Handle, or with Client, which reads the lists of another machine. The pages are templates and embedded
// files: they work without a script, a build step or the internet, and escape all text of agents. Whoever reaches the
// address may read them; nothing here writes.
package web

import (
	"net/http"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
)

// The paths of the lists.
const (
	clusterListPath    = "/v1/clusters"
	deploymentListPath = "/v1/deployments"
)

// Handle adds pages and lists of the fleet to mux. Fail answers a request that cannot be answered; an error that wraps
// store.ErrInvalid is the client's fault.
func Handle(mux *http.ServeMux, fleet store.Fleet, now func() time.Time, fail func(http.ResponseWriter, *http.Request, error)) {
	s := &site{fleet: fleet, now: now, fail: fail, page: fleetTemplate(now)}
	mux.HandleFunc("GET "+clusterListPath, serveList(s, fleet.Clusters))
	mux.HandleFunc("GET "+deploymentListPath, serveList(s, fleet.Deployments))
	mux.HandleFunc("GET "+clustersPath+"{$}", s.getClusters)
	mux.HandleFunc("GET "+deploymentsPath, s.getDeployments)
	mux.Handle("GET /style.css", http.FileServerFS(assets()))
}
