package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/reconcilers/needs"
)

func checkRegistry(ctx context.Context, e *examination) diagnosis.Finding {
	if e.Registry.Bundles == nil {
		return diagnosis.Skipf("none is configured: bundles come by import")
	}
	if len(e.Further) > 0 {
		return checkRegistries(ctx, e)
	}
	err := e.ask(ctx, e.Registry)
	switch {
	case err != nil && e.withheld != "" && !errors.As(err, new(*oci.WithheldError)):
		return diagnosis.Failf(registryRemedy(err), "%v; when it answered last: %s", err, e.withheld)
	case err != nil:
		return diagnosis.Failf(registryRemedy(err), "%v", err)
	}
	return diagnosis.Okf("it answers, and has a release for this cluster type")
}

// ask asks a registry for the agent's newest release. The first one that has any is used by later checks.
func (e *examination) ask(ctx context.Context, r Registry) error {
	src, err := r.Bundles(&http.Client{Transport: diagnosis.Dated(e.Transport, e.Now, func(skew time.Duration) { e.skew = &skew })})
	if err == nil {
		_, err = src.Resolve(ctx, bundle.MovingTag(e.Cluster.Ring))
	}
	if err == nil && e.source == nil {
		e.source, e.documents = src, r.Trust
	}
	return err
}

// checkRegistries asks each of several registries. One that does not answer is a warning while another one does.
func checkRegistries(ctx context.Context, e *examination) diagnosis.Finding {
	all := append([]Registry{e.Registry}, e.Further...)
	var wrong []string
	var first error
	for _, r := range all {
		if err := e.ask(ctx, r); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", r.Place, err))
			first = cmp.Or(first, err)
		}
	}
	switch {
	case first == nil:
		return diagnosis.Okf("all %d answer, and have a release for this cluster type", len(all))
	case e.source == nil:
		return diagnosis.Failf(registryRemedy(first), "none of %d has a release for this cluster type: %s", len(all), strings.Join(wrong, "; "))
	}
	return diagnosis.Warnf(registryRemedy(first), "%d of %d have a release for this cluster type: %s", len(all)-len(wrong), len(all), strings.Join(wrong, "; "))
}

func registryRemedy(err error) string {
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return `publish for this environment and cluster type, or compare --registry, --environment, --cluster-type and --ring with what "wherry bundle ls" lists`
	case errors.As(err, new(*oci.WithheldError)):
		return withheldRemedy
	case errors.Is(err, oci.ErrUnauthorized):
		return `store credentials with "wherry login", name a file of them with --credentials, or put them into the Secret wherry-agent-registry`
	case errors.Is(err, http.ErrSchemeMismatch):
		return "pass --plain-http if the registry has no TLS on purpose"
	case isUnknownAuthority(err):
		return `name the authority's certificate with --tls-ca, or put it into the ConfigMap wherry-agent-ca; of another agent, "wherry-agent serve ca" there prints it`
	case oci.CertificateHint(err) != "":
		return oci.CertificateHint(err)
	}
	return "is this the registry's address, is it running, and does a proxy or a firewall let this machine through?"
}

// withheldRemedy is about credentials that were not sent to the host that a registry names.
const withheldRemedy = `ask the registry's operator whether that host is its token service: if so, list it in authHosts (--auth-host), or run "wherry login" as the agent's user; if not, somebody has changed the registry`

func isUnknownAuthority(err error) bool { return errors.As(err, new(x509.UnknownAuthorityError)) }

func checkRelease(ctx context.Context, e *examination) diagnosis.Finding {
	switch {
	case e.source != nil:
	case e.Registry.Bundles != nil && e.running == "":
		return diagnosis.Skipf("there is none to judge")
	default: // no registry, or one that is out of reach
		return checkStoredRelease(ctx, e)
	}
	v, offered, err := e.verify(ctx)
	var refusal *bundle.Refusal
	switch {
	case errors.As(err, &refusal) && offered != "" && offered == e.running && agesInto(refusal.Reason):
		return diagnosis.Warnf(e.refusalRemedy(refusal.Reason), "it runs here, and stays; an agent that begins now would refuse it: %v", err)
	case errors.As(err, &refusal):
		return diagnosis.Failf(e.refusalRemedy(refusal.Reason), "%v", err)
	case err != nil:
		return diagnosis.Failf(registryRemedy(err), "%v", err)
	}
	e.offered = v
	if e.content, err = needs.Read(ctx, e.source, v); err != nil {
		return diagnosis.Failf("publish it again, or mend the registry's storage", "its files: %v", err)
	}
	by := "a trusted key"
	if len(v.KeyIDs) > 1 {
		by = fmt.Sprintf("%d trusted keys", len(v.KeyIDs))
	}
	return diagnosis.Okf("release %s is signed by %s and meant for this agent, until %s", v.Name(), by, v.Release.ExpiresAt.Format(time.RFC3339))
}

// checkStoredRelease judges the release that runs by the state folder alone, if there is no registry.
func checkStoredRelease(ctx context.Context, e *examination) diagnosis.Finding {
	const remedy = "bring it once more with import"
	if e.running == "" {
		return diagnosis.Skipf("none runs here yet: bring one with import")
	}
	src, err := content.Source(e.StateDir, e.expect().Stream)
	var desc ocispec.Descriptor
	if err == nil {
		desc, err = src.Resolve(ctx, e.running.String())
	}
	if err != nil {
		return diagnosis.Failf(remedy, "what runs is not in the state folder: %v", err)
	}
	v, err := bundle.Read(ctx, src, desc)
	if err != nil {
		return diagnosis.Failf(remedy, "what runs is damaged in the state folder: %v", err)
	}
	e.offered, e.issuedAt = v, v.Release.IssuedAt
	// A tree that a delta has made lies there in another form, which the agent checks.
	if e.content, err = needs.Read(ctx, src, v); err != nil && !errors.Is(err, errdef.ErrNotFound) {
		return diagnosis.Failf(remedy, "its files are damaged in the state folder: %v", err)
	}
	var refusal *bundle.Refusal
	switch err := e.expect().Check(v.Release, desc.Digest); {
	case errors.As(err, &refusal) && agesInto(refusal.Reason):
		return diagnosis.Warnf("bring a newer release with import", "release %s runs, and stays; an agent that begins now would refuse it: %v", v.Name(), err)
	case err != nil:
		return diagnosis.Failf("compare --platform, --environment, --cluster-type and --ring with what was published", "%v", err)
	default:
		return diagnosis.Okf("release %s runs, is whole in the state folder, and is meant for this agent, until %s", v.Name(), v.Release.ExpiresAt.Format(time.RFC3339))
	}
}

// expect returns the demands on a release for this agent, as for one that has accepted none before.
func (e *examination) expect() bundle.Expect {
	return bundle.Expect{
		Stream: bundle.Stream{Platform: e.Cluster.Platform, Environment: e.Cluster.Environment, ClusterType: e.Cluster.Type},
		Ring:   e.Cluster.Ring, Epoch: e.judges().Epoch, Now: e.Now(),
	}
}

// judges is the trust by which releases are judged.
func (e *examination) judges() bundle.Trust {
	if len(e.Trust) > 0 {
		return e.Trust.Current().Trust()
	}
	return e.Pinned
}

// agesInto reports whether an agent may have accepted a release that would be refused for that reason now: time has
// passed, or the trust has changed.
func agesInto(r bundle.Reason) bool {
	return r == bundle.UntrustedKey || r == bundle.BelowThreshold || r == bundle.OldEpoch || r == bundle.Expired
}

// verify judges the newest release as an agent would that has accepted none before. Offered is its manifest.
func (e *examination) verify(ctx context.Context) (v *bundle.Verified, offered digest.Digest, err error) {
	desc, err := e.source.Resolve(ctx, bundle.MovingTag(e.Cluster.Ring))
	if err != nil {
		return nil, "", err
	}
	if v, err = bundle.Verify(ctx, e.source, desc, e.judges()); err != nil {
		return nil, desc.Digest, err
	}
	e.issuedAt = v.Release.IssuedAt
	return v, desc.Digest, e.expect().Check(v.Release, desc.Digest)
}

func (e *examination) refusalRemedy(reason bundle.Reason) string {
	documents := len(e.Trust) > 0
	switch reason {
	case bundle.Unsigned, bundle.UntrustedKey:
		if documents {
			return `publish with a release key that "wherry-agent trust show" lists, or have the roots add the key that is published with`
		}
		return "publish with the private half of the key that --key names, or pin the key that is published with"
	case bundle.WrongPlatform, bundle.WrongEnvironment, bundle.WrongClusterType, bundle.WrongRing:
		return "compare --platform, --environment, --cluster-type and --ring with what was published"
	case bundle.BelowThreshold:
		return `have more of the holders of release keys sign it with "wherry sign"`
	case bundle.OldEpoch:
		if !documents {
			return `install the platform's trust document with "wherry-agent trust install"`
		}
		return "publish again, in the epoch of the trust document in force"
	case bundle.UnsupportedSchema:
		return "put a newer agent here, which then takes it by itself"
	case bundle.Expired:
		return "publish again to renew it, or set this machine's clock"
	}
	return "publish again; somebody may have changed what lies in the registry"
}

func checkHub(ctx context.Context, e *examination) diagnosis.Finding {
	switch {
	case e.Hub.URL == "" && e.Reports.Repository != nil:
		return diagnosis.Skipf("none is configured: reports go to %s", e.Reports.Place)
	case e.Hub.URL == "":
		return diagnosis.Skipf("none is configured: reports wait for reports export")
	}
	if err := askHub(ctx, &http.Client{Transport: e.Transport}, e.Hub.URL); err != nil {
		remedy := "is this the hub's address, and is it running? Reports wait until it answers"
		if oci.CertificateHint(err) != "" {
			remedy = registryRemedy(err)
		}
		if errors.Is(err, errNoRelay) {
			remedy = "give that agent serve.acceptReports: true (--serve-accept-reports), or name the hub itself with --hub"
		}
		return diagnosis.Failf(remedy, "%v", err)
	}
	if !e.Hub.HasKey {
		return diagnosis.Failf(`pin its key with --hub-key; "wherry hub keys show" prints it`, "it answers, but without its key no report is ever deleted")
	}
	return diagnosis.Okf("it answers")
}

// errNoRelay means that reports go to an endpoint that does not take them.
var errNoRelay = errors.New("is the endpoint of another agent, which accepts no reports")

func askHub(ctx context.Context, client *http.Client, hub string) error {
	address, err := url.JoinPath(hub, "readyz")
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10)) // its words are not needed
	if resp.StatusCode == http.StatusNotFound && resp.Header.Get("Server") == serve.Name {
		return fmt.Errorf("%s %w", hub, errNoRelay)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", address, resp.Status)
	}
	return nil
}
