package hubload

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Query is a question to a hub.
type Query struct {
	Name, Path string
	Values     url.Values
}

// Heaviest returns the ten questions that cost a hub most, about the fleets of this package.
func Heaviest() []Query {
	q := func(name, path string, pairs ...string) Query {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Add(pairs[i], pairs[i+1])
		}
		return Query{name, path, v}
	}
	return []Query{
		q("count deployments", "/v1/counts", "of", "deployments", "by", "environment,state"),
		q("count deployments by version", "/v1/counts", "of", "deployments", "by", "workload,version"),
		q("count clusters of a selector", "/v1/counts", "of", "clusters", "by", "type,state", "selector", "region=east,gpu!=true"),
		q("failed deployments", "/v1/deployments", "state", "failed", "limit", "1000"),
		q("deployments of a workload", "/v1/deployments", "workload", "workload-3", "environment", "prod", "sort", "-since", "limit", "1000"),
		q("deployments of a selector", "/v1/deployments", "selector", "region in (east,west),gpu", "state", "failed,progressing", "limit", "1000"),
		q("clusters of a selector", "/v1/clusters", "selector", "region=east,gpu!=true", "limit", "1000"),
		q("silent clusters", "/v1/clusters", "silentFor", "1s", "sort", "lastSeen", "limit", "1000"),
		q("compare environments", "/v1/compare", "left", "environment=stage", "right", "environment=prod", "onlyDiff", "true"),
		q("drift", "/v1/drift", "environment", "prod", "limit", "1000"),
	}
}

// Times are how long the answers to questions took.
type Times struct {
	mu  sync.Mutex
	all map[string][]time.Duration
	// Refused counts the answers other than 200, by question, with one of them.
	Refused map[string]string
}

// Ask asks all questions in turn, by so many clients at once, until enough is closed and each client has asked each of them once.
func Ask(ctx context.Context, hub, token string, clients int, questions []Query, enough <-chan struct{}) *Times {
	t := &Times{all: map[string][]time.Duration{}, Refused: map[string]string{}}
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() {
			client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableCompression: true}}
			defer client.CloseIdleConnections()
			for i := n; ; i++ {
				if i >= n+len(questions) {
					select {
					case <-enough:
						return
					default:
					}
				}
				t.ask(ctx, client, hub, token, questions[i%len(questions)])
			}
		})
	}
	wg.Wait()
	return t
}

func (t *Times) ask(ctx context.Context, client *http.Client, hub, token string, q Query) {
	began := time.Now()
	refused := func() string {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, hub+q.Path+"?"+q.Values.Encode(), nil)
		if err != nil {
			return err.Error()
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(req)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			said, _ := io.ReadAll(io.LimitReader(answer.Body, 200))
			return fmt.Sprintf("%s %s", answer.Status, said)
		}
		_, err = io.Copy(io.Discard, answer.Body)
		if err != nil {
			return err.Error()
		}
		return ""
	}()
	t.mu.Lock()
	defer t.mu.Unlock()
	if refused != "" {
		t.Refused[q.Name] = refused
		return
	}
	t.all[q.Name] = append(t.all[q.Name], time.Since(began))
}

// P95 returns the time in which 95 of 100 answers came, of one question, or of all for an empty name; zero without any.
func (t *Times) P95(name string) time.Duration {
	var all []time.Duration
	for of, times := range t.all {
		if name == "" || name == of {
			all = append(all, times...)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*95/100]
}

// Len returns how many answers there were.
func (t *Times) Len() (n int) {
	for _, times := range t.all {
		n += len(times)
	}
	return n
}
