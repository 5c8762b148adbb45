package hubcmd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/bundle/certificate"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/admission"
	"github.com/wherry-dev/wherry/hub/api"
	"github.com/wherry-dev/wherry/hub/demo"
	"github.com/wherry-dev/wherry/hub/login"
	"github.com/wherry-dev/wherry/hub/upkeep"
)

// serving holds the flags of hub serve.
type serving struct {
	addr, certificate, key string
	adminToken, login      string
	insecure, anonymous    bool
	demo                   bool
	demoClusters           int
	streams, streamsEach   int
	perMinute, requests    int
	quota                  admission.Quota
	proxies, hosts         []string
	retention              upkeep.Retention
	upper                  upper
}

func newServeCommand(dir *location) *cobra.Command {
	var s serving
	var watch watching
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the hub",
		Long: `Serve the hub: take reports over HTTP and show the fleet, until interrupted. The first start creates the hub's folder,
database, key, and an access token of role admin in the file admin.token, good for 90 days.

Agents sign their reports and need no token. People and machines do: "wherry hub access create" makes more. On other
addresses than loopback, serve needs a certificate or --insecure-http. On loopback it answers only for localhost
and the names of --host; --anonymous lets everybody read there. --demo shows a sample fleet on loopback, in
which you may do anything, and leaves nothing behind.
With --login people sign in to the pages with their company's accounts.

To know what clusters should run, the hub follows releases at the location of --watch, or learns them from
"wherry publish --hub". Both need --trust or --trust-key.

More: wherry help running-a-hub`,
		Example: `  wherry hub serve
  wherry hub serve --demo
  wherry hub serve --addr :8443 --tls-cert hub.crt --tls-key hub-tls.key --data /var/lib/wherry-hub
  wherry hub serve --watch oci://127.0.0.1:5000/edge --trust trust.v1.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.demo && s.login != "" {
				return cli.Usagef("--demo and --login exclude each other: everybody may read the sample fleet")
			}
			s.anonymous = s.anonymous || s.demo
			options, err := s.options()
			if err == nil {
				err = watch.apply(&options)
			}
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("demo-clusters") && !s.demo || s.demoClusters < 1 || s.demoClusters > maxDemoClusters {
				return cli.Usagef("--demo-clusters: expected --demo, and a number from 1 to %d", maxDemoClusters)
			}
			if s.demo && (cmd.Flags().Changed("data") || cmd.Flags().Changed("database") || cmd.Flags().Changed("database-file")) {
				return cli.Usagef("--demo makes a hub of its own, and takes no --data and no --database")
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			listener, url, err := s.listen(log)
			if err != nil {
				return err
			}
			defer listener.Close()
			options.Log = log
			if s.demo {
				return withDemo(cmd.Context(), options, s.demoClusters, func(h *hub.Hub) error {
					return serve(cmd.Context(), h, listener, nil, func() error {
						cmd.PrintErrln("a sample fleet, which goes when this ends; nothing in it is real")
						_, err := fmt.Fprintln(cmd.OutOrStdout(), url)
						return err
					})
				})
			}
			return withHub(*dir, options, func(h *hub.Hub) error {
				release, err := h.Claim()
				if err != nil {
					return err
				}
				defer func() { _ = release() }()
				if err := logAdminToken(cmd, h, *dir, s.adminToken); err != nil {
					return err
				}
				background, err := s.background(h)
				if err != nil {
					return err
				}
				return serve(cmd.Context(), h, listener, background, func() error {
					log.Info("hub is ready", "url", url, "data", dir.String())
					if _, err := fmt.Fprintln(cmd.OutOrStdout(), url); err != nil {
						return cli.Fail(cli.Failed, fmt.Errorf("print the URL: %w", err), "")
					}
					return nil
				})
			})
		},
	}
	cmd.Flags().StringVar(&s.addr, "addr", "127.0.0.1:8080", "the `ADDRESS` to listen on, HOST:PORT; port 0 takes a free one")
	cmd.Flags().StringVar(&s.certificate, "tls-cert", "", "serve HTTPS with this certificate chain, a `FILE` in PEM, which is read again when it changes")
	cmd.Flags().StringVar(&s.key, "tls-key", "", "the certificate's key, a `FILE` in PEM, which is read again when it changes")
	cmd.Flags().StringVar(&s.adminToken, "admin-token-file", "", "take the first access token, of role admin, from this `FILE` instead of making one in admin.token of the folder")
	cmd.Flags().StringVar(&s.login, "login", "", "let people sign in by OpenID Connect, as this `FILE` says")
	cmd.Flags().BoolVar(&s.insecure, "insecure-http", false, "serve plain HTTP on other addresses than loopback, as behind a proxy with TLS")
	cmd.Flags().BoolVar(&s.anonymous, "anonymous", false, "on a loopback address, let requests without an access token read")
	cmd.Flags().BoolVar(&s.demo, "demo", false, "show a sample fleet in a temporary folder; everybody on this machine may change it")
	cmd.Flags().IntVar(&s.demoClusters, "demo-clusters", 120, "with --demo: the `NUMBER` of clusters")
	cmd.Flags().IntVar(&s.requests, "requests-per-minute", access.DefaultRequestsPerMinute, "take at most this `NUMBER` of requests a minute with one access token, and from one address; those of agents do not count")
	cmd.Flags().IntVar(&s.perMinute, "reports-per-minute", admission.DefaultReportsPerMinute, "take at most this `NUMBER` of reports a minute in all, divided among the agents that send")
	cmd.Flags().IntVar(&s.quota.Reports, "cluster-reports-per-hour", admission.DefaultQuota.Reports, "take at most this `NUMBER` of reports of a cluster at once, and as many again each hour")
	cmd.Flags().IntVar(&s.quota.Bytes, "cluster-bytes-per-hour", admission.DefaultQuota.Bytes, "take at most this `NUMBER` of bytes of a cluster at once, and as many again each hour")
	cmd.Flags().IntVar(&s.streams, "streams", api.DefaultStreams, "keep at most this `NUMBER` of streams of events open, as of \"wherry events\"")
	cmd.Flags().IntVar(&s.streamsEach, "streams-per-token", api.DefaultStreamsEach, "keep at most this `NUMBER` of streams of events open with one access token")
	cmd.Flags().StringSliceVar(&s.proxies, "trusted-proxy", nil, "believe X-Forwarded-For of proxies in this `CIDR`, so that bounds count their clients and not them (repeatable)")
	watch.addTo(cmd)
	cmd.Flags().StringSliceVar(&s.hosts, "host", nil, "on a loopback address, answer requests for this host `NAME` too (repeatable)")
	retentionFlags(cmd.Flags(), &s.retention)
	s.upper.flags(cmd.Flags())
	cli.NotEmpty(cmd, "admin-token-file", "login", "upstream", "upstream-key", "upstream-tls-ca")
	return cmd
}

// maxDemoClusters bounds the sample fleet to what is made within seconds.
const maxDemoClusters = 5000

// withDemo opens a hub with a sample fleet of so many clusters in a temporary folder, which it removes after use.
func withDemo(ctx context.Context, o hub.Options, clusters int, use func(*hub.Hub) error) error {
	folder, err := os.MkdirTemp("", "wherry-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	h, err := hub.Open(folder, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticks := time.NewTicker(time.Minute)
	defer ticks.Stop()
	filled, lived := make(chan struct{}), make(chan error, 1)
	go func() {
		lived <- demo.Live(ctx, filepath.Join(folder, hub.DatabaseFile), clusters, time.Now(), ticks.C, func() { close(filled) })
	}()
	select {
	case <-filled:
		err = use(h)
		cancel()
		err = errors.Join(err, <-lived)
	case err = <-lived:
	}
	return errors.Join(err, h.Close())
}

// renewBefore is how long before its end a start of the hub says that the admin token has to be renewed.
const renewBefore = 14 * 24 * time.Hour

// logAdminToken makes the first access token of a new hub, and says which file has it, until when it is good, and how to renew
// it; and later once that is near. The token itself is in the file alone: standard error ends in a journal.
func logAdminToken(cmd *cobra.Command, h *hub.Hub, dir location, given string) error {
	first, err := h.FirstAccess(cmd.Context())
	if given != "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, access.ErrToken)) {
		return cli.Fail(cli.Usage, fmt.Errorf("--admin-token-file: %w", err), "\"wherry install hub --secret\" makes one")
	}
	if err != nil {
		return err
	}
	kept, err := h.AdminToken(cmd.Context())
	if err != nil || kept.ExpiresAt.IsZero() || !kept.RevokedAt.IsZero() {
		return err
	}
	if first.ID() == "" && time.Until(kept.ExpiresAt) > renewBefore {
		return nil
	}
	if given != "" {
		cmd.PrintErrf("admin token in %s, %s; before that, make another: wherry hub access create NAME --role admin --expires 90d\n", given, expiryText(kept))
		return nil
	}
	file := filepath.Join(dir.folder, access.AdminTokenFile)
	cmd.PrintErrf("admin token in %s, %s; to renew it: wherry hub access revoke %s --data %s && wherry hub access create %s --role admin --expires 90d --data %s > %s\n",
		file, expiryText(kept), kept.Name, dir.folder, kept.Name, dir.folder, file)
	return nil
}

// options returns the flags for package hub.
func (s serving) options() (hub.Options, error) {
	if err := cmp.Or(checkRetention(s.retention), s.upper.check()); err != nil {
		return hub.Options{}, err
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"requests-per-minute", s.requests}, {"streams", s.streams}, {"streams-per-token", s.streamsEach}, {"reports-per-minute", s.perMinute}, {"cluster-reports-per-hour", s.quota.Reports}, {"cluster-bytes-per-hour", s.quota.Bytes}} {
		if f.value < 1 {
			return hub.Options{}, cli.Usagef("--%s: %d is too few", f.name, f.value)
		}
	}
	o := hub.Options{Admission: admission.Options{ReportsPerMinute: s.perMinute, Quota: s.quota}, Hosts: s.hosts, AdminTokenFile: s.adminToken, RequestsPerMinute: s.requests, Streams: s.streams, StreamsEach: s.streamsEach, Version: cli.Version()}
	switch {
	case s.demo:
		o.Anonymous = access.Admin
	case s.anonymous:
		o.Anonymous = access.Viewer
	}
	if s.login != "" {
		if s.anonymous {
			return o, cli.Usagef("--login and --anonymous exclude each other")
		}
		var err error
		if o.Login, err = login.Read(s.login); err != nil {
			return o, cli.Fail(cli.Usage, fmt.Errorf("--login: %w", err), `"wherry help login-file" lists its fields`)
		}
	}
	for _, p := range s.proxies {
		prefix, err := netip.ParsePrefix(p)
		if address, notPrefix := netip.ParseAddr(p); notPrefix == nil {
			prefix, err = address.Prefix(address.BitLen())
		}
		if err != nil {
			return o, cli.Fail(cli.Usage, fmt.Errorf("--trusted-proxy %q: not a range of addresses", p), "it looks like 10.0.0.0/8, or 10.0.0.7 for one proxy")
		}
		o.Admission.TrustedProxies = append(o.Admission.TrustedProxies, prefix)
	}
	return o, nil
}

// background returns the work that goes on while the hub serves.
func (s serving) background(h *hub.Hub) (all []func(context.Context) error, err error) {
	if s.upper.url != "" { // before retention, which keeps what was not forwarded
		f, err := s.upper.forwarder(h, false)
		if err != nil {
			return nil, err
		}
		all = append(all, f.Run)
	}
	return append(all, func(ctx context.Context) error { return h.Retain(ctx, s.retention) }, boundMemory), nil
}

// serve checks the database, calls ready, and serves until ctx ends, with the work in the background.
func serve(ctx context.Context, h *hub.Hub, listener net.Listener, background []func(context.Context) error, ready func() error) error {
	if err := h.Check(ctx); err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, work := range background {
		g.Go(func() error { return work(ctx) })
	}
	g.Go(func() error { return h.Serve(ctx, listener) })
	return g.Wait()
}

// listen opens the address, with TLS if a certificate is given, and returns its URL.
func (s serving) listen(log *slog.Logger) (net.Listener, string, error) {
	host, _, err := net.SplitHostPort(s.addr)
	if err != nil {
		return nil, "", cli.Fail(cli.Usage, fmt.Errorf("--addr: %w", err), "it looks like 127.0.0.1:8080, or :8080 for all addresses")
	}
	if (s.certificate == "") != (s.key == "") {
		return nil, "", cli.Usagef("--tls-cert and --tls-key need each other")
	}
	if s.certificate == "" && !s.insecure && !oci.IsLoopback(host) {
		return nil, "", cli.Fail(cli.Usage, fmt.Errorf("--addr %s: other machines can reach it, and plain HTTP hides nothing from them", s.addr),
			"give --tls-cert and --tls-key, or --insecure-http where a proxy has TLS")
	}
	if s.anonymous && !oci.IsLoopback(host) {
		return nil, "", cli.Fail(cli.Usage, fmt.Errorf("--anonymous: other machines can reach --addr %s", s.addr), "leave --anonymous out, and give people access tokens")
	}
	var config *tls.Config
	if s.certificate != "" {
		served, err := certificate.Open(s.certificate, s.key, log)
		if err != nil {
			return nil, "", cli.Fail(cli.Usage, err, "--tls-cert and --tls-key must be PEM files that belong together, and that the hub may read")
		}
		config = served.Config()
	}
	listener, err := cli.Listen("addr", s.addr)
	if err != nil {
		return nil, "", err
	}
	url := "http://" + reachable(listener.Addr())
	if config != nil {
		listener, url = tls.NewListener(listener, config), "https://"+reachable(listener.Addr())
	}
	return listener, url, nil
}

// reachable is an address that a person can open.
func reachable(a net.Addr) string {
	ap, err := netip.ParseAddrPort(a.String())
	if err == nil && ap.Addr().IsUnspecified() {
		return fmt.Sprintf("localhost:%d", ap.Port())
	}
	return a.String()
}
