package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	Forbidden         = "Forbidden"         // the agent lacks the permission, or an admission rule says no
	Unhealthy         = "Unhealthy"         // applied, and an object reports that it has failed
	LedgerUnreadable  = "LedgerUnreadable"  // what was applied before cannot be known

	// Pending: these may pass.
	APIServerUnreachable = "APIServerUnreachable"
	APIServerError       = "APIServerError"
	Unauthorized         = "Unauthorized"
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
	if reason == Conflict {
		if found := claims(err); len(found) > 0 {
			err = describeClaims(err, found)
		}
	}
	if reason == Forbidden {
		err = withRemedy(err)
	}
	if waiting {
		return reconcilers.Waiting(reason, err)
	}
	return reconcilers.Failure(reason, err)
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
	case errors.As(err, &answer):
		return classifyAnswer(err, answer.Status())
	}
	return APIServerUnreachable, true
}

// classifyAnswer judges what an API server answers. It has no code for the change of an immutable field,
// and answers what is no object of its kind as if that were an error of its own: these are known by their
// text alone.
func classifyAnswer(err error, answer metav1.Status) (reason string, waiting bool) {
	_, terminating := apierrors.StatusCause(err, "NamespaceTerminating")
	switch {
	case len(claims(err)) > 0:
		return Conflict, false
	case terminating:
		return NamespaceTerminating, true
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
	return fmt.Errorf("%s: %s", subject, list(out))
}

// list joins the first few of items.
func list(items []string) string {
	const most = 5
	if len(items) > most {
		items = append(slices.Clone(items[:most]), fmt.Sprintf("and %d more", len(items)-most))
	}
	return reconcilers.Clip(strings.Join(items, "; "))
}
