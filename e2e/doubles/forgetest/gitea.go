package forgetest

import (
	"net/http"
)

// gitea is what of the API of Gitea and Forgejo is needed.
func (s *Server) gitea(mux *http.ServeMux) {
	s.serve(mux, "/api/v1", []route{
		{pattern: "GET /repos/{owner}/{repo}/pulls", query: "state sort milestone labels poster page limit", do: func(c *call) answer {
			q := c.URL.Query()
			found := s.list(func(change *Change) bool {
				return q.Get("state") == "all" || (change.State == "open") == (q.Get("state") != "closed")
			})
			return answer{http.StatusOK, c.page(s.pulls(found), "limit")}
		}},
		{pattern: "POST /repos/{owner}/{repo}/pulls", writes: true, body: "title! body head! base! labels", do: s.openPull(http.StatusConflict)},
		{pattern: "GET /repos/{owner}/{repo}/pulls/{index}", do: s.getPull},
		{pattern: "PATCH /repos/{owner}/{repo}/pulls/{index}", writes: true, body: "title body state base labels", do: s.editPull(http.StatusCreated)},
		{pattern: "GET /repos/{owner}/{repo}/commits/{sha}/pull", do: func(c *call) answer {
			if found := s.ofCommit(c.PathValue("sha")); len(found) > 0 {
				return answer{http.StatusOK, s.pull(found[0])}
			}
			return s.refuse(http.StatusNotFound, "Not Found")
		}},
		{pattern: "GET /repos/{owner}/{repo}/labels", query: "page limit", do: func(c *call) answer {
			all := []any{}
			for i, name := range s.labels {
				all = append(all, map[string]any{"id": i + 1, "name": name})
			}
			return answer{http.StatusOK, c.page(all, "limit")}
		}},
		{pattern: "POST /repos/{owner}/{repo}/labels", writes: true, body: "name! color! description", do: func(c *call) answer {
			s.labels = append(s.labels, c.text("name"))
			return answer{http.StatusCreated, map[string]any{"id": len(s.labels), "name": c.text("name")}}
		}},
		{pattern: "POST /repos/{owner}/{repo}/issues/{index}/labels", writes: true, body: "labels!", do: func(c *call) answer {
			for _, id := range c.in["labels"].([]any) {
				number, isNumber := id.(float64)
				if !isNumber || int(number) > len(s.labels) {
					return s.refuse(http.StatusNotFound, "Not Found")
				}
				s.addLabel(c.change, s.labels[int(number)-1])
			}
			return answer{http.StatusOK, []any{}}
		}},
		{pattern: "GET /user", do: s.user},
		{pattern: "GET /repos/{owner}/{repo}/issues/{index}/comments", query: "since before", do: s.issueComments},
		{pattern: "POST /repos/{owner}/{repo}/issues/{index}/comments", writes: true, body: "body!", do: s.addIssueComment},
		{pattern: "PATCH /repos/{owner}/{repo}/issues/comments/{id}", writes: true, body: "body!", do: s.editIssueComment("id")},
		{pattern: "GET /repos/{owner}/{repo}/statuses/{sha}", query: "sort state page limit", do: func(c *call) answer {
			return answer{http.StatusOK, s.statusList(c.PathValue("sha"), "status")}
		}},
		{pattern: "POST /repos/{owner}/{repo}/statuses/{sha}", writes: true, body: "state! target_url description context", do: func(c *call) answer {
			return s.addStatus(c, "sha", "error", "failure", "pending", "success", "warning")
		}},
	})
}
