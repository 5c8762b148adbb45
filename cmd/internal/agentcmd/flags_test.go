package agentcmd

import (
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func TestFlagsGiveTheirValues(t *testing.T) {
	cmd := &cobra.Command{}
	addFlags(cmd, "")
	require.NoError(t, cmd.ParseFlags([]string{"--auth-host", "a", "--auth-host", "b:1", "--tls-post-quantum=false", "--interval", "85s"}))
	flag := given(cmd.PersistentFlags())
	for name, want := range map[string][]string{"auth-host": {"a", "b:1"}, "tls-post-quantum": {"false"}, "interval": {"85s"}, "deadline": nil, "key": nil} {
		values, ok := flag(name)
		require.Equal(t, want, values, name)
		require.Equal(t, want != nil, ok, name)
	}
}

func TestErrorsOfTheConfigurationHaveExitCodes(t *testing.T) {
	why := errors.New("why")
	for kind, code := range map[config.Kind]int{config.Invalid: cli.Usage, config.Refused: cli.Denied, config.Unusable: cli.Failed} {
		require.Equal(t, cli.Fail(code, why, "hint"), Kinds.Of(fmt.Errorf("more: %w", &config.Error{Kind: kind, Err: why, Hint: "hint"})))
	}
	require.Equal(t, why, Kinds.Of(why))
	require.NoError(t, Kinds.Of(nil))
}

func TestErrorsOfTheSocketSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		err  error
		hint string
	}{
		{control.ErrForbidden, "use sudo"},
		{control.ErrSilent, "restart it; it goes on where it was"},
		{control.ErrGone, "status shows whether the command was carried out"},
	} {
		var said *cli.Error
		require.ErrorAs(t, Kinds.Of(fmt.Errorf("pause: %w", c.err)), &said)
		require.Equal(t, cli.Failed, said.Code)
		require.Contains(t, said.Hint, c.hint)
		require.ErrorIs(t, said, c.err)
	}
}
