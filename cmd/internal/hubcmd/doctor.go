package hubcmd

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/hub"
)

// examining holds the flags of hub doctor.
type examining struct {
	watch            watching
	url, authorities string
}

func newDoctorCommand(dir *location) *cobra.Command {
	var e examining
	var format string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a hub for missing requirements",
		Long: `Say what the hub of a folder lacks, and what to do about it: key, database, disk, access tokens, trust documents, the
registries that it watches, and how many clusters are silent. Give --watch and --trust as to "wherry hub serve". With --url it
asks the hub that serves too: whether it answers, when its certificate ends, and whether its clock agrees with this one.

It works beside a hub that serves, and changes nothing.

Exit codes: 0 nothing is missing; 1 something is; 2 wrong usage.`,
		Example: "  wherry hub doctor --data /var/lib/wherry-hub --url https://hub.example.com",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := e.examine(cmd.Context(), *dir, nil)
			if err != nil {
				return err
			}
			return cli.PrintFindings(cmd, format, report)
		},
	}
	e.addTo(cmd)
	cli.OutputFlag(cmd, &format)
	return cmd
}

func (e *examining) addTo(cmd *cobra.Command) {
	e.watch.addTo(cmd)
	cmd.Flags().StringVar(&e.url, "url", "", "ask the hub that serves at this `URL` too")
	cmd.Flags().StringVar(&e.authorities, "tls-ca", "", "with --url: authorities that are trusted beside the system's, a `FILE` in PEM")
	cli.NotEmpty(cmd, "url", "tls-ca")
}

// examine makes all checks. A hub that cannot be opened is a finding. With it, use is called, unless that is nil.
func (e *examining) examine(ctx context.Context, dir location, use func(*hub.Hub) error) (r diagnosis.Report, err error) {
	options := hub.Options{MustExist: true, Version: cli.Version()}
	if err := e.watch.apply(&options); err != nil {
		return r, err
	}
	err = withHub(dir, options, func(h *hub.Hub) error {
		if r, err = h.Examine(ctx); err == nil && use != nil {
			err = use(h)
		}
		return err
	})
	var hinted *cli.Error
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case err != nil && len(r.Checks) > 0:
		return r, err
	case errors.As(err, &hinted) && hinted.Hint != "":
		r.Checks = append(r.Checks, diagnosis.Finding{Check: "folder", Result: diagnosis.Failed, Message: err.Error(), Remedy: hinted.Hint})
	case err != nil:
		r.Checks = append(r.Checks, diagnosis.Finding{Check: "folder", Result: diagnosis.Failed, Message: err.Error(), Remedy: "see whether this is the hub's folder, and whether this user may read it"})
	}
	if e.url != "" {
		served, err := diagnosis.Run(ctx, []diagnosis.Check{{Name: "serving", Limit: time.Minute, Run: e.checkServing}})
		if err != nil {
			return r, err
		}
		r.Checks = append(r.Checks, served.Checks...)
	}
	r.OK = r.Count(diagnosis.Failed) == 0
	return r, nil
}

// checkServing asks the hub that serves.
func (e *examining) checkServing(ctx context.Context) diagnosis.Finding {
	client, err := flags.NewHubHTTP(e.url, e.authorities)
	if err != nil {
		return diagnosis.Failf("name a file of certificates with --tls-ca", "%v", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+"/readyz", nil)
	if err != nil {
		return diagnosis.Failf("write it as https://hub.example.com", "--url: %v", err)
	}
	var skew time.Duration
	client.HTTP.Transport = diagnosis.Dated(client.HTTP.Transport, time.Now, func(ahead time.Duration) { skew = ahead })
	resp, err := client.HTTP.Do(req)
	if err != nil {
		return diagnosis.Failf("see whether the hub runs, and whether this is its address", "%v", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return diagnosis.Failf("see the hub's log", "it answers %s", resp.Status)
	}
	if skew.Abs() > time.Minute {
		return diagnosis.Warnf("run a time service such as chrony on both machines", "it is ready, and its clock differs by %s from this one", skew.Round(time.Second))
	}
	if end, ok := certificateEnd(resp.TLS); ok {
		if time.Until(end) < 14*24*time.Hour {
			return diagnosis.Warnf("renew it: the hub reads it again by itself", "it is ready, and its certificate ends at %s", end.Format(time.RFC3339))
		}
		return diagnosis.Okf("it is ready, and its certificate is good until %s", end.Format(time.RFC3339))
	}
	return diagnosis.Okf("it is ready, without TLS")
}

func certificateEnd(s *tls.ConnectionState) (time.Time, bool) {
	if s == nil || len(s.PeerCertificates) == 0 {
		return time.Time{}, false
	}
	return s.PeerCertificates[0].NotAfter, true
}
