package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Reasons that this package gives, beside those that every reconciler has.
const (
	// Failed: these need another release, or somebody who changes the cluster.
	InvalidManifest   = "InvalidManifest"   // cannot be parsed, or the API server does not accept it
	InvalidHealth     = "InvalidHealth"     // a health condition about no object, or that cannot be parsed
	KindNotServed     = "KindNotServed"     // the cluster does not know the kind, or not this version
	VersionNotServed  = "VersionNotServed"  // fields that the version which is served lacks
	NamespaceNotFound = "NamespaceNotFound" // no manifest of the assignment creates it
	Conflict          = "Conflict"          // object or field belong to somebody else
	Immutable         = "Immutable"         // a field that cannot be changed would have to be
	Forbidden         = "Forbidden"         // the agent lacks the permission, or a built-in rule of the API server refuses
	AdmissionDenied   = "AdmissionDenied"   // a webhook or a policy of the cluster refuses
	QuotaExceeded     = "QuotaExceeded"     // of the namespace
	Unhealthy         = "Unhealthy"         // applied, and an object reports that it has failed
	LedgerUnreadable  = "LedgerUnreadable"  // the list of applied objects is damaged

	// Pending: these may pass.
	APIServerUnreachable = "APIServerUnreachable"
	APIServerError       = "APIServerError"
	Unauthorized         = "Unauthorized"
	WebhookUnavailable   = "WebhookUnavailable" // that the API server has to ask first
	NamespaceTerminating = "NamespaceTerminating"
	FilesUnreadable      = "FilesUnreadable" // the agent's own copy of the assignment
	LedgerNotSaved       = "LedgerNotSaved"
	NotApplied           = "NotApplied" // by Observe: this content was not applied yet

	// Progressing.
	NotReady    = "NotReady"    // applied, and not all objects are current
	Terminating = "Terminating" // deleted, and not gone yet

	// Drifted.
	Differs = "Differs"

	// Compliant or Removed, with a namespace that stays because somebody else uses it.
	NamespaceKept = "NamespaceKept"
)

// waiting is an error whose cause may pass.
func waiting(reason string, err error) error { return &reconcilers.Error{Reason: reason, Err: err} }

func invalid(format string, args ...any) error {
	return reconcilers.ReleaseError(InvalidManifest, format, args...)
}

// failed returns the result of a call that ended with err. With an engine, a missing kind is the site's fault: usually it
// is the engine's own, and the engine has to be installed.
func (r *Reconciler) failed(ctx context.Context, err error) reconcilers.Result {
	res := failed(ctx, err)
	if r.engine != nil && res.State == bundle.Failed && res.Reason == KindNotServed {
		res.Fault = reconcilers.FaultSite
	}
	return res
}

func failed(ctx context.Context, err error) reconcilers.Result {
	if ctx.Err() != nil {
		return reconcilers.Interrupted(fmt.Errorf("%w: %w", ctx.Err(), err))
	}
	e := classify(err)
	remedy := remedies[e.Reason]
	if unknownKinds(err) {
		remedy = "repair the API server's extension, or delete its APIService"
	}
	if e.Reason == Forbidden {
		remedy = cmp.Or(permit(err), remedy)
	}
	if found := claims(err); len(found) > 0 {
		err = describeClaims(err, found)
	} else if reconcilers.Known(err) != nil {
		remedy = "" // the answer has a hint already
	}
	e.Err = advised(err, remedy)
	return e.Result()
}

// remedies are hints for the API server's errors that have none.
var remedies = map[string]string{
	AdmissionDenied:      "change the manifest, or the rule",
	Conflict:             "leave it out of the manifest, or have that manager give it up",
	Forbidden:            "change the cluster's limit, or take the object out of the assignment",
	Immutable:            "delete the object, and it is made anew, or give the new one another name",
	KindNotServed:        "install what defines the kind, or write a version that is served",
	NamespaceNotFound:    "have a manifest of the assignment create the namespace",
	NamespaceTerminating: "the namespace's status says what holds it",
	QuotaExceeded:        "raise the quota, or ask for less",
	Unauthorized:         "renew the agent's credentials",
	WebhookUnavailable:   "start the webhook's server, or delete its configuration",
}

// advised returns err with a hint, and shortens err if necessary, never the hint.
func advised(err error, remedy string) error {
	if remedy == "" {
		return err
	}
	text, more := err.Error(), " ("+remedy+")"
	if most := bundle.MaxMessageBytes - len("…"+more); len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return errors.New(text + more)
}

// classify returns err with its reason and its fault.
func classify(err error) *reconcilers.Error {
	e := reconcilers.Known(err)
	if e != nil {
		return e
	}
	e = &reconcilers.Error{Err: err}
	var answer apierrors.APIStatus
	switch {
	case meta.IsNoMatchError(err):
		e.Reason, e.Fault = KindNotServed, reconcilers.FaultRelease
	case unknownKinds(err):
		e.Reason = APIServerError
	case errors.As(err, &answer):
		e.Reason, e.Fault = classifyAnswer(err, answer.Status())
	default:
		e.Reason = APIServerUnreachable
	}
	return e
}

// unknownKinds reports whether err means that some kinds are unknown since the API server of their group does not answer.
func unknownKinds(err error) bool {
	var incomplete *discovery.ErrGroupDiscoveryFailed
	return errors.As(err, &incomplete)
}

// classifyAnswer judges an API server's error. The server has no code for the change of an immutable field, uses any code
// for refusals by webhooks, policies and quotas, and reports an object that does not fit its kind as an internal error:
// only their texts identify these.
func classifyAnswer(err error, answer metav1.Status) (reason string, fault reconcilers.Fault) {
	const passes = reconcilers.Fault("")
	_, terminating := apierrors.StatusCause(err, "NamespaceTerminating")
	switch {
	case len(claims(err)) > 0:
		return Conflict, reconcilers.FaultRelease
	case terminating:
		return NamespaceTerminating, passes
	case strings.HasPrefix(answer.Message, "admission webhook "),
		strings.Contains(answer.Message, "ValidatingAdmissionPolicy '"):
		return AdmissionDenied, reconcilers.FaultRelease
	case strings.Contains(answer.Message, "failed calling webhook "):
		return WebhookUnavailable, passes
	case apierrors.IsForbidden(err) && strings.Contains(answer.Message, ": exceeded quota: "):
		return QuotaExceeded, reconcilers.FaultRelease
	case apierrors.IsForbidden(err):
		return Forbidden, reconcilers.FaultRelease
	case apierrors.IsUnauthorized(err):
		return Unauthorized, passes
	case apierrors.IsInvalid(err) && strings.Contains(answer.Message, "immutable"):
		return Immutable, reconcilers.FaultRelease
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return InvalidManifest, reconcilers.FaultRelease
	case strings.HasPrefix(answer.Message, "failed to create typed patch object"),
		strings.HasPrefix(answer.Message, "failed to convert new object"):
		return InvalidManifest, reconcilers.FaultRelease
	case apierrors.IsNotFound(err) && answer.Details != nil && answer.Details.Kind == "namespaces":
		return NamespaceNotFound, reconcilers.FaultRelease
	case apierrors.IsNotFound(err): // an object to be applied need not exist, but its kind has to
		return KindNotServed, reconcilers.FaultRelease
	}
	return APIServerError, passes
}

// describeClaims returns an error that begins with the fields and their managers; an API server lists up to hundreds.
func describeClaims(err error, found []claim) error {
	var out []string
	for _, c := range found {
		out = append(out, fmt.Sprintf("%s is managed by %q", c.field, c.manager))
	}
	slices.Sort(out)
	subject, _, _ := strings.Cut(err.Error(), " ")
	return fmt.Errorf("%s: %s", subject, List(out, "; "))
}
