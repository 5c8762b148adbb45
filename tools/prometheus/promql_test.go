// Package prometheus tests the alerts of deploy/prometheus and the dashboards of deploy/grafana with the parser and the engine of
// Prometheus: each alert on series that should raise it and on series that should not, and each expression on the metrics of a
// hub, agents and a promoter that run.
package prometheus

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"
)

const rulesFile = "../../deploy/prometheus/rules.yaml"

var language = parser.NewParser(parser.Options{})

// alerts returns the alerts of the file by name.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(rulesFile, false, model.UTF8Validation, language, slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	all := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			require.NotContains(t, all, r.Alert)
			all[r.Alert] = r
		}
	}
	return all
}

// memory is series that queries read. Prometheus' own storage brings the libraries of three clouds.
type memory []promql.Series

func (m memory) Querier(from, to int64) (storage.Querier, error) {
	return querier{storage.NoopQuerier(), m, from, to}, nil
}

type querier struct {
	storage.Querier
	memory   memory
	from, to int64
}

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{}
	for _, s := range q.memory.matching(matchers) {
		s.Floats = slices.DeleteFunc(slices.Clone(s.Floats), func(p promql.FPoint) bool { return p.T < q.from || p.T > q.to })
		set.left = append(set.left, s)
	}
	return set
}

func (m memory) matching(matchers []*labels.Matcher) (found memory) {
	for _, s := range m {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Metric.Get(m.Name)) }) {
			found = append(found, s)
		}
	}
	return found
}

type seriesSet struct {
	at   promql.Series
	left []promql.Series
}

func (s *seriesSet) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.at, s.left = s.left[0], s.left[1:]
	return true
}

func (s *seriesSet) At() storage.Series                { return promql.NewStorageSeries(s.at) }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// load returns the series of a text in the notation of promtool, such as "up{job="x"} 0+1x60", a value each minute from the
// epoch.
func load(t *testing.T, text string) (all memory) {
	t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		metric, values, err := language.ParseSeriesDesc(line)
		require.NoError(t, err, line)
		s := promql.Series{Metric: metric}
		for i, v := range values {
			if !v.Omitted {
				s.Floats = append(s.Floats, promql.FPoint{T: int64(i) * time.Minute.Milliseconds(), F: v.Value})
			}
		}
		all = append(all, s)
	}
	return all
}

// page returns the series of a page of metrics as Prometheus would have them after an hour of the same answers.
func page(t *testing.T, text, instance string, now time.Time) (all memory) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		metric, err := language.ParseMetric(line[:i])
		require.NoError(t, err, line)
		value, err := strconv.ParseFloat(line[i+1:], 64)
		require.NoError(t, err, line)
		s := promql.Series{Metric: labels.NewBuilder(metric).Set("instance", instance).Set("job", "wherry").Labels()}
		for at := now.Add(-time.Hour); !at.After(now); at = at.Add(time.Minute) {
			s.Floats = append(s.Floats, promql.FPoint{T: at.UnixMilli(), F: value})
		}
		all = append(all, s)
	}
	return all
}

// evaluate returns what an expression is at a time.
func (m memory) evaluate(t *testing.T, expr string, at time.Time) promql.Vector {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: math.MaxInt32, Timeout: time.Minute, Parser: language})
	defer engine.Close()
	query, err := engine.NewInstantQuery(t.Context(), m, nil, expr, at)
	require.NoError(t, err, expr)
	defer query.Close()
	result := query.Exec(t.Context())
	require.NoError(t, result.Err, expr)
	require.Empty(t, result.Warnings, expr)
	switch v := result.Value.(type) {
	case promql.Vector:
		return slices.Clone(v)
	case promql.Scalar:
		return promql.Vector{{T: v.T, F: v.V}}
	}
	t.Fatalf("%s is a %T", expr, result.Value)
	return nil
}

// firing returns the labels with which an alert fires at a time: its expression has had them at each minute for as long as it wants.
func (m memory) firing(t *testing.T, r rulefmt.Rule, at time.Time) (all []string) {
	t.Helper()
	for since := at.Add(-time.Duration(r.For)); !since.After(at); since = since.Add(time.Minute) {
		var now []string
		for _, s := range m.evaluate(t, r.Expr, since) {
			now = append(now, s.Metric.String())
		}
		if since.Equal(at.Add(-time.Duration(r.For))) {
			all = now
		}
		all = slices.DeleteFunc(all, func(l string) bool { return !slices.Contains(now, l) })
	}
	return all
}
