package config

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/wherry-dev/wherry/agent/sitevalues"
)

func TestSiteValuesAreReadFromAConfigMap(t *testing.T) {
	code, body := http.StatusOK, `{"data":{"dns":"plant-7.example.com","port":"8443"}}`
	var asked []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(api.Close)
	c := &Config{}
	require.NoError(t, setSiteValues(c, "configmap:plant/own"))
	source, err := c.siteValues(&rest.Config{Host: api.URL})
	require.NoError(t, err)
	require.Equal(t, "ConfigMap plant/own", source.String())
	require.Empty(t, asked, "nothing is asked before the values are read")

	own, err := source.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, sitevalues.Own{Values: map[string]any{"dns": "plant-7.example.com", "port": "8443"}}, own)
	require.Equal(t, []string{"GET /api/v1/namespaces/plant/configmaps/own"}, asked)

	body = `{}`
	own, err = source.Read(t.Context())
	require.NoError(t, err)
	require.Empty(t, own.Values, "a ConfigMap without data sets nothing")
	code, body = http.StatusNotFound, `{"message":"configmaps \"own\" not found"}`
	_, err = source.Read(t.Context())
	require.ErrorIs(t, err, fs.ErrNotExist)
	code, body = http.StatusForbidden, `{"message":"configmaps \"own\" is forbidden"}`
	_, err = source.Read(t.Context())
	require.ErrorContains(t, err, "ConfigMap plant/own: ")
	require.NotErrorIs(t, err, fs.ErrNotExist, "values that may not be read are not gone")
}

func TestPlacesOfSiteValues(t *testing.T) {
	for _, text := range []string{"configmap:own", "configmap:/own", "configmap:plant/", "configmap:Plant/own", "configmap:plant/own/x", ""} {
		require.Error(t, setSiteValues(&Config{}, text), text)
	}
	source, err := (&Config{}).siteValues(nil)
	require.NoError(t, err)
	require.Equal(t, sitevalues.File{Path: sitevalues.DefaultFile}, source)
	_, err = (&Config{SiteValues: "configmap:plant/own"}).siteValues(nil)
	require.ErrorContains(t, err, "the agent has no cluster")
}
