package web

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
)

// defaultRows and maxRows bound the rows of one answer.
const (
	defaultRows = 500
	maxRows     = 1000
)

// serveList answers with the rows that the request's query chooses.
func serveList[T any](s *site, list func(context.Context, store.Filter) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f, err := filterOf(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		rows, err := list(r.Context(), f)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		hubapi.WriteJSON(w, http.StatusOK, rows)
	}
}

// filterOf reads environment, type, state, workload, after and limit from the request's query.
func filterOf(r *http.Request) (store.Filter, error) {
	q := r.URL.Query()
	f := store.Filter{
		Environment: q.Get("environment"), Type: q.Get("type"), Workload: q.Get("workload"),
		State: bundle.State(q.Get("state")), After: q.Get("after"), Limit: defaultRows,
	}
	if s := q.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return f, fmt.Errorf("%w: %s", store.ErrInvalid, store.Plain(store.Clip(fmt.Sprintf("limit %q is not a positive number", s))))
		}
		f.Limit = min(n, maxRows)
	}
	return f, nil
}
