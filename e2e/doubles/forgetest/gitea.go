package forgetest

import (
	"net/http"
)

// gitea is what of the API of Gitea and Forgejo is needed.
func (s *Server) gitea(mux *http.ServeMux) {
	s.serve(mux, "/api/v1", []route{
		{pattern: "GET /repos/{owner}/{repo}/pulls", query: "state sort milestone labels poster page limit", do: ours(func(c *call) answer {
			q := c.URL.Query()
			found := s.list(func(change *Change) bool {
				return q.Get("state") == "all" || (change.State == "open") == (q.Get("state") != "closed")
			})
			return answer{http.StatusOK, c.page(s.pulls(found), "limit")}
		})},
		{pattern: "POST /repos/{owner}/{repo}/pulls", writes: true, body: "title! body head! base! labels", do: ours(s.openPull(http.StatusConflict))},
		{pattern: "GET /repos/{owner}/{repo}/pulls/{index}", do: ours(s.getPull("index"))},
		{pattern: "PATCH /repos/{owner}/{repo}/pulls/{index}", writes: true, body: "title body state base labels", do: ours(s.editPull("index", http.StatusCreated))},
		{pattern: "GET /repos/{owner}/{repo}/labels", query: "page limit", do: ours(func(c *call) answer {
			all := []any{}
			for i, name := range s.labels {
				all = append(all, map[string]any{"id": i + 1, "name": name})
			}
			return answer{http.StatusOK, c.page(all, "limit")}
		})},
		{pattern: "POST /repos/{owner}/{repo}/labels", writes: true, body: "name! color! description", do: ours(func(c *call) answer {
			s.labels = append(s.labels, c.text("name"))
			return answer{http.StatusCreated, map[string]any{"id": len(s.labels), "name": c.text("name")}}
		})},
		{pattern: "POST /repos/{owner}/{repo}/issues/{index}/labels", writes: true, body: "labels!", do: ours(func(c *call) answer {
			change := c.change("index")
			for _, id := range c.in["labels"].([]any) {
				number, isNumber := id.(float64)
				if change == nil || !isNumber || int(number) > len(s.labels) {
					return s.refuse(http.StatusNotFound, "Not Found")
				}
				s.addLabel(change, s.labels[int(number)-1])
			}
			return answer{http.StatusOK, []any{}}
		})},
		{pattern: "GET /user", do: s.user},
		{pattern: "GET /repos/{owner}/{repo}/issues/{index}/comments", query: "since before", do: ours(s.issueComments("index"))},
		{pattern: "POST /repos/{owner}/{repo}/issues/{index}/comments", writes: true, body: "body!", do: ours(s.addIssueComment("index"))},
		{pattern: "PATCH /repos/{owner}/{repo}/issues/comments/{id}", writes: true, body: "body!", do: ours(s.editIssueComment("id"))},
		{pattern: "GET /repos/{owner}/{repo}/statuses/{sha}", query: "sort state page limit", do: ours(func(c *call) answer {
			if !s.hasCommit(c.PathValue("sha")) {
				return s.refuse(http.StatusNotFound, "object does not exist")
			}
			return answer{http.StatusOK, s.statusList(c.PathValue("sha"), "status")}
		})},
		{pattern: "POST /repos/{owner}/{repo}/statuses/{sha}", writes: true, body: "state! target_url description context", do: ours(func(c *call) answer {
			if !s.hasCommit(c.PathValue("sha")) {
				return s.refuse(http.StatusNotFound, "object does not exist")
			}
			return s.addStatus(c, "sha", "error", "failure", "pending", "success", "warning")
		})},
	})
}
