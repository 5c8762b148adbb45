package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/schema"
)

// schemaUse is a schema that applies to an assignment, with its origin.
type schemaUse struct {
	owner string // such as: ConfigSchema "ports"
	at    finding.Position
	text  string
	// limit bounds the steps of all schemas of a workload together. Zero means schema.MaxSteps for this schema alone.
	limit int
	// refused is true if the schemas of the workload's registration are too large together.
	refused bool
}

// validator checks configurations against schemas. A configuration keeps the results, because many
// assignments share both.
type validator struct{ schemas *schema.Cache }

func newValidator() *validator { return &validator{schemas: schema.NewCache()} }

// checks keeps the results of schemas for one configuration.
type checks struct {
	mu    sync.Mutex
	known []schemaCheck
}

type schemaCheck struct {
	schema *schema.Schema
	schema.Outcome
}

// validate returns the violations of all schemas by a configuration, each with its position.
func (v *validator) validate(ctx context.Context, c *config, uses []schemaUse) error {
	var errs []error
	taken := 0 // of the steps that the workload's schemas share
	for _, use := range uses {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		limit := schema.MaxSteps
		if use.limit > 0 {
			limit = use.limit - taken
		}
		if use.refused {
			errs = append(errs, tooLarge(use))
			break
		}
		found, err := v.check(c, use.text, limit)
		if err != nil {
			errs = append(errs, finding.Errorf(finding.CodeSchema, use.at, "", "%s cannot be used: %v", use.owner, err))
			continue
		}
		if found.Steps > limit {
			errs = append(errs, tooCostly(use))
			break // no steps are left for the following ones
		}
		if use.limit > 0 {
			taken += found.Steps
		}
		errs = append(errs, violated(c, use, found.Violations)...)
	}
	return finding.Join(errs)
}

func violated(c *config, use schemaUse, violations []schema.Violation) (errs []error) {
	for _, found := range violations {
		at, by := c.Origin(found.Key), fmt.Sprintf("%s at %s", use.owner, use.at)
		if at == (finding.Position{}) {
			at, by = use.at, use.owner
		}
		errs = append(errs, finding.Errorf(finding.CodeSchemaViolation, at, "", "configuration: %s, says %s", strings.TrimSpace(found.Path+" "+found.Message), by))
	}
	return errs
}

// check returns the violations of a schema by c. It returns an error if the schema cannot be used.
func (v *validator) check(c *config, text string, limit int) (schema.Outcome, error) {
	compiled, err := v.schemas.Compile(text)
	if err != nil {
		return schema.Outcome{}, err
	}
	c.checks.mu.Lock()
	defer c.checks.mu.Unlock()
	i := slices.IndexFunc(c.checks.known, func(known schemaCheck) bool { return known.schema == compiled })
	if i >= 0 && c.checks.known[i].Answers(limit) {
		return c.checks.known[i].Outcome, nil
	}
	found, err := compiled.Check(c.schemaValues, limit)
	switch made := (schemaCheck{compiled, found}); {
	case err != nil:
		return schema.Outcome{}, err
	case i >= 0:
		c.checks.known[i] = made
	default:
		c.checks.known = append(c.checks.known, made)
	}
	return found, nil
}

// schemaValues yields the values of a configuration in the form that schemas check.
func (c *config) schemaValues(yield func(schema.Value) bool) {
	for _, v := range c.values {
		if !yield(schema.Value{Key: v.key, Value: v.get()}) {
			return
		}
	}
}

// fullLimitTargets is the number of deployment targets of one registration that each get all of maxSchemaSteps. The targets
// of a larger registration share the steps of so many; see schemaLimit.
const fullLimitTargets = 256

// schemaLimit returns the bound on the steps of each target of a registration with so many targets. It changes at powers
// of two only, since each change makes all cached results of the registration invalid.
func schemaLimit(targets int) int {
	limit := schema.MaxSteps
	for ; targets > fullLimitTargets; targets = (targets + 1) / 2 {
		limit /= 2
	}
	return max(limit, 1)
}

// shareSchemaSteps divides the steps of a registration among its targets.
func shareSchemaSteps(all []*target) {
	counts, bytes, seen := map[string]int{}, map[string]int{}, map[[2]string]bool{}
	for _, t := range all {
		r := t.Workload.Registration
		counts[r]++
		for _, use := range t.schemas {
			if key := [2]string{r, use.text}; !seen[key] {
				seen[key] = true
				bytes[r] += len(use.text)
			}
		}
	}
	for _, t := range all {
		r := t.Workload.Registration
		for i := range t.schemas {
			if r == "" { // the platform's own
				t.schemas[i].limit = schema.MaxSteps
				continue
			}
			t.schemas[i].limit = schemaLimit(counts[r])
			t.schemas[i].refused = bytes[r] > schema.MaxBytes
		}
	}
}

// tooLarge returns the error of a registration whose schemas are too large together.
func tooLarge(use schemaUse) error {
	return finding.Errorf(finding.CodeSchemaCost, use.at, "share one schema among workloads", "%s is one of those of its registration, which are larger than %d bytes together", use.owner, schema.MaxBytes)
}

// tooCostly returns the error of a schema that exceeds its steps.
func tooCostly(use schemaUse) error {
	return finding.Errorf(finding.CodeSchemaCost, use.at, "simplify the schema: each $ref, allOf, anyOf and oneOf counts as often as it is reached",
		"%s takes more than %d steps to check the configuration", use.owner, cmp.Or(use.limit, schema.MaxSteps))
}
