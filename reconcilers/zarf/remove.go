package zarf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Remove removes the assignment's package.
func (r *Reconciler) Remove(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	res, err := r.remove(ctx, a)
	if err != nil {
		return failed(ctx, err)
	}
	return res
}

func (r *Reconciler) remove(ctx context.Context, a reconcilers.Assignment) (reconcilers.Result, error) {
	if err := ctx.Err(); err != nil {
		return reconcilers.Result{}, err
	}
	if j := r.job(a.Name); j != nil && j.removing {
		return j.result(), nil
	}
	if done, err := r.takeRemoval(a.Name); done || err != nil {
		return reconcilers.Result{State: bundle.Removed}, err
	}
	rec, err := r.loadRecord(a.Name)
	if err != nil {
		return reconcilers.Result{}, err
	}
	if rec == nil && r.job(a.Name) == nil { // nothing was begun, or the record is lost
		names, err := r.packages(ctx, a.Name, nil)
		if err != nil || len(names) == 0 {
			return reconcilers.Result{State: bundle.Removed}, err
		}
	}
	return r.takeAway(a.Name, rec)
}

// packages returns the names of the packages on the cluster that are the assignment's.
func (r *Reconciler) packages(ctx context.Context, assignment string, rec *record) ([]string, error) {
	if r.client == nil {
		return nil, nil
	}
	names, err := findDeployed(ctx, r.client, assignment)
	if err != nil || rec == nil {
		return names, err
	}
	for _, name := range []string{rec.Package, rec.Previous} {
		if name == "" || slices.Contains(names, name) {
			continue
		}
		there, err := readDeployed(ctx, r.client, name)
		if err != nil {
			return nil, err
		}
		if there != nil && there.owner() == "" { // a prebuilt one
			names = append(names, name)
		}
	}
	return names, nil
}

// takeAway begins the removal of all packages of an assignment.
func (r *Reconciler) takeAway(assignment string, rec *record) (reconcilers.Result, error) {
	if rec == nil {
		rec = &record{}
	}
	last := *rec
	last.Phase = phaseRemoving
	j, err := r.begin(assignment, "", true, func(ctx context.Context, j *job) error {
		if err := r.saveRecord(assignment, last); err != nil {
			return err
		}
		return j.takeAll(ctx, &last)
	})
	if err != nil {
		return reconcilers.Result{}, err
	}
	res := j.result()
	if last.Package != "" {
		res.Changes = []reconcilers.Change{{Object: "ZarfPackage/" + last.Package, Action: reconcilers.Deleted}}
	}
	return res, nil
}

func (j *job) takeAll(ctx context.Context, rec *record) error {
	if err := j.prepare(); err != nil {
		return err
	}
	if rec.Archive != "" {
		return j.takeArchive(ctx, rec.Archive)
	}
	names, err := j.r.packages(ctx, j.assignment, rec)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := j.removePackage(ctx, name); err != nil {
			return err
		}
	}
	if j.r.client == nil || rec.Package == "" {
		return nil
	}
	return j.uninstall(ctx, rec.Package, rec.Components, nil)
}

// takeArchive removes a package of which the cluster, if there is one, has no record. Zarf reads it once more.
func (j *job) takeArchive(ctx context.Context, source string) (err error) {
	keys := j.r.opts.Keys
	if strings.HasPrefix(source, "oci://") {
		if err := j.mountKept(source); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, j.giveBack()) }()
		if j.mounted != nil {
			source = j.mounted.source
		}
	} else {
		signing, err := j.r.signingKey()
		if err != nil {
			return local(err)
		}
		keys = []string{signing.public}
	}
	err = failure(VerificationError, "package %s: no key is known that it could be signed with: give one with --zarf-key", source)
	for _, key := range keys {
		if err = j.zarf(ctx, "remove", nil, "", source, "--confirm", "--verify=always", "--key", key); !isVerification(err) {
			break
		}
	}
	return j.removed(err)
}

// removePackage removes a package from the cluster, after the releases that are missing in Zarf's record.
func (j *job) removePackage(ctx context.Context, name string) error {
	there, err := readDeployed(ctx, j.r.client, name)
	if err != nil || there == nil {
		return err
	}
	known := map[installedChart]bool{}
	for _, c := range there.Components {
		for _, chart := range c.Charts {
			known[chart] = true
		}
	}
	if err := j.uninstall(ctx, name, there.Data.Components, known); err != nil {
		return err
	}
	if err := j.removed(j.zarf(ctx, "remove", nil, "", name, "--confirm")); err != nil {
		return err
	}
	if there, err = readDeployed(ctx, j.r.client, name); err == nil && there != nil {
		return failure(RemoveFailed, "zarf exited with 0, and package %s is still there", name)
	}
	return err
}

// uninstall removes the releases of a package that Zarf's record lacks: those of an interrupted deploy, after which the
// record itself may be missing. From all releases it removes the objects that Helm will not remove, since the newest
// revision lacks them.
func (j *job) uninstall(ctx context.Context, name string, components []component, known map[installedChart]bool) error {
	for _, c := range components {
		for _, rel := range releases(name, c) {
			revs, err := readRevisions(ctx, j.r.client, rel)
			if err != nil {
				return err
			}
			if len(revs) == 0 {
				continue
			}
			if err := revs.dropAllBut(ctx, j.r.client, rel, revs[len(revs)-1]); err != nil { // which Helm will remove
				return err
			}
			if known[installedChart{rel.namespace, rel.name}] {
				continue
			}
			j.at("remove")
			uninstall := command{folder: j.folder(), helm: true, args: []string{"tools", "helm", "uninstall", rel.name, "--namespace", rel.namespace}, deadline: time.Until(deadlineOf(ctx))}
			if err := j.removed(j.r.run(ctx, uninstall)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *job) removed(err error) error {
	var ended *runError
	if !errors.As(err, &ended) {
		return err
	}
	if j.r.client != nil {
		ctx, cancel := context.WithTimeout(j.r.ctx, quickTime)
		defer cancel()
		if why := checkNodeAndPod(ctx, j.r.client); why != nil {
			if e := classify(why); e.Fault == "" && e.Reason != NoNodeOrPod {
				return waiting(e.Reason, "%w; %w", why, err)
			}
		}
	}
	return failure(RemoveFailed, "%w", err)
}

// takeRemoval reports whether a removal has succeeded. It returns the error of a failed removal once: the
// next call begins again.
func (r *Reconciler) takeRemoval(assignment string) (done bool, err error) {
	j, _ := r.jobs.Latest(assignment)
	if j == nil || !j.removing || !j.isOver() {
		return false, nil
	}
	r.jobs.Forget(assignment, j)
	if j.err != nil {
		return false, j.err
	}
	if err := os.RemoveAll(r.folder(assignment)); err != nil {
		return false, local(fmt.Errorf("forget %s: %w", assignment, err))
	}
	return true, nil
}
