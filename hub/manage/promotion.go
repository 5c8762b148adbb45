package manage

import (
	"net/http"
	"time"

	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

const promotionPattern = "PUT /v1/promotion"

// putPromotion keeps what a judge has posted. The scope has to have the whole chain.
func (m Manager) putPromotion(r *http.Request) (any, error) {
	var p store.Promotion
	if err := required(r, &p); err != nil {
		return nil, err
	}
	p.JudgedAt, p.NextLook = p.JudgedAt.UTC().Truncate(time.Second), p.NextLook.UTC().Truncate(time.Second)
	if err := p.Check(m.Now()); err != nil {
		return nil, err
	}
	scope := access.ScopeOf(r.Context())
	for _, e := range p.Chain {
		if !scope.HasEnvironment(e.Environment) || !wholeEnvironments(scope) {
			return nil, notWhole()
		}
	}
	return m.Promotions.PutPromotion(r.Context(), p, p.Content())
}
