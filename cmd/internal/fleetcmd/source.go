package fleetcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/cmd/internal/hubcmd"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// defaultURL is the hub that is asked if nothing names one.
const defaultURL = "http://127.0.0.1:8080"

// source is the flags for the hub that is asked.
type source struct {
	url, dir, authorities, tokenFile string

	// instead, if not nil, looks at the clusters that a query chooses, in place of a hub.
	instead func(context.Context, fleet.Query) (fleet.Answers, error)
	// by names who answers, for people.
	by string
	// answers, clock and columns stand in for the hub that the flags choose, the time, and the width of the terminal, in
	// tests.
	answers fleet.Answers
	clock   func() time.Time
	columns func() int
}

func (s *source) now() time.Time {
	if s.clock != nil {
		return s.clock()
	}
	return time.Now().UTC()
}

// width returns the width of the terminal, and zero if there is none.
func (s *source) width() int {
	if s.columns != nil {
		return s.columns()
	}
	return terminalWidth()
}

// ask opens the hub that the flags choose, for the time of use.
func (s *source) ask(cmd *cobra.Command, use func(fleet.Answers) error) error {
	if s.answers != nil || s.instead != nil {
		return failure.Hub(use(s.answers), "")
	}
	url, dir, err := s.choose()
	switch {
	case err != nil:
		return err
	case dir != "":
		s.by = "the hub in " + dir
		return askFolder(cmd.Context(), dir, use)
	}
	s.by = "the hub at " + url
	c, err := flags.NewHubClient(cmd, url, s.authorities, s.tokenFile)
	if err != nil {
		return err
	}
	err = failure.Hub(use(c), url)
	if errors.As(err, new(*hubapi.Error)) { // it has answered
		return err
	}
	return cli.Otherwise(err, cli.Failed, startHint)
}

// askFolder reads a hub's folder in this process.
func askFolder(ctx context.Context, dir string, use func(fleet.Answers) error) error {
	return hubcmd.WithFolder(dir, func(h *hub.Hub) error {
		answers, err := h.Answers(ctx, store.AccessScope{})
		if err == nil {
			err = use(answers)
		}
		return failure.Of(err)
	})
}

// addTo adds --hub, --data, --tls-ca and --token-file.
func (s *source) addTo(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&s.url, "hub", "", "the hub's `URL`")
	f.StringVar(&s.dir, "data", "", "the hub's `FOLDER`")
	f.StringVar(&s.authorities, "tls-ca", "", "authorities that are trusted beside the system's, a `FILE` in PEM; with --hub")
	f.StringVar(&s.tokenFile, "token-file", "", flags.HubTokenFlag)
}

// choose returns the URL, or the folder, of the hub that is asked.
func (s *source) choose() (url, dir string, err error) {
	if s.url != "" && s.dir != "" {
		return "", "", cli.Usagef("--hub and --data name two hubs")
	}
	url, dir = s.url, s.dir
	if url == "" && dir == "" {
		url, dir = os.Getenv(flags.HubVariable), os.Getenv(flags.HubDataVariable)
	}
	if url == "" && dir == "" {
		settings, err := flags.Settings()
		if err != nil {
			return "", "", err
		}
		url = settings.Hub.Text
	}
	if url == "" && dir == "" {
		url = defaultURL
		if _, err := os.Stat(filepath.Join("hub", hub.DatabaseFile)); err == nil {
			dir = "hub"
		}
	}
	if dir != "" && s.authorities != "" {
		return "", "", cli.Fail(cli.Usage, fmt.Errorf("--tls-ca is for a hub's URL, and %s is a folder", dir), "give --hub URL, or leave --tls-ca out")
	}
	if dir != "" && s.tokenFile != "" {
		return "", "", cli.Fail(cli.Usage, fmt.Errorf("--token-file is for a hub's URL, and %s is a folder", dir), "give --hub URL, or leave --token-file out")
	}
	return url, dir, nil
}

// startHint is the hint of a hub that does not answer.
const startHint = `start a hub with "wherry hub serve", or say which with --hub URL or --data DIR`
