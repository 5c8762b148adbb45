package clustermemory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/wherry-dev/wherry/agent/lease"
	"github.com/wherry-dev/wherry/bundle"
)

// maxAnswerBytes bounds an answer: a full Secret in base64, and what an API server has to say of it.
const maxAnswerBytes = 4 << 20

// labels are those of all that belongs to an agent.
var labels = map[string]string{"app.kubernetes.io/name": "wherry-agent"}

// The fields of Kubernetes kinds that this package writes and reads.
type (
	kind struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	metadata struct {
		Namespace       string            `json:"namespace,omitempty"`
		Name            string            `json:"name"`
		Labels          map[string]string `json:"labels,omitempty"`
		ResourceVersion string            `json:"resourceVersion,omitempty"`
	}
	namespaceObject struct {
		kind
		Metadata metadata `json:"metadata"`
	}
	secret struct {
		kind
		Metadata metadata          `json:"metadata"`
		Type     string            `json:"type"`
		Data     map[string][]byte `json:"data"`
	}
	leaseObject struct {
		kind
		Metadata metadata  `json:"metadata"`
		Spec     leaseSpec `json:"spec"`
	}
	leaseSpec struct {
		Holder      string `json:"holderIdentity,omitempty"`
		Seconds     int64  `json:"leaseDurationSeconds,omitempty"`
		Transitions int    `json:"leaseTransitions"`
		Acquired    stamp  `json:"acquireTime,omitzero"`
		Renewed     stamp  `json:"renewTime,omitzero"`
	}
)

func (l leaseObject) claim() lease.Claim {
	s := l.Spec
	return lease.Claim{
		Holder: s.Holder, Duration: time.Duration(s.Seconds) * time.Second, Transitions: s.Transitions,
		Acquired: time.Time(s.Acquired), Renewed: time.Time(s.Renewed), Version: l.Metadata.ResourceVersion,
	}
}

// stamp is a MicroTime of the Kubernetes API.
type stamp time.Time

const microTime = "2006-01-02T15:04:05.000000Z07:00"

func (s stamp) IsZero() bool { return time.Time(s).IsZero() }

func (s stamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Time(s).UTC().Format(microTime))
}

func (s *stamp) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, (*time.Time)(s)) }

// api is an API server.
type api struct {
	client *http.Client
	base   *url.URL
}

func newAPI(config *rest.Config, client *http.Client) (*api, error) {
	secure := config.TLSClientConfig.CAFile != "" || len(config.TLSClientConfig.CAData) > 0 || config.Insecure
	base, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, secure)
	return &api{client, base}, err
}

// answer is an API server's no.
type answer struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (a *answer) Error() string { return bundle.Clip(a.Message) }

// do makes one request and decodes the answer into result, unless that is nil. What an API server says no with is
// an *answer.
func (a *api) do(ctx context.Context, method, path string, object, result any) error {
	var body io.Reader
	if object != nil {
		data, err := json.Marshal(object)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, a.base.JoinPath(path).String(), body)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	if object != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := a.client.Do(r)
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return fmt.Errorf("%s: %w", a.base.Host, u.Err)
	}
	if err != nil {
		return err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes))
	switch {
	case err != nil:
		return err
	case res.StatusCode >= http.StatusBadRequest:
		no := &answer{}
		if json.Unmarshal(data, no) != nil || no.Message == "" {
			no.Message = res.Status
		}
		no.Code = res.StatusCode
		return no
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(data, result); err != nil {
		return fmt.Errorf("answer of %s: %w", a.base.Host, err)
	}
	return nil
}

func isStatus(err error, code int) bool {
	var no *answer
	return errors.As(err, &no) && no.Code == code
}

// classified wraps an API server's error in the kind that agents test for.
func classified(err error) error {
	var no *answer
	if !errors.As(err, &no) {
		return err
	}
	switch no.Code {
	case http.StatusConflict, http.StatusNotFound:
		return fmt.Errorf("%w: %w", lease.ErrChanged, err)
	case http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusBadRequest:
		return fmt.Errorf("%w: %w", lease.ErrDenied, err)
	}
	return err
}
