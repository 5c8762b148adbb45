package promotecmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/child"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/sandbox"
	"github.com/wherry-dev/wherry/publisher/settings"
	"github.com/wherry-dev/wherry/publisher/trust"
)

const (
	// checkTime bounds what one check asks others, and readTime the reading of all repositories.
	checkTime = 30 * time.Second
	readTime  = 10 * time.Minute
	// maxSkew is a difference of clocks that the order of releases can live with.
	maxSkew = time.Minute
	// enoughRoom is what the temporary files of a large publication take; a tenth of it does for a small one.
	enoughRoom = 1 << 30
)

// Examination holds the flags of a command that says what a publisher or a promoter lacks. Add them with AddTo.
type Examination struct {
	promoting
	cmd  *cobra.Command
	args []string

	settings     *settings.Settings // nil if they cannot be read
	environments []string
	skews        map[string]time.Duration // of this machine's clock against those of others
}

// AddTo adds the flags.
func (e *Examination) AddTo(cmd *cobra.Command) {
	e.Source.AddReading(cmd)
	e.Registry.AddTo(cmd)
	e.Signers.AddReleases(cmd)
	e.Signing.AddTo(cmd, "the `LOCATION` to publish to (default the registry of the settings)")
	e.forge.AddTo(cmd)
	e.AddFacts(cmd)
	f := cmd.Flags()
	f.StringVarP(&e.options.To, "environment", "e", "", "read only the environment `NAME`")
	f.Lookup("hub").Usage = "examine the hub at this `URL` as a client of it (default the hub of the settings)"
	cli.NotEmpty(cmd, "environment")
	_ = cmd.RegisterFlagCompletionFunc("environment", flags.CompleteEnvironments)
}

// Examine makes all checks. It changes nothing. Its error is that of the command's context.
func (e *Examination) Examine(cmd *cobra.Command, args []string) (diagnosis.Report, error) {
	e.cmd, e.args, e.skews = cmd, args, map[string]time.Duration{}
	return diagnosis.Run(cmd.Context(), []diagnosis.Check{
		{Name: "settings", Limit: checkTime, Run: e.checkSettings},
		{Name: "programs", Limit: checkTime, Run: e.checkPrograms},
		{Name: "disk", Limit: checkTime, Run: e.checkDisk},
		{Name: "sandbox", Limit: checkTime, Run: e.checkSandbox},
		{Name: "repositories", Limit: readTime, Run: e.checkRepositories},
		{Name: "key", Limit: checkTime, Run: e.checkKeys},
		{Name: "registry", Limit: checkTime, Run: e.checkRegistry},
		{Name: "trust", Limit: checkTime, Run: e.checkTrust},
		{Name: "hub", Limit: checkTime, Run: e.checkHub},
		{Name: "forge", Limit: checkTime, Run: e.checkForge},
		{Name: "clock", Limit: checkTime, Run: e.checkClock},
	})
}

// Doctor returns the command wherry doctor.
func Doctor() *cobra.Command {
	var e Examination
	var format string
	cmd := &cobra.Command{
		Use:   "doctor [PLATFORM]",
		Short: "Check a publisher or promoter for missing requirements",
		Long: `Say what "wherry publish" and "wherry promote" lack on this machine, and what to do about it: settings, programs, room for
temporary files, the sandbox for charts, all repositories that environments are read from, the key, the right to push to the
registry, the trust document, the hub and its access token, the token for the forge, and the clock. Nothing is changed or
published: the key signs a text that is thrown away, and an upload to the registry is begun and given up.

"wherry hub doctor" examines a hub, "wherry-agent doctor" an agent.

Exit codes: 0 nothing is missing; 1 something is; 2 wrong usage.`,
		Example: "  wherry doctor\n  wherry doctor https://github.com/example/platform --to oci://registry.example.com/edge --key cosign.key",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := e.Examine(cmd, args)
			if err != nil {
				return err
			}
			return cli.PrintFindings(cmd, format, report)
		},
	}
	e.AddTo(cmd)
	cli.OutputFlag(cmd, &format)
	return cmd
}

// failed is the finding of an error, with its hint as the remedy, else another.
func failed(err error, remedy string) diagnosis.Finding {
	var said *cli.Error
	if errors.As(failure.Of(err), &said) {
		remedy = cmp.Or(said.Hint, remedy)
	}
	return diagnosis.Failf(remedy, "%v", err)
}

func (e *Examination) checkSettings(context.Context) diagnosis.Finding {
	if err := e.forge.Read(); err != nil {
		return failed(err, "name a known kind of forge with --forge")
	}
	e.Source.Environment = e.options.To
	place, err := e.Source.ResolveAll(e.cmd, e.args)
	if err != nil {
		return failed(err, `"wherry config view" shows all settings`)
	}
	e.place, e.settings = place, e.Source.Settings()
	e.Fleet.Default(e.settings)
	e.First = cmp.Or(e.First, e.settings.Trust.Text)
	if e.settings.Platform != nil && place == "." {
		place = e.settings.Platform.Dir
	}
	return diagnosis.Okf("wherry %s; the platform is %s", cli.Version(), show.Line(settings.Public(place)))
}

func (e *Examination) checkPrograms(ctx context.Context) diagnosis.Finding {
	out, err := exec.CommandContext(ctx, "git", "version").Output()
	if err != nil {
		return diagnosis.Warnf("install git 2.36 or newer", `no git: "wherry promote" and "wherry render --to-git" need it (%v)`, err)
	}
	return diagnosis.Okf("%s", show.Line(strings.TrimSpace(string(out))))
}

func (e *Examination) checkDisk(context.Context) diagnosis.Finding {
	dir := os.TempDir()
	f, err := os.CreateTemp(dir, "wherry-doctor-*")
	if err != nil {
		return diagnosis.Failf("let this user write there, or name another folder with TMPDIR", "temporary files: %v", err)
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return diagnosis.Failf("let this user write there, or name another folder with TMPDIR", "temporary files: %v", err)
	}
	free, known := oci.RoomIn(dir)
	switch {
	case !known:
		return diagnosis.Okf("%s can be written", dir)
	case free < enoughRoom/10:
		return diagnosis.Failf("make room there, or name another folder with TMPDIR", "%s has %d MiB free", dir, free>>20)
	case free < enoughRoom:
		return diagnosis.Warnf("make room there, or name another folder with TMPDIR", "%s has %d MiB free, which is little for a large platform", dir, free>>20)
	}
	return diagnosis.Okf("%s has %d MiB free", dir, free>>20)
}

func (e *Examination) checkSandbox(context.Context) diagnosis.Finding {
	box := sandbox.New(sandbox.Options{Command: child.Self(sandbox.Name)})
	defer box.Close()
	means, err := box.Confinement()
	switch {
	case err != nil:
		return diagnosis.Failf("let this user start processes; charts and kustomizations are rendered in one", "%v", err)
	case len(means) < 2:
		return diagnosis.Warnf("run it on Linux with seccomp, if app teams are not trusted", "charts and kustomizations are rendered in a process of their own, which the kernel does not confine further")
	}
	return diagnosis.Okf("charts and kustomizations are rendered in a process that is confined by %s", strings.Join(means[1:], ", "))
}

// checkRepositories reads all that environments are made of.
func (e *Examination) checkRepositories(ctx context.Context) diagnosis.Finding {
	if e.settings == nil {
		return diagnosis.Skipf("there is no platform")
	}
	const remedy = "give the token or the login that this repository needs, or mend its URL"
	e.Location, _ = flags.Location(e.settings, "to", e.To) // said by another check
	if err := e.locate(e.cmd, e.place); err != nil {
		return failed(err, remedy)
	}
	source, err := e.Source.Of("").Options(e.place, e.Location.Dir)
	if err != nil {
		return failed(err, remedy)
	}
	all, err := platform.Environments(ctx, source)
	if errors.Is(err, platform.ErrNoEnvironments) {
		source.Environment = e.Source.Environment
		all, err = []platform.Source{source}, nil
	}
	if err != nil {
		return failed(failure.Input(err), remedy)
	}
	var unread []string
	repositories := map[string]bool{}
	for _, s := range all {
		if e.options.To != "" && s.Environment != "" && s.Environment != e.options.To {
			continue
		}
		loaded, err := platform.Load(ctx, s)
		if err != nil {
			return failed(failure.Input(err), remedy)
		}
		e.environments = append(e.environments, cmp.Or(loaded.Model.EnvironmentName(), s.Environment))
		for _, u := range loaded.Unread {
			unread = append(unread, fmt.Sprintf("%s: %s", u.Registration, show.Line(u.Err.Error())))
		}
		for _, ref := range loaded.Followed.Refs {
			repositories[ref.URL] = true
		}
	}
	slices.Sort(unread)
	if unread = slices.Compact(unread); len(unread) > 0 {
		return diagnosis.Warnf(remedy+"; until then their assignments keep what the last release gave them", "%s cannot be read: %s", show.Count(len(unread), "registration"), strings.Join(unread, "; "))
	}
	return diagnosis.Okf("%s can be read: %s; from %s in git", show.Count(len(e.environments), "environment"), show.Line(strings.Join(e.environments, ", ")), show.Count(len(repositories), "place"))
}

func (e *Examination) checkKeys(context.Context) diagnosis.Finding {
	if e.settings == nil {
		return diagnosis.Skipf("there are no settings")
	}
	if err := e.Signers.Default(e.settings); err != nil {
		return failed(err, "name a key")
	}
	opened, err := e.Signers.Open(e.cmd)
	if err != nil {
		return failed(err, "see whether the key is there, and its password right")
	}
	var ids []string
	for _, key := range opened {
		if _, err := key.SignMessage(bytes.NewReader([]byte("wherry doctor"))); err != nil {
			return diagnosis.Failf("let this user sign with the key", "a key does not sign: %v", err)
		}
		id, err := bundle.KeyID(key.Public())
		if err != nil {
			return diagnosis.Failf("use an ECDSA or RSA key", "%v", err)
		}
		ids = append(ids, id[:12])
	}
	e.Keys = opened
	return diagnosis.Okf("%s can sign: %s", show.Count(len(ids), "key"), strings.Join(ids, ", "))
}

// checkRegistry asks for the newest record of an environment, and whether content may be pushed.
func (e *Examination) checkRegistry(ctx context.Context) diagnosis.Finding {
	if e.settings == nil {
		return diagnosis.Skipf("there are no settings")
	}
	to, err := flags.Location(e.settings, "to", e.To)
	if err != nil {
		return failed(err, "name a registry")
	}
	e.Location = to
	options := e.Registry.Options()
	options.HTTPClient = e.dated(to.Host, options.HTTPClient)
	name := bundle.TrustRepository
	if len(e.environments) > 0 {
		name = bundle.EnvironmentRepository(e.environments[0])
	}
	store, err := to.Open(options)
	if err != nil {
		return failed(failure.At(err, to), "mend --to")
	}
	repo, err := store.Repository(name)
	if err != nil {
		return failed(err, "mend --to")
	}
	has := "has a record of " + name
	_, err = repo.Resolve(ctx, bundle.LatestTag)
	if errors.Is(err, errdef.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, oci.ErrNoLayout) {
		has, err = "has nothing in "+name+" yet", nil
	}
	if err == nil {
		err = to.MayPush(ctx, name, options)
	}
	if err != nil {
		return failed(failure.At(err, to), "let this user read and write there")
	}
	return diagnosis.Okf("%s takes content, and %s", to, has)
}

func (e *Examination) checkTrust(ctx context.Context) diagnosis.Finding {
	switch {
	case e.settings == nil:
		return diagnosis.Skipf("there are no settings")
	case e.First == "":
		return diagnosis.Okf("no trust document: agents pin the key")
	}
	signers, err := flags.OpenTrust(ctx, e.First, e.Location, e.Registry.Options())
	if err != nil {
		return failed(err, "publish the trust document, or name version 1 of it with --trust")
	}
	d := signers.Document
	may := 0
	for _, key := range e.Keys {
		if id, err := bundle.KeyID(key.Public()); err == nil && len(trust.NamesOf(signers, []string{id})) > 0 {
			may++
		}
	}
	left := time.Until(d.ExpiresAt)
	message := fmt.Sprintf("version %d, epoch %d, valid until %s; releases need %d of %d keys, of which %d are here", d.Version, d.Epoch, d.ExpiresAt.Format(time.RFC3339),
		d.Release.Threshold, len(d.Release.Keys), may)
	const renew = `have the roots sign the next version: "wherry trust rotate"`
	switch {
	case left <= 0:
		return diagnosis.Failf(renew, "%s; it has expired: nothing can be published", message)
	case len(e.Keys) > 0 && may == 0:
		return diagnosis.Failf(`sign with a release key of the document; "wherry trust show" lists them`, "%s", message)
	case left < 30*24*time.Hour:
		return diagnosis.Warnf(renew, "%s", message)
	}
	return diagnosis.Okf("%s", message)
}

func (e *Examination) checkHub(ctx context.Context) diagnosis.Finding {
	if e.settings == nil || e.Fleet.URL() == "" {
		return diagnosis.Skipf("no hub is configured: gates count the reports in the registry")
	}
	hub, err := e.Fleet.Client(e.cmd)
	if err != nil {
		return failed(err, "name the hub's token with --token-file")
	}
	hub.HTTP = e.dated("the hub", hub.HTTP)
	who, err := hub.WhoAmI(ctx)
	if err != nil {
		return failed(failure.HubRequest(err, e.Fleet.URL()), "see whether the hub runs")
	}
	message := fmt.Sprintf("it knows this token as %s of role %s", who.Name, who.Role)
	const remedy = `make a new one with "wherry hub access create" and revoke this one`
	switch left := time.Until(who.ExpiresAt); {
	case who.Role != "publisher" && who.Role != "admin":
		return diagnosis.Warnf(`make a token of role publisher with "wherry hub access create"`, "%s, which may not tell the hub what is published", message)
	case who.ExpiresAt.IsZero():
		return diagnosis.Okf("%s, without an end", message)
	case left < 14*24*time.Hour:
		return diagnosis.Warnf(remedy, "%s, until %s", message, who.ExpiresAt.Format(time.RFC3339))
	}
	return diagnosis.Okf("%s, until %s", message, who.ExpiresAt.Format(time.RFC3339))
}

// checkForge lists the change requests of a branch that is not there, which proves the token's right to read them.
func (e *Examination) checkForge(ctx context.Context) diagnosis.Finding {
	at, _, _ := strings.Cut(e.place, "#")
	if !strings.HasPrefix(at, "https://") && !strings.HasPrefix(at, "http://") {
		return diagnosis.Skipf("the platform is at no forge")
	}
	a := e.access(e.cmd, at)
	if a.Forge == nil {
		return diagnosis.Skipf("without change requests and commit statuses: %v", a.ForgeErr)
	}
	if _, err := a.Forge.Find(ctx, "wherry-doctor"); err != nil {
		return failed(e.forge.Failure(err, at, ""), "give a token that may read and write change requests")
	}
	place, _ := forge.PlaceOf(at, e.kindAt(at)) // the client was made of it
	return diagnosis.Okf("%s takes the token; whether it may write shows with the first change request", show.Line(place.Web))
}

func (e *Examination) checkClock(context.Context) diagnosis.Finding {
	var worst string
	for name, skew := range e.skews {
		if worst == "" || skew.Abs() > e.skews[worst].Abs() {
			worst = name
		}
	}
	switch {
	case worst == "":
		return diagnosis.Skipf("nobody has told the time")
	case e.skews[worst].Abs() > maxSkew:
		return diagnosis.Failf("run a time service such as chrony: releases are ordered by this clock", "it differs by %s from that of %s", e.skews[worst].Round(time.Second), worst)
	}
	return diagnosis.Okf("it agrees with that of %s", worst)
}

// dated returns a client that compares this machine's clock with that of whoever answers.
func (e *Examination) dated(name string, client *http.Client) *http.Client {
	copied := http.Client{}
	if client != nil {
		copied = *client
	}
	copied.Transport = diagnosis.Dated(copied.Transport, time.Now, func(skew time.Duration) { e.skews[name] = skew })
	return &copied
}
