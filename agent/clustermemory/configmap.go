package clustermemory

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net/http"

	"k8s.io/client-go/rest"
)

// ConfigMapReader returns a function that reads the data of a ConfigMap, by one request each time. It connects to nothing. The
// error is about config; that of the function wraps fs.ErrNotExist if there is no such ConfigMap.
func ConfigMapReader(config *rest.Config, name Name) (func(context.Context) (map[string]string, error), error) {
	config = rest.CopyConfig(config)
	config.Timeout = cmp.Or(config.Timeout, requestTime)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	a, err := newAPI(config, client)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	return func(ctx context.Context) (map[string]string, error) {
		var found struct {
			Data map[string]string `json:"data"`
		}
		err := a.do(ctx, http.MethodGet, "/api/v1/namespaces/"+name.Namespace+"/configmaps/"+name.Name, nil, &found)
		if isStatus(err, http.StatusNotFound) {
			return nil, fmt.Errorf("ConfigMap %s: %w", name, fs.ErrNotExist)
		}
		if err != nil {
			return nil, fmt.Errorf("ConfigMap %s: %w", name, classified(err))
		}
		return found.Data, nil
	}, nil
}
