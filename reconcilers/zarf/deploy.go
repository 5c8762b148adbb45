package zarf

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/internal/program"
)

// deploy records the content that is to be deployed, and begins.
func (r *Reconciler) deploy(a reconcilers.Assignment, def *definition, old *record, forced bool) (reconcilers.Result, error) {
	rec := record{Package: def.Name, Content: a.Files(), Phase: phaseDeploying, Checksum: def.Checksum, Components: def.Components}
	action := reconcilers.Created
	if old != nil {
		action = reconcilers.Configured
		if rec.Package == "" {
			rec.Package, rec.Components = old.Package, old.Components // to be removed, until the new ones are known
		}
		rec.Archive, rec.Previous = old.Archive, cmp.Or(old.Previous, old.Package)
	}
	j, err := r.begin(a.Name, a.Files(), false, func(ctx context.Context, j *job) error {
		if err := r.saveRecord(a.Name, rec); err != nil {
			return err
		}
		err := j.bring(ctx, a, def, &rec, forced)
		if r.ctx.Err() != nil || errors.Is(err, context.Canceled) {
			return err // interrupted: the record still has the phase deploying
		}
		rec.Phase, rec.Reason, rec.Message, rec.Waiting = phaseDeployed, "", "", false
		if err != nil {
			e := classify(err)
			rec.Phase, rec.Reason, rec.Waiting = phaseFailed, e.Reason, e.Fault == ""
			rec.Message = reconcilers.Clip(err.Error())
		}
		return errors.Join(err, r.saveRecord(a.Name, rec))
	})
	if err != nil {
		return reconcilers.Result{}, err
	}
	res := j.result()
	res.Changes = []reconcilers.Change{{Object: "ZarfPackage/" + nameOf(def), Action: action}}
	return res, nil
}

// bring creates or inspects the package, and deploys it.
func (j *job) bring(ctx context.Context, a reconcilers.Assignment, def *definition, rec *record, forced bool) (err error) {
	if err := j.prepare(); err != nil {
		return err
	}
	defer os.RemoveAll(j.path(tmpDir)) // zarf leaves there what it has unpacked of a package that it refuses
	var source, key string
	if def.Package == "" {
		source, key, err = j.create(ctx, a, def)
	} else {
		if err := j.mount(def.Package); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, j.giveBack()) }()
		source, key, err = j.look(ctx, def, rec)
	}
	if err != nil {
		return err
	}
	rec.Archive = ""
	if def.needsCluster() {
		if err := j.r.permit(ctx, a, def, &record{Package: rec.Previous}); err != nil {
			return err
		}
		if err := j.dropOld(ctx, a.Name, def, rec.Previous); err != nil {
			return err
		}
	}
	rec.Previous = ""
	if err := j.r.saveRecord(a.Name, *rec); err != nil { // of what may be on the cluster from now on
		return err
	}
	if err := j.deploy(ctx, def, source, key, forced, setVariables(a)); err != nil {
		return err
	}
	if !def.needsCluster() {
		rec.Archive = cmp.Or(def.Package, source)
		return j.keep()
	}
	if err := os.RemoveAll(j.path("out")); err != nil {
		return local(err)
	}
	if err := j.dropLeftovers(ctx, def); err != nil {
		return err
	}
	return j.confirm(ctx, a, def)
}

// create makes a package of the assignment's files, and signs it.
func (j *job) create(ctx context.Context, a reconcilers.Assignment, def *definition) (source, key string, err error) {
	signing, err := j.r.signingKey()
	if err != nil {
		return "", "", local(err)
	}
	config, err := def.zarfYAML(a)
	if err == nil {
		err = stage(a.Dir, j.path("source"), config)
	}
	defer os.RemoveAll(j.path("source"))
	if err == nil {
		err = errors.Join(os.RemoveAll(j.path("out")), os.MkdirAll(j.path("out"), 0o700))
	}
	if err != nil {
		return "", "", local(err)
	}
	env := []string{"ZARF_PACKAGE_CREATE_SIGNING_KEY_PASSWORD=" + signing.password} // arguments are for all to see
	err = j.zarf(ctx, "create", env, signing.password, j.path("source"), "--confirm", "--skip-sbom", "-o", j.path("out"), "--signing-key", signing.private)
	var ended *runError
	if errors.As(err, &ended) {
		return "", "", failure(CreateFailed, "make package %s: %w", def.Name, err)
	}
	if err != nil {
		return "", "", err
	}
	made, err := filepath.Glob(filepath.Join(j.path("out"), "zarf-package-*"))
	if err != nil || len(made) != 1 {
		return "", "", failure(CreateFailed, "zarf made %d packages of %s, and not one", len(made), def.Name)
	}
	return made[0], signing.public, nil
}

// look inspects a prebuilt package, and returns its source and the key that verifies it.
func (j *job) look(ctx context.Context, def *definition, rec *record) (source, key string, err error) {
	source = def.Package
	if j.mounted != nil {
		source = j.mounted.source
	}
	for _, key := range j.r.opts.Keys {
		err = j.zarf(ctx, "inspect", nil, "", "definition", source, "--verify=always", "--key", key)
		if err == nil {
			return source, key, j.define(def, rec)
		}
		if !isVerification(err) {
			break
		}
	}
	var ended *runError
	if errors.As(err, &ended) {
		return "", "", j.explain(ctx, def, err)
	}
	return "", "", err
}

// define takes a package's definition from the output of "inspect".
func (j *job) define(def *definition, rec *record) error {
	text, err := program.LogTail(j.folder(), maxDefinition)
	if err != nil {
		return local(err)
	}
	_, _, printed := readLog(text)
	found, err := parseDefinition(printed)
	if err != nil {
		return failure(InvalidPackage, "package %s: %w", def.Package, err)
	}
	def.Name, def.Checksum, def.Components = found.Name, found.Checksum, found.Components
	rec.Package, rec.Checksum, rec.Components = def.Name, def.Checksum, def.Components
	return nil
}

// dropOld removes the packages and components that the assignment had deployed and no longer has: Zarf itself would leave
// them. A component that has lost a chart or a set of manifests is removed as a whole before it is deployed.
func (j *job) dropOld(ctx context.Context, assignment string, def *definition, before string) error {
	names, err := findDeployed(ctx, j.r.client, assignment)
	if err != nil {
		return err
	}
	if before != "" && !slices.Contains(names, before) {
		names = append(names, before)
	}
	for _, name := range names {
		there, err := readDeployed(ctx, j.r.client, name)
		if err != nil {
			return err
		}
		if there == nil || there.owner() != assignment && name != before {
			continue
		}
		if name != def.Name {
			if err := j.removePackage(ctx, name); err != nil {
				return err
			}
			continue
		}
		if lost := lostComponents(there, def); len(lost) > 0 {
			if err := j.removed(j.zarf(ctx, "remove", nil, "", name, "--confirm", "--components", strings.Join(lost, ","))); err != nil {
				return err
			}
		}
	}
	return nil
}

// lostComponents returns the components of a deployed package that have a release which def lacks.
func lostComponents(there *deployed, def *definition) []string {
	wanted := map[installedChart]bool{}
	for _, c := range def.selected() {
		for _, rel := range releases(def.Name, c) {
			wanted[installedChart{rel.namespace, rel.name}] = true
		}
	}
	var lost []string
	for _, c := range there.Components {
		if slices.ContainsFunc(c.Charts, func(chart installedChart) bool { return !wanted[chart] }) {
			lost = append(lost, c.Name)
		}
	}
	return lost
}

// deploy deploys the package.
func (j *job) deploy(ctx context.Context, def *definition, source, key string, forced bool, variables []string) error {
	if def.needsCluster() {
		if err := failPending(ctx, j.r.client, def); err != nil {
			return err
		}
	}
	left := time.Until(deadlineOf(ctx))
	args := []string{
		source, "--confirm", "--verify=always", "--key", key,
		"--timeout", seconds(max(left-ownEnd, left/2)), "--retries", retries,
	}
	if def.needsCluster() && !def.needsInit() {
		args = append(args, "--connected")
	}
	if forced {
		args = append(args, "--force-conflicts")
	}
	err := j.zarf(ctx, "deploy", nil, "", append(args, variables...)...)
	var ended *runError
	if errors.As(err, &ended) {
		return j.explain(ctx, def, err)
	}
	return err
}

// confirm reads zarf's record of its success: zarf also exits with 0 if it could not write the record, and
// if it has deployed nothing.
func (j *job) confirm(ctx context.Context, a reconcilers.Assignment, def *definition) error {
	there, err := readDeployed(ctx, j.r.client, def.Name)
	if err != nil {
		return err
	}
	if res := judge(there, def, a, false); res.State != "" {
		return failure(DeployFailed, "zarf exited with 0, but %s", res.Message)
	}
	return nil
}

// explain finds the reason of a failure in zarf's message, and in the state of the cluster.
func (j *job) explain(ctx context.Context, def *definition, err error) error {
	text := err.Error()
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	if isVerification(err) {
		return failure(VerificationError, "package %s: %w", nameOf(def), err)
	}
	if def.Name != "" && def.needsCluster() && j.r.client != nil {
		if why := ready(ctx, j.r.client, def); why != nil {
			if e := classify(why); e.Fault == "" {
				return waiting(e.Reason, "%w; %w", why, err)
			}
		}
	}
	switch {
	case has("has Zarf been initiated"):
		return failure(NotInitialized, `%w: run "zarf init" on the cluster`, err)
	case has("invalid ownership metadata", "cannot be imported into the current release", "conflict with "):
		return failure(Conflict, "%w", err)
	case has(" is forbidden: ", "forbidden: User"):
		return failure(Forbidden, "%w", err)
	}
	return failure(DeployFailed, "%w", err)
}

func isVerification(err error) bool {
	var ended *runError
	if !errors.As(err, &ended) {
		return false
	}
	return slices.ContainsFunc([]string{
		"is not signed", "signature verification failed", "was signed with", "no verification material",
	}, func(words string) bool { return strings.Contains(ended.last, words) })
}
