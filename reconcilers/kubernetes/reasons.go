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
	Forbidden         = "Forbidden"         // the agent lacks the permission, or a rule built into the API server says no
	AdmissionDenied   = "AdmissionDenied"   // a webhook or a policy of the cluster says no
	QuotaExceeded     = "QuotaExceeded"     // of the namespace
	Unhealthy         = "Unhealthy"         // applied, and an object reports that it has failed
	LedgerUnreadable  = "LedgerUnreadable"  // what was applied before cannot be known

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

// reasonError is an error of which the reason is known.
type reasonError struct {
	reason  string
	waiting bool // trying again can help
	err     error
}

func (e *reasonError) Error() string { return e.err.Error() }
func (e *reasonError) Unwrap() error { return e.err }

func invalid(format string, args ...any) error {
	return &reasonError{reason: InvalidManifest, err: fmt.Errorf(format, args...)}
}

// failed turns an error into a result.
func failed(ctx context.Context, err error) reconcilers.Result {
	if ctx.Err() != nil {
		return reconcilers.Interrupted(fmt.Errorf("%w: %w", ctx.Err(), err))
	}
	reason, waiting := classify(err)
	remedy := remedies[reason]
	if unknownKinds(err) {
		remedy = "repair the API server's extension, or delete its APIService"
	}
	if reason == Forbidden {
		remedy = cmp.Or(permit(err), remedy)
	}
	if found := claims(err); len(found) > 0 {
		err = describeClaims(err, found)
	} else if known := (*reasonError)(nil); errors.As(err, &known) {
		remedy = "" // it says itself what there is to say
	}
	err = advised(err, remedy)
	if waiting {
		return reconcilers.Waiting(reason, err)
	}
	return reconcilers.Failure(reason, err)
}

// remedies are what a person can do about an answer of the API server that does not say it.
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

// advised is err with what there is to do about it, which is not what gets cut off.
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

// classify returns the reason of err, and whether trying again can help.
func classify(err error) (reason string, waiting bool) {
	var known *reasonError
	var answer apierrors.APIStatus
	switch {
	case errors.As(err, &known):
		return known.reason, known.waiting
	case meta.IsNoMatchError(err):
		return KindNotServed, false
	case unknownKinds(err):
		return APIServerError, true
	case errors.As(err, &answer):
		return classifyAnswer(err, answer.Status())
	}
	return APIServerUnreachable, true
}

// unknownKinds reports whether err is that not all kinds are known, as the server of some does not answer.
func unknownKinds(err error) bool {
	var incomplete *discovery.ErrGroupDiscoveryFailed
	return errors.As(err, &incomplete)
}

// classifyAnswer judges what an API server answers. It has no code for the change of an immutable field,
// gives the refusals of webhooks, policies and quotas any code at all, and answers what is no object of its
// kind as if that were an error of its own: these are known by their text alone.
func classifyAnswer(err error, answer metav1.Status) (reason string, waiting bool) {
	_, terminating := apierrors.StatusCause(err, "NamespaceTerminating")
	switch {
	case len(claims(err)) > 0:
		return Conflict, false
	case terminating:
		return NamespaceTerminating, true
	case strings.HasPrefix(answer.Message, "admission webhook "),
		strings.Contains(answer.Message, "ValidatingAdmissionPolicy '"):
		return AdmissionDenied, false
	case strings.Contains(answer.Message, "failed calling webhook "):
		return WebhookUnavailable, true
	case apierrors.IsForbidden(err) && strings.Contains(answer.Message, ": exceeded quota: "):
		return QuotaExceeded, false
	case apierrors.IsForbidden(err):
		return Forbidden, false
	case apierrors.IsUnauthorized(err):
		return Unauthorized, true
	case apierrors.IsInvalid(err) && strings.Contains(answer.Message, "immutable"):
		return Immutable, false
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return InvalidManifest, false
	case strings.HasPrefix(answer.Message, "failed to create typed patch object"),
		strings.HasPrefix(answer.Message, "failed to convert new object"):
		return InvalidManifest, false
	case apierrors.IsNotFound(err) && answer.Details != nil && answer.Details.Kind == "namespaces":
		return NamespaceNotFound, false
	case apierrors.IsNotFound(err): // an object to be applied need not exist, but its kind has to
		return KindNotServed, false
	}
	return APIServerError, true
}

// describeClaims puts the fields and their managers first, of which an API server lists up to hundreds.
func describeClaims(err error, found []claim) error {
	var out []string
	for _, c := range found {
		out = append(out, fmt.Sprintf("%s is managed by %q", c.field, c.manager))
	}
	slices.Sort(out)
	subject, _, _ := strings.Cut(err.Error(), " ")
	return fmt.Errorf("%s: %s", subject, List(out, "; "))
}
