package hub

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/store"
)

func TestTheStatusOfAnAgentIsARegistrationWithoutAKey(t *testing.T) {
	c, key, err := ParseStatus([]byte(`{"platform":"shop","state":"compliant","reportKey":"PEM",
		"cluster":{"uid":"u7","name":"plant-7","type":"drone","environment":"dev","ring":"canary","labels":{"site":"north"}}}`))
	require.NoError(t, err)
	require.Equal(t, "PEM", string(key))
	require.Equal(t, store.Cluster{Identity: store.Identity{
		UID: "u7", Name: "plant-7", Platform: "shop", Type: "drone", Environment: "dev", Ring: "canary", Labels: map[string]string{"site": "north"},
	}}, c)
	_, _, err = ParseStatus([]byte("state: compliant"))
	require.Error(t, err)
}
