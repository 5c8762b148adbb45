package zarf

import (
	"context"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Observe returns zarf's progress, or the state of the deployed objects.
func (r *Reconciler) Observe(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	res, err := r.observe(ctx, a)
	if err != nil {
		return failed(ctx, err)
	}
	return res
}

func (r *Reconciler) observe(ctx context.Context, a reconcilers.Assignment) (reconcilers.Result, error) {
	def, rec, working, err := r.lookUp(ctx, a)
	switch {
	case err != nil:
		return reconcilers.Result{}, err
	case working != nil:
		return working.result(), nil
	}
	switch {
	case rec == nil:
		res, _, err := r.stand(ctx, a, def, false)
		return res, err
	case rec.Content != a.Files() || rec.Phase == phaseRemoving:
		return pending(NotApplied, "this content was not deployed yet"), nil
	case rec.Phase == phaseDeploying:
		return pending(reconcilers.ReasonInterrupted, "the agent ended while zarf deployed, which has to be done again"), nil
	case rec.Phase == phaseFailed && rec.Waiting:
		return pending(rec.Reason, rec.Message), nil
	case rec.Phase == phaseFailed:
		return reconcilers.Result{State: bundle.Failed, Reason: rec.Reason, Fault: faultOf(rec.Reason), Message: rec.Message}, nil
	}
	res, _, err := r.stand(ctx, a, def, true)
	return res, err
}

// lookUp reads an assignment's definition and record, with the job that deploys this content, if one is at work.
func (r *Reconciler) lookUp(ctx context.Context, a reconcilers.Assignment) (def *definition, rec *record, working *job, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, nil, err
	}
	if j := r.job(a.Name); j != nil && !j.removing && j.content == a.Files() { // before its record, which it writes at its end
		working = j
	}
	if def, rec, err = r.read(a); err != nil {
		return nil, nil, nil, err
	}
	return def, rec, working, nil
}

func pending(reason, message string) reconcilers.Result {
	return reconcilers.Result{State: bundle.Pending, Reason: reason, Message: message}
}

// stand compares Zarf's record and the cluster with the assignment. The result is Drifted if a deploy would correct
// it, and Pending if nothing was deployed. If applied is true, this content was deployed from here, so that missing
// objects were deleted since.
func (r *Reconciler) stand(ctx context.Context, a reconcilers.Assignment, def *definition, applied bool) (res reconcilers.Result, s survey, err error) {
	good := reconcilers.Result{State: bundle.Compliant, Revision: a.Files().String()}
	switch {
	case def.Name == "", !def.needsCluster() && !applied:
		return pending(NotApplied, "it was not deployed yet"), s, nil
	case !def.needsCluster():
		return good, s, nil
	case r.client == nil:
		return res, s, failure(NoCluster, "package %s is for a cluster, and the agent knows none: give --kubeconfig", def.Name)
	}
	there, err := readDeployed(ctx, r.client, def.Name)
	if err != nil {
		return res, s, err
	}
	if res := judge(there, def, a, applied); res.State != "" {
		return res, s, nil
	}
	if s, err = inspect(ctx, r.client, there); err != nil {
		return res, s, err
	}
	switch {
	case len(s.taken) > 0:
		return reconcilers.Result{State: bundle.Failed, Reason: Conflict, Fault: faultOf(Conflict), Message: reconcilers.Clip(list(s.taken))}, s, nil
	case len(s.drift) > 0:
		return reconcilers.Result{State: bundle.Drifted, Reason: Differs, Message: reconcilers.Clip("ZarfPackage/" + def.Name + ": " + list(s.drift))}, s, nil
	case len(s.failed) > 0:
		return reconcilers.Result{State: bundle.Failed, Reason: Unhealthy, Fault: faultOf(Unhealthy), Message: reconcilers.Clip(list(s.failed))}, s, nil
	case len(s.notReady) > 0:
		return reconcilers.Result{State: bundle.Progressing, Reason: NotReady, Message: reconcilers.Clip(list(s.notReady))}, s, nil
	}
	return good, s, nil
}

// judge reads Zarf's record; the state is empty if the record is good.
func judge(there *deployed, def *definition, a reconcilers.Assignment, applied bool) reconcilers.Result {
	state, missing := bundle.Pending, NotApplied
	if applied {
		state, missing = bundle.Drifted, Missing
	}
	switch {
	case there == nil:
		return reconcilers.Result{State: state, Reason: missing, Message: "ZarfPackage/" + def.Name + " is missing"}
	case !there.holds(def, a):
		if applied {
			missing = Differs
		}
		return reconcilers.Result{State: state, Reason: missing, Message: "ZarfPackage/" + def.Name + " of the cluster is another one"}
	}
	if what := there.incomplete(def); what != "" {
		if applied {
			missing = Differs
		}
		return reconcilers.Result{State: state, Reason: missing, Message: what}
	}
	return reconcilers.Result{}
}
