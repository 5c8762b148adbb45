package manage

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

const promotionPattern = "PUT /v1/promotion"

// putPromotion keeps what a judge has posted. The scope has to have the whole chain, and the one that was posted of the platform before.
func (m Manager) putPromotion(r *http.Request) (any, error) {
	var p store.Promotion
	if err := required(r, &p); err != nil {
		return nil, err
	}
	p.JudgedAt, p.NextLook = p.JudgedAt.UTC().Truncate(time.Second), p.NextLook.UTC().Truncate(time.Second)
	if err := p.Check(m.Now()); err != nil {
		return nil, err
	}
	all, err := m.Promotions.Promotions(r.Context())
	if err != nil {
		return nil, err
	}
	chain := p.Chain
	if i := slices.IndexFunc(all, func(o store.Promotion) bool { return o.Platform == p.Platform }); i >= 0 {
		chain = append(slices.Clone(chain), all[i].Chain...)
	} else if len(all) >= store.MaxPlatforms {
		return nil, fmt.Errorf("promotion: %w: judges of %d platforms have posted already, and a hub takes no more", store.ErrInvalid, len(all))
	}
	scope := access.ScopeOf(r.Context())
	for _, e := range chain {
		if !scope.HasEnvironment(e.Environment) || !wholeEnvironments(scope) {
			return nil, notWhole()
		}
	}
	return m.Promotions.PutPromotion(r.Context(), p, p.Content())
}
