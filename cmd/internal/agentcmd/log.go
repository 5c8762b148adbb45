package agentcmd

import (
	stdlog "log"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/wherry-dev/wherry/agent/config"
)

// slogTo makes the agent's log, and sends there what the libraries for Kubernetes would write to stderr
// in forms of their own.
func slogTo(cmd *cobra.Command, c *config.Config) *slog.Logger {
	var handler slog.Handler = slog.NewTextHandler(cmd.ErrOrStderr(), nil)
	if c.LogFormat == "json" {
		handler = slog.NewJSONHandler(cmd.ErrOrStderr(), nil)
	}
	log := slog.New(handler)
	klog.SetSlogLogger(log)
	ctrllog.SetLogger(logr.FromSlogHandler(handler))
	sendStandardLog(handler)
	return log
}

// sendStandardLog logs at level debug what the standard library would write to stderr by itself: net/http says there
// in its own words that a registry or a proxy has closed a connection, which is no news to an operator.
func sendStandardLog(to slog.Handler) {
	stdlog.SetFlags(0)
	stdlog.SetOutput(slog.NewLogLogger(to, slog.LevelDebug).Writer())
}
