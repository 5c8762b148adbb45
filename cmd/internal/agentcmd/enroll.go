package agentcmd

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// tokenVariable holds a token where no flag names one, so that it shows in no list of processes.
const tokenVariable = "WHERRY_ENROLL_TOKEN"

// maxTokenBytes bounds a file with a token.
const maxTokenBytes = 4 << 10

// enrollFlags are the flags for a request to a hub.
type enrollFlags struct {
	token, tokenFile     string
	rotate, anew, yes    bool
	replaceHub, listed   bool
	requestFile, accepts string
}

func newEnrollCommand() *cobra.Command {
	var f enrollFlags
	cmd := &cobra.Command{
		Use:   "enroll",
		Short: "Enroll this agent with a hub",
		Long: `Enroll this agent with a hub. With a token of "wherry hub tokens create" the agent registers
itself; the answer is signed by the hub that made the token, and from then on the agent needs neither --hub
nor --hub-key. A running agent does it at once; where none runs, its state is written. If the answer is lost,
run the same again: it uses nothing up.

Without a link, --request writes a file for "wherry hub clusters add --request", or for "wherry roster add",
and --accept takes the hub's answer, once, with --hub-key.

--rotate gives the agent a new key, which the old one vouches for; until the hub has answered, reports are
signed by both. Without a hub, --rotate --listed ends it, once the roster has the new key.

--new-identity makes a copy of a machine a cluster of its own: with another key and uid, and without the
reports of the machine that it was copied from. Never do that to the original.

Exit codes: 0 it is enrolled; 1 an earlier request comes first, no rotation was begun, or the agent has to be
ended; 2 wrong usage; 3 the hub is out of reach; 4 the hub refused, or what answered is not the hub.`,
		Example: example("enroll --hub https://hub.example.com --token-file plant-7.token --environment prod --cluster-type drone", "enroll --rotate"),
		Args:    cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, c *config.Config, _ []string) error {
			if err := f.check(c); err != nil {
				return err
			}
			return enrollError(f.run(cmd, c))
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.token, "token", "", "the `TOKEN`; others on this machine may see it, so better --token-file or $"+tokenVariable)
	flags.StringVar(&f.tokenFile, "token-file", "", "read the token from `FILE`, or from stdin for -")
	flags.BoolVar(&f.rotate, "rotate", false, "replace the agent's key by a new one")
	flags.BoolVar(&f.anew, "new-identity", false, "become another cluster, on a copy of a machine whose agent goes on")
	flags.BoolVar(&f.yes, "yes", false, "confirm --new-identity")
	flags.BoolVar(&f.listed, "listed", false, "with --rotate, where there is no hub: go over to the new key, which the roster has")
	flags.BoolVar(&f.replaceHub, "replace-hub", false, "leave the hub that the agent is enrolled at for the one that made the token")
	flags.StringVar(&f.requestFile, "request", "", "write the request to `FILE`, or to stdout for -, for somebody to carry")
	flags.StringVar(&f.accepts, "accept", "", "take the hub's answer to such a request from `FILE`, or from stdin for -")
	cmd.MarkFlagsMutuallyExclusive("rotate", "new-identity", "accept")
	cmd.MarkFlagsMutuallyExclusive("request", "accept", "listed")
	cmd.MarkFlagsMutuallyExclusive("request", "token")
	cmd.MarkFlagsMutuallyExclusive("request", "token-file")
	cmd.MarkFlagsMutuallyExclusive("token", "token-file")
	return cmd
}

func (f *enrollFlags) check(c *config.Config) error {
	switch {
	case f.anew && c.Cluster.UID != "":
		return cli.Usagef("--new-identity generates a uid, but cluster.uid is set: change or remove cluster.uid")
	case f.listed && !f.rotate:
		return cli.Usagef("--listed needs --rotate")
	case f.anew && !f.yes:
		return cli.Fail(cli.Usage, errors.New("--new-identity needs --yes"), "it gives up this machine's identity and the reports that wait: make sure that this is the copy, and not the original")
	}
	return nil
}

func (f *enrollFlags) kind() enroll.Kind {
	switch {
	case f.rotate:
		return enroll.Rotate
	case f.anew:
		return enroll.Anew
	}
	return enroll.AsIs
}

func (f *enrollFlags) run(cmd *cobra.Command, c *config.Config) error {
	switch {
	case f.accepts != "":
		return f.accept(cmd, c)
	case f.requestFile != "":
		return f.request(cmd, c)
	case f.listed:
		return enroller[enroll.Enrolled]{
			running: func(ctx context.Context, a agent.Client) (enroll.Enrolled, error) { return a.EndRotation(ctx) },
			resting: func(_ context.Context, a *agent.Agent) (enroll.Enrolled, error) { return a.Enroller().EndRotation() },
			report: func(e enroll.Enrolled) error {
				cmd.PrintErrf("%s signs with key %s alone from now on\n", e.Cluster.Name, e.KeyID)
				return nil
			},
		}.run(cmd, c)
	}
	o := enroll.Options{Kind: f.kind(), HubURL: c.Reports.Hub, ReplaceHub: f.replaceHub}
	if !f.rotate {
		var err error
		if o.Token, err = f.readToken(cmd, c); err != nil {
			return err
		}
	}
	return enroller[enroll.Enrolled]{
		running: func(ctx context.Context, a agent.Client) (enroll.Enrolled, error) { return a.Enroll(ctx, o) },
		resting: func(ctx context.Context, a *agent.Agent) (enroll.Enrolled, error) { return a.Enroller().Enroll(ctx, o) },
		report:  reportEnrolled(cmd, c),
	}.run(cmd, c)
}

func (f *enrollFlags) accept(cmd *cobra.Command, c *config.Config) error {
	answer, err := readBounded(cmd, f.accepts, bundle.MaxEnrollmentBytes)
	if err != nil {
		return err
	}
	if !json.Valid(answer) {
		return fmt.Errorf("%s: %w", f.accepts, bundle.ErrEnrollment)
	}
	var hubKey crypto.PublicKey
	if hubKey, err = c.HubKey(); err != nil {
		return err
	}
	return enroller[enroll.Enrolled]{
		running: func(ctx context.Context, a agent.Client) (enroll.Enrolled, error) {
			return a.Accept(ctx, answer, hubKey)
		},
		resting: func(_ context.Context, a *agent.Agent) (enroll.Enrolled, error) {
			return a.Enroller().Accept(answer, hubKey)
		},
		report: reportEnrolled(cmd, c),
	}.run(cmd, c)
}

func (f *enrollFlags) request(cmd *cobra.Command, c *config.Config) error {
	return enroller[[]byte]{
		running: func(ctx context.Context, a agent.Client) ([]byte, error) { return a.EnrollRequest(ctx, f.kind()) },
		resting: func(_ context.Context, a *agent.Agent) ([]byte, error) { return a.Enroller().Request(f.kind()) },
		report: func(request []byte) error {
			request = append(bytes.TrimSpace(request), '\n')
			if f.requestFile == "-" {
				_, err := cmd.OutOrStdout().Write(request)
				return err
			}
			if err := diskfile.Replace(f.requestFile, 0o644, request); err != nil {
				return cli.Fail(cli.Failed, err, "")
			}
			r, _, err := bundle.OpenEnrollmentRequest(request)
			if err != nil {
				return err
			}
			cmd.PrintErrf("wrote a request for %s (uid %s) to %s; key %s\n", r.Cluster.Name, r.Cluster.UID, f.requestFile, keyIDOf(r.Key))
			return nil
		},
	}.run(cmd, c)
}

func keyIDOf(pem string) string {
	keys, err := bundle.ParsePublicKeys([]byte(pem))
	if err != nil {
		return ""
	}
	id, err := bundle.KeyID(keys[0])
	if err != nil {
		return ""
	}
	return id
}

// lastingName is the cluster's as the agent has it that begins without these flags.
func lastingName(c *config.Config, flags *pflag.FlagSet) string {
	bare := pflag.NewFlagSet("", pflag.ContinueOnError)
	given := flags.Lookup("config")
	bare.String("config", given.DefValue, "")
	if given.Changed {
		_ = bare.Set("config", given.Value.String())
	}
	other, err := readConfig(bare, os.LookupEnv)
	if err != nil {
		return c.Cluster.Name // which was read a moment ago
	}
	return other.Cluster.Name
}

func reportEnrolled(cmd *cobra.Command, c *config.Config) func(enroll.Enrolled) error {
	return func(e enroll.Enrolled) error {
		at := "the hub"
		if e.HubURL != "" {
			at = e.HubURL
		}
		cmd.PrintErrf("enrolled at %s as %s (uid %s, %s/%s); key %s, the hub's %s\n",
			at, e.Cluster.Name, e.Cluster.UID, e.Cluster.Environment, e.Cluster.Type, e.KeyID, e.HubKeyID)
		if name := lastingName(c, cmd.Flags()); cmd.Flags().Changed("cluster-name") && name != c.Cluster.Name {
			cmd.PrintErrf("its reports will say %s, as its configuration does: write cluster.name: %s there\n", name, c.Cluster.Name)
		}
		return nil
	}
}

// enroller does something with the running agent, or with the state if none runs, and writes the outcome.
type enroller[T any] struct {
	running func(context.Context, agent.Client) (T, error)
	resting func(context.Context, *agent.Agent) (T, error)
	report  func(T) error
}

func (e enroller[T]) run(cmd *cobra.Command, c *config.Config) error {
	done, err := e.running(cmd.Context(), runningAgent(cmd, c))
	if errors.Is(err, control.ErrNotRunning) {
		err = c.RunResting(cmd.Context(), func(a *agent.Agent) (err error) {
			done, err = e.resting(cmd.Context(), a)
			return err
		})
	}
	if err != nil {
		return err
	}
	return e.report(done)
}

// readToken finds the token. No error repeats it.
func (f *enrollFlags) readToken(cmd *cobra.Command, c *config.Config) (string, error) {
	file := f.tokenFile
	switch v := os.Getenv(tokenVariable); {
	case f.token != "":
		return f.token, nil
	case file == "" && v != "":
		return v, nil
	case file == "" && c.Reports.EnrollToken != "":
		file = c.Reports.EnrollToken
	case file == "":
		return "", cli.Fail(cli.Usage, errors.New("no token: give --token-file FILE, or - for stdin, or $"+tokenVariable), `"wherry hub tokens create" makes one; without a link to the hub, see --request`)
	}
	data, err := readBounded(cmd, file, maxTokenBytes)
	return strings.TrimSpace(string(data)), err
}

// readBounded reads a file, or stdin where path is "-".
func readBounded(cmd *cobra.Command, path string, limit int64) ([]byte, error) {
	data, err := cli.ReadInput(cmd, path, limit)
	if err != nil {
		return nil, cli.Fail(cli.Usage, err, "")
	}
	return data, nil
}

// enrollError gives an error its exit code, and the person a way on.
func enrollError(err error) error {
	const unchanged = "nothing was changed; compare with what \"wherry hub keys show\" prints, and with the newest --request"
	err = append(Kinds[:len(Kinds):len(Kinds)],
		cli.Is(bundle.ErrEnrollment, cli.Usage, `"wherry hub clusters add --request FILE --answer FILE" writes an answer; a page of some other server is none`),
		cli.Is(agent.ErrRunning, cli.No, "such as with systemctl stop wherry-agent, and start it afterwards"),
		cli.Is(enroll.ErrNoRequest, cli.Denied, unchanged), cli.Is(bundle.ErrUntrusted, cli.Denied, unchanged)).Of(err)
	return cli.Otherwise(err, cli.Failed, cmp.Or(oci.CertificateHint(err),
		"is this the hub's address, and is it running? Run the same again then: what it has followed already is answered again"))
}
