package hub

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/wherry-dev/wherry/bundle"
)

// defaultRows and maxRows bound the rows of one answer.
const (
	defaultRows = 500
	maxRows     = 1000
)

// serveList answers with the rows that the request's query chooses.
func serveList[T any](h *Hub, w http.ResponseWriter, r *http.Request, list func(context.Context, Filter) (T, error)) {
	f, err := filterOf(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	rows, err := list(r.Context(), f)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, rows)
}

// filterOf reads environment, type, state, workload, after and limit from the request's query.
func filterOf(r *http.Request) (Filter, error) {
	q := r.URL.Query()
	f := Filter{
		Environment: q.Get("environment"), Type: q.Get("type"), Workload: q.Get("workload"),
		State: bundle.State(q.Get("state")), After: q.Get("after"), Limit: defaultRows,
	}
	if s := q.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return f, badRequest("limit %q is not a positive number", s)
		}
		f.Limit = min(n, maxRows)
	}
	return f, nil
}

func (h *Hub) getReady(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	if err := h.Ready(ctx); err != nil {
		h.log.Error("not ready", "err", err)
		http.Error(w, "the database cannot be written", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
