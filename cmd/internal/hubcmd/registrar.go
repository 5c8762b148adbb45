package hubcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/client"
	"github.com/wherry-dev/wherry/hub/store"
)

// registrar is the clusters and enrollment tokens of a hub: of its folder, or over HTTP.
type registrar interface {
	Register(ctx context.Context, c store.Cluster, request []byte, replace bool) (changed bool, answer []byte, err error)
	RemoveCluster(ctx context.Context, nameOrUID string) (store.Registration, error)
	RetireCluster(ctx context.Context, nameOrUID, reason string) (store.Registration, error)
	Unshare(ctx context.Context, nameOrUID string) (store.Registration, error)
	AllRegistrations(ctx context.Context) ([]store.Registration, error)
	Enroll(ctx context.Context, envelope []byte) ([]byte, error)
	CreateToken(ctx context.Context, s store.TokenScope) (bundle.EnrollToken, error)
	Tokens(ctx context.Context) ([]store.Token, error)
	RevokeToken(ctx context.Context, id string) error
}

var (
	_ registrar = (*hub.Hub)(nil)
	_ registrar = client.Client{}
)

// registrations opens what is registered at the hub that the flags choose for the time of use. In a folder, a hub is made unless
// mustExist is true.
func (a *administrator) registrations(cmd *cobra.Command, mustExist bool, use func(registrar) error) error {
	return a.choose(cmd, hub.Options{MustExist: mustExist}, func(h *hub.Hub) error { return use(h) }, func(c client.Client) error { return use(c) })
}
