package simulation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// platform is what the simulation publishes.
type platform struct {
	result *scheduler.Result
	policy promotion.Policy
}

func (p platform) types() []string {
	var all []string
	for _, ct := range p.result.ClusterTypes {
		all = append(all, ct.Name)
	}
	return all
}

// environment is that of a platform that is made up.
const environment = "simulated"

// choosePlatform takes the platform of the plan, or makes one up.
func (s *simulation) choosePlatform() error {
	if s.Plan == nil {
		s.platform = s.madeUp()
		return nil
	}
	copied := *s.Plan.Result
	s.platform = platform{result: &copied, policy: s.Plan.Policy}
	if copied.Platform == "" {
		copied.Platform = publisher.DefaultPlatform
	}
	copied.ClusterTypes = slices.Clone(copied.ClusterTypes)
	for i := range copied.ClusterTypes {
		copied.ClusterTypes[i].Assignments = slices.Clone(copied.ClusterTypes[i].Assignments)
	}
	if !slices.ContainsFunc(copied.ClusterTypes, func(ct scheduler.ClusterTypeResult) bool { return len(ct.Assignments) > 0 }) {
		return fmt.Errorf("%w: nothing is assigned in environment %s", ErrOptions, copied.Environment)
	}
	for _, c := range s.Plan.Clusters {
		if !slices.Contains(s.platform.types(), c.ClusterType) {
			return fmt.Errorf("%w: cluster %s is of type %s, which the environment does not have", ErrOptions, c.Name, c.ClusterType)
		}
	}
	s.platform.policy = s.policyOf(s.Plan.Policy)
	return nil
}

// madeUp returns a platform whose assignments are a ConfigMap, a Namespace and a Deployment each.
func (s *simulation) madeUp() platform {
	result := &scheduler.Result{Platform: "simulation", Environment: environment, Rings: s.ringNames()}
	r := rand.New(rand.NewPCG(s.Seed, 0x706c61))
	for t := range s.Types {
		ct := scheduler.ClusterTypeResult{Name: fmt.Sprintf("type-%03d", t)}
		for i := range s.Assignments {
			ct.Assignments = append(ct.Assignments, madeUpAssignment(ct.Name, i, r))
		}
		result.ClusterTypes = append(result.ClusterTypes, ct)
	}
	return platform{result, s.policyOf(promotion.Policy{})}
}

func madeUpAssignment(typ string, i int, r *rand.Rand) scheduler.Assignment {
	workload := fmt.Sprintf("shop%04d", i)
	namespace := fmt.Sprintf("simulated-%s-%s-live", typ, workload)
	return scheduler.Assignment{
		Name: workload + "-live", ClusterType: typ, Workspace: fmt.Sprintf("team-%d", i%10), Workload: workload, Target: "live",
		Namespace: namespace, Adapter: "kubernetes", Policies: []string{"all"}, Version: "1.0.0",
		Files: []scheduler.File{
			{Path: "namespace.yaml", Data: fmt.Appendf(nil, "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n  labels:\n    environment: %s\n", namespace, environment)},
			{Path: "platform-config.yaml", Data: fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: platform-config\n  namespace: %s\ndata:\n  REGION: north\n  STORE: \"%d\"\n", namespace, r.IntN(10_000))},
			{Path: "reconciler.yaml", Data: fmt.Appendf(nil, "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: shop\n  namespace: %s\nspec:\n  replicas: 1\n"+
				"  selector:\n    matchLabels:\n      app: shop\n  template:\n    metadata:\n      labels:\n        app: shop\n    spec:\n      containers:\n"+
				"        - name: shop\n          image: registry.example/shop@sha256:%064x\n", namespace, i%5)},
		},
	}
}

func (s *simulation) ringNames() []string {
	var all []string
	for _, r := range s.Rings {
		all = append(all, r.Name)
	}
	return all
}

// policyOf returns the policy by which rings follow each other. What takes people, other programs or days is left out, and noted.
func (s *simulation) policyOf(p promotion.Policy) promotion.Policy {
	if s.Plan == nil || p.Name == "" {
		p.RingGate = promotion.Default()
		p.RingGate.MinReported, p.RingGate.MinCompliant, p.RingGate.MaxFailed = 50, 80, s.toleratedFailures()
	}
	p.Environment = environment
	if s.Plan != nil {
		p.Environment = s.Plan.Result.Environment
	}
	p.Rings = s.ringNames()
	if s.Plan != nil {
		p.Rings = s.Plan.Result.Rings
	}
	g := &p.RingGate
	for _, left := range []struct {
		what  string
		given bool
	}{
		{"soak", g.Soak > 0},
		{"approvals", g.Approvals.Required > 0},
		{"check", g.Check != nil},
		{"schedule", len(g.Schedule.Open)+len(g.Schedule.Freezes) > 0},
		{"requiredClusters", g.Required != nil},
	} {
		if left.given {
			s.note("the rule %s of policy %s is left out", left.what, p.Name)
		}
	}
	g.Soak, g.Approvals, g.Check, g.Schedule, g.Required = 0, promotion.Approvals{}, nil, promotion.Schedule{}, nil
	return p
}

// toleratedFailures is how many failed clusters the gate of a made-up platform lets pass: 5 % of all.
func (s *simulation) toleratedFailures() int { return max(1, s.Clusters/20) }

func (s *simulation) note(format string, args ...any) {
	s.result.Notes = append(s.result.Notes, fmt.Sprintf(format, args...))
}

// change changes some assignments of each cluster type as release n does: a line is added to a file of each. Release 0 is the
// platform as it is.
func (s *simulation) change(n int) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d", s.Seed, n))
	s.platform.result.BaseCommit = hex.EncodeToString(sum[:20])
	if n == 0 {
		return
	}
	for t := range s.platform.result.ClusterTypes {
		all := s.platform.result.ClusterTypes[t].Assignments
		for k := range min(s.Changed, len(all)) {
			a := &all[((n-1)*s.Changed+k)%len(all)]
			a.Files = slices.Clone(a.Files)
			i := slices.IndexFunc(a.Files, func(f scheduler.File) bool { return len(f.Data) > 0 })
			if i < 0 {
				continue
			}
			a.Files[i].Data = fmt.Appendf(slices.Clone(a.Files[i].Data), "# changed by release %d\n", n)
		}
	}
}
